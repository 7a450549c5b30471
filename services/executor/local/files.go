// Package local runs attempts as processes of this machine. Each attempt has a supervisor process of its own, which outlives the executor, keeps the
// output and records the exit in a file. The package decides nothing about which attempt runs or what an exit means.
//
// The truth about a supervisor is in the attempt's folder: it holds a lock for as long as it lives and leaves a claim, so that of any number of
// supervisors started for one attempt exactly one ever runs the program, and so that its death is seen however it died.
package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Launch is all that a supervisor needs to know; it is read from the attempt's folder.
type Launch struct {
	Job     train.JobID `json:"job"`
	Attempt int         `json:"attempt"`
	// Marker is a NAME=value that every process of the attempt has in its environment: what is left of a lost attempt is found by it.
	Marker    string    `json:"marker"`
	Processes []Process `json:"processes"`
	// Mounts are bound into a file system of the attempt's own where Sandbox allows it.
	Mounts  []Mount `json:"mounts,omitempty"`
	Sandbox Sandbox `json:"sandbox,omitempty"`
	// Output is the job's log, LimitBytes its bound, Header the line that begins the attempt's part of it.
	Output     string `json:"output"`
	LimitBytes int64  `json:"limit_bytes"`
	Header     string `json:"header"`
	// Told is set where the programs tell of their epochs in their output alone.
	Told *Told `json:"told,omitempty"`
	// KillAfterMillis is the time between asking processes to end and killing them.
	KillAfterMillis int64 `json:"kill_after_ms"`
	// Cleanup are commands that end what is not a child of the supervisor, i.e. containers. They are run when the attempt is ended by force.
	Cleanup [][]string `json:"cleanup,omitempty"`
}

// Process is one process to start.
type Process struct {
	Args []string `json:"args"`
	// Fallback is tried where Args[0] is not found.
	Fallback string   `json:"fallback,omitempty"`
	Env      []string `json:"env"`
	Dir      string   `json:"dir"`
	// CPUs bounds the process to these processors; none leaves it as it is.
	CPUs []int `json:"cpus,omitempty"`
	// Cores is how many of them it may use at first; 0 is all.
	Cores int `json:"cores,omitempty"`
}

// Mount shows the folder Source of the machine at Target, a name at the root of the job's file system.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// shimFile says who supervises. StartedAt is set when all programs have been started.
type shimFile struct {
	PID       int       `json:"pid"`
	PIDStart  uint64    `json:"pid_start"`
	BootID    string    `json:"boot_id"`
	StartedAt time.Time `json:"started_at,omitzero"`
}

// exitFile says how it ended.
type exitFile struct {
	Exit     train.Exit `json:"exit"`
	ExitedAt time.Time  `json:"exited_at"`
	// StartedAt is here, too, since it may not have been possible to write it down before.
	StartedAt time.Time `json:"started_at,omitzero"`
}

// The files of an attempt's folder.
const (
	launchName = "launch.json"
	lockName   = "lock"
	claimName  = "claim"
	shimName   = "shim.json"
	exitName   = "exit.json"
	tokenName  = "token"
	noiseName  = "shim.log"
)

// attemptsName is the folder in a job's folder that holds those of its attempts.
const attemptsName = "attempts"

// Layout knows where a job's files are, below the data folder.
type Layout struct{ DataDir string }

// Job is the private folder of a job.
func (l Layout) Job(job train.JobID) string { return filepath.Join(l.DataDir, "jobs", string(job)) }

// Attempt is the private folder of an attempt.
func (l Layout) Attempt(job train.JobID, number int) string {
	return filepath.Join(l.Job(job), attemptsName, strconv.Itoa(number))
}

// Output is the log of a job.
func (l Layout) Output(job train.JobID) string { return filepath.Join(l.Job(job), "output.log") }

// ReadLog reads a piece of a job's log, which keeps to so many bytes.
func (l Layout) ReadLog(r train.LogRequest, limit int64) (train.LogChunk, error) {
	return joblog.Read(l.Output(r.Job), r, limit)
}

// Snapshots is where a job saves its state unless it says otherwise, Work where it starts.
func (l Layout) Snapshots(job train.JobID) string { return filepath.Join(l.Job(job), "snapshots") }

// Work is where a job starts unless it says otherwise.
func (l Layout) Work(job train.JobID) string { return filepath.Join(l.Job(job), "work") }

// writeJSON replaces a file in one step; its content is on disk before it has its name.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return WriteFile(path, append(data, '\n'))
}

// WriteFile replaces a file in one step; its content is on disk before it has its name, and both are when this returns.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// readJSON reads a file; found is false where there is none.
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

// claim marks an attempt as taken; taken is false where somebody did before. The claim is on disk before anything is started.
func claim(dir string) (taken bool, err error) {
	f, err := os.OpenFile(filepath.Join(dir, claimName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close(), syncFolder(dir)); err != nil {
		// Nobody has the attempt: the caller holds the lock and starts nothing, and the next one may try.
		return false, errors.Join(fmt.Errorf("claim %s: %w", dir, err), os.Remove(f.Name()))
	}
	return true, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// tryLock takes an exclusive lock that ends with the process; nil where another process holds it.
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
