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
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Launch is everything a supervisor needs to know. It is read from the attempt's folder.
type Launch struct {
	Job     train.JobID `json:"job"`
	Attempt int         `json:"attempt"`
	// Marker is a NAME=value that every process of the attempt has in its environment. It identifies what is left of
	// a lost attempt.
	Marker    string    `json:"marker"`
	Processes []Process `json:"processes"`
	// Mounts are bound into the attempt's own file system if Sandbox allows it.
	Mounts  []Mount `json:"mounts,omitempty"`
	Sandbox Sandbox `json:"sandbox,omitempty"`
	// Output is the job's log, LimitBytes its largest size, Header the line that begins the attempt's part of it.
	Output     string `json:"output"`
	LimitBytes int64  `json:"limit_bytes"`
	Header     string `json:"header"`
	// Shell is set if the first process runs on a terminal. Beside is what runs on a terminal beside the processes, but
	// for the command itself.
	Shell  *Shell  `json:"shell,omitempty"`
	Beside Process `json:"beside,omitzero"`
	// Proxy is set if the supervisor calls the job API for the programs.
	Proxy *Proxy `json:"proxy,omitempty"`
	// HorovodPort is where the supervisor serves the rendezvous of Horovod's processes; 0 if it does not.
	HorovodPort int `json:"horovod_port,omitempty"`
	// KillAfterMillis is the time between asking processes to end and killing them.
	KillAfterMillis int64 `json:"kill_after_ms"`
	// Cleanup are commands that end what is not a child of the supervisor, that is, containers. They run when the
	// attempt is ended by force.
	Cleanup [][]string `json:"cleanup,omitempty"`
}

// Process is one process to start.
type Process struct {
	Args []string `json:"args"`
	// Fallback is tried if Args[0] is not found.
	Fallback string   `json:"fallback,omitempty"`
	Env      []string `json:"env"`
	Dir      string   `json:"dir"`
	// CPUs are the processors that the process may use; if empty, it inherits them.
	CPUs []int `json:"cpus,omitempty"`
	// Cores is how many of the CPUs the process may use at first; 0 means all.
	Cores int `json:"cores,omitempty"`
	// Serves says that the process only serves the others: once they have ended, it is ended.
	Serves bool `json:"serves,omitempty"`
}

// Mount shows the folder Source of the machine at Target, a name at the root of the job's file system.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

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

// writeJSON replaces a file atomically; its content is on disk before the file has its name.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return installation.WriteFile(path, append(data, '\n'))
}

// readJSON reads a file; found is false if the file does not exist.
func readJSON[T any](path string) (value T, found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false, nil
	}
	if err != nil {
		return value, false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, false, fmt.Errorf("decode %s: %w", path, err)
	}
	return value, true, nil
}

// claim marks an attempt as taken; taken is false if it was taken before. The claim is on disk before anything is
// started.
func claim(dir string) (taken bool, err error) {
	f, err := os.OpenFile(filepath.Join(dir, claimName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close(), installation.SyncFolder(dir)); err != nil {
		// The attempt stays free: the caller holds the lock and starts nothing, and the next supervisor may try.
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
