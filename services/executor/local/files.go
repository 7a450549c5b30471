// Package local runs attempts as processes of this machine. Each attempt has its own supervisor process, which
// outlives the executor, keeps the output and records the exit in a file. The package does not decide which attempt
// runs or what an exit means.
//
// The truth about a supervisor is in the attempt's folder. The supervisor holds a lock there for as long as it lives,
// and leaves a claim. So if several supervisors are started for one attempt, exactly one ever runs the program, and
// its death is seen however it died.
package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// supervisorFile identifies the supervisor. StartedAt is set when all programs have been started.
type supervisorFile struct {
	PID       int       `json:"pid"`
	PIDStart  uint64    `json:"pid_start"`
	BootID    string    `json:"boot_id"`
	StartedAt time.Time `json:"started_at,omitzero"`
}

// exitFile says how the attempt ended.
type exitFile struct {
	Exit     train.Exit `json:"exit"`
	ExitedAt time.Time  `json:"exited_at"`
	// StartedAt is repeated here because it may not have been possible to write it before.
	StartedAt time.Time `json:"started_at,omitzero"`
}

// The files of an attempt's folder. The names are those of older versions: their supervisors must still be found.
const (
	launchName     = "launch.json"
	lockName       = "lock"
	claimName      = "claim"
	supervisorName = "shim.json"
	exitName       = "exit.json"
	tokenName      = "token"
	hostsName      = "hosts"
	stderrName     = "shim.log"
	terminalName   = "terminal"
)

// attemptsName is the folder in a job's folder that holds the folders of its attempts.
const attemptsName = installation.AttemptsName

// Layout maps jobs and attempts to files below the data folder.
type Layout = installation.Layout

// writeJSON replaces a file atomically by write: installation.WriteFile, or ReplaceFile if only processes may fail.
func writeJSON(path string, value any, write func(path string, data []byte) error) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return write(path, append(data, '\n'))
}

// errTorn says that a file is not whole. No process leaves such a file: it was replaced without a sync before the
// machine failed.
var errTorn = errors.New("is not whole")

// readJSON reads a file; found is false if the file does not exist.
func readJSON[T any](path string) (value T, found bool, err error) {
	data, err := readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false, nil
	}
	if err != nil {
		return value, false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, false, fmt.Errorf("%s %w: %w", path, errTorn, err)
	}
	return value, true, nil
}

// mostJSON bounds a file that is read: the largest is a launch of a gang.
const mostJSON = 32 << 20

// readOwn reads a file of an attempt's folder, which a job may have put there itself.
func readOwn(path string) ([]byte, error) {
	f, err := installation.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, mostJSON))
}

// readWhole is readJSON for files that are replaced without a sync: a file that is not whole counts as absent.
func readWhole[T any](path string) (value T, found bool, err error) {
	value, found, err = readJSON[T](path)
	if errors.Is(err, errTorn) {
		var none T
		return none, false, nil
	}
	return value, found, err
}

// claim marks an attempt as taken, for the process that holds its lock; taken is false if it was taken before. The
// claim, with what the process writes along with it, has its name on disk before anything is started: one sync for all.
func claim(dir string, along func() error) (taken bool, err error) {
	f, err := os.OpenFile(filepath.Join(dir, claimName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", dir, err)
	}
	if err = errors.Join(f.Close(), along()); err == nil {
		err = installation.SyncFolder(dir)
	}
	if err != nil {
		// The attempt stays free: the caller starts nothing, and the next supervisor may try.
		return false, errors.Join(fmt.Errorf("claim %s: %w", dir, err), os.Remove(f.Name()))
	}
	return true, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// tryLock takes an exclusive lock that ends with the process. It returns nil if another process holds the lock.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}
