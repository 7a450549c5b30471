// Package attempt is an attempt on this machine as its supervisor and the executor both see it: the launch that
// describes it, the files in its folder, and its processes. It decides neither what runs nor what an end means.
//
// The truth about a supervisor is in a file of the attempt's folder. The supervisor holds the lock of that file for as
// long as it lives, and writes into it who it is: then the attempt is taken. So if several supervisors are started for
// one attempt, exactly one ever runs the program, and its death is seen however it died.
package attempt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Folder is the folder of an attempt.
type Folder struct {
	Path string
	// Shared is set if supervisor and executor are different users. The executor then reads the files through their
	// group.
	Shared bool
}

// In returns the folder of an attempt in a layout.
func In(l installation.Layout, job train.JobID, number int) Folder {
	return Folder{Path: l.Attempt(job, number), Shared: l.People}
}

// The files of an attempt's folder. The names are those of older versions: their supervisors must still be found.
const (
	launchName     = "launch.json"
	supervisorName = "shim.json"
	exitName       = "exit.json"
	tokenName      = "token"
	hostsName      = "hosts"
	stderrName     = "shim.log"
	terminalName   = "terminal"
	tunedName      = "tuned.json"
	stagingName    = "staging.json"
	// Launches of versions before 3 are locked and claimed by files of their own.
	oldLockName, oldClaimName = "lock", "claim"
)

// Unreported is the folder, in that of an attempt, in which its code writes its reports down until they have arrived.
// What is there after the end did not arrive.
const Unreported = "unreported"

// Unreported returns the path of the folder of reports that have not arrived.
func (f Folder) Unreported() string { return filepath.Join(f.Path, Unreported) }

// Token returns the path of the file with the attempt's token.
func (f Folder) Token() string { return filepath.Join(f.Path, tokenName) }

// Hosts returns the path of the list of slots for mpirun.
func (f Folder) Hosts() string { return filepath.Join(f.Path, hostsName) }

// OpenErrors opens the file of what the supervisor prints.
func (f Folder) OpenErrors() (*os.File, error) {
	return os.OpenFile(filepath.Join(f.Path, stderrName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, f.mode())
}

func (f Folder) mode() os.FileMode {
	if f.Shared {
		return installation.SharedMode
	}
	return 0o600
}

// write replaces a file; it is on disk when write returns. replace does so without a sync: the file may not be whole if
// the machine fails.
func (f Folder) write(name string, value any) error {
	if f.Shared {
		return writeJSON(filepath.Join(f.Path, name), value, installation.WriteShared)
	}
	return writeJSON(filepath.Join(f.Path, name), value, installation.WriteFile)
}

func (f Folder) replace(name string, value any) error {
	if f.Shared {
		return writeJSON(filepath.Join(f.Path, name), value, installation.ReplaceShared)
	}
	return writeJSON(filepath.Join(f.Path, name), value, installation.ReplaceFile)
}

// Lock takes the lock of the attempt, which ends with the process. It returns nil if another process holds it.
func (f Folder) Lock() (*os.File, error) {
	path := filepath.Join(f.Path, supervisorName)
	if f.old() {
		path = filepath.Join(f.Path, oldLockName)
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, f.mode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Claim marks the attempt as taken by a supervisor, for the process that holds its lock; taken is false if it was taken
// before. Nothing may be started before SyncClaim has returned.
func (f Folder) Claim(by Supervisor) (taken bool, err error) {
	if f.Claimed() {
		return false, nil
	}
	if f.old() {
		claim, err := os.OpenFile(filepath.Join(f.Path, oldClaimName), os.O_CREATE|os.O_EXCL, f.mode())
		if err != nil {
			return false, fmt.Errorf("claim %s: %w", f.Path, err)
		}
		_ = claim.Close() // it is empty
	}
	if err := f.Declare(by); err != nil {
		// The attempt stays free: the caller starts nothing, and the next supervisor may try.
		return false, errors.Join(fmt.Errorf("claim %s: %w", f.Path, err), f.Unclaim())
	}
	return true, nil
}

// SyncClaim returns once the claim is on disk.
func (f Folder) SyncClaim() error {
	return installation.SyncFile(filepath.Join(f.Path, supervisorName))
}

// Claimed reports whether the attempt was taken.
func (f Folder) Claimed() bool { return f.declared() || f.claimedOld() }

func (f Folder) declared() bool {
	info, err := os.Lstat(filepath.Join(f.Path, supervisorName))
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

func (f Folder) claimedOld() bool { return installation.Exists(filepath.Join(f.Path, oldClaimName)) }

// old reports whether the attempt has the lock and the claim of versions before 3: a supervisor of such a version has
// taken it, or may have been started and be about to take it.
func (f Folder) old() bool {
	if f.claimedOld() {
		return true
	}
	if f.declared() {
		return false
	}
	l, found, err := f.KeptLaunch()
	return err == nil && found && l.Version < 3
}

// Unclaim gives the attempt up before anything was started, so that another supervisor may take it.
func (f Folder) Unclaim() error {
	err := os.Truncate(filepath.Join(f.Path, supervisorName), 0)
	if f.claimedOld() { // last: it decides which file is the lock
		err = errors.Join(err, os.Remove(filepath.Join(f.Path, oldClaimName)))
	}
	return err
}

// Supervisor identifies the supervisor of an attempt. StartedAt is set when all programs have been started.
type Supervisor struct {
	PID       int       `json:"pid"`
	PIDStart  uint64    `json:"pid_start"`
	BootID    string    `json:"boot_id"`
	StartedAt time.Time `json:"started_at,omitzero"`
}

// Declare changes what Claim has recorded. It needs no sync: a supervisor does not outlive the machine. It
// overwrites the locked file; a process that reads half of it treats it as absent.
func (f Folder) Declare(s Supervisor) error {
	return writeJSON(filepath.Join(f.Path, supervisorName), s, func(path string, data []byte) error {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, f.mode())
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		_, err = file.Write(data)
		return errors.Join(err, file.Close())
	})
}

// Supervisor returns what Declare has recorded; the zero value if it has recorded nothing.
func (f Folder) Supervisor() (Supervisor, error) {
	s, _, err := readWhole[Supervisor](filepath.Join(f.Path, supervisorName))
	return s, err
}

// End says how the attempt ended.
type End struct {
	Exit     train.Exit `json:"exit"`
	ExitedAt time.Time  `json:"exited_at"`
	// StartedAt is repeated here because it may not have been possible to write it before.
	StartedAt time.Time `json:"started_at,omitzero"`
}

// End records the end. It is on disk when End returns.
func (f Folder) End(e End) error { return f.write(exitName, e) }

// Ended reports whether the end was recorded.
func (f Folder) Ended() bool { return installation.Exists(filepath.Join(f.Path, exitName)) }

// Refuse records the end of an attempt that cannot be started. It does nothing if the attempt was started before.
func (f Folder) Refuse(e train.Exit) error {
	if err := installation.MakeFolder(f.Path); err != nil {
		return err
	}
	lock, err := f.Lock()
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	taken, err := f.Claim(Supervisor{})
	if err != nil || !taken {
		return err
	}
	return f.End(End{Exit: e, ExitedAt: time.Now().UTC()})
}

// Status returns how far the attempt has got, by its files and by who holds its lock.
func (f Folder) Status() (launch.Status, error) {
	if !installation.Exists(f.Path) {
		return launch.Status{}, nil
	}
	lock, err := f.Lock()
	if err != nil {
		return launch.Status{}, err
	}
	alive := lock == nil
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	s, err := f.Recorded()
	switch {
	case err != nil || s.Phase == launch.Exited:
	case !f.Claimed():
		// Another process holds the lock and is about to claim; nothing has been started.
		s.Phase = launch.Absent
	case !alive:
		s.Phase = launch.Lost
	case !s.StartedAt.IsZero():
		s.Phase = launch.Running
	default:
		s.Phase = launch.Starting
	}
	return s, err
}

// Recorded returns what the supervisor has recorded. The phase is Exited once the end is, and Absent before.
func (f Folder) Recorded() (launch.Status, error) {
	var s launch.Status
	sup, err := f.Supervisor()
	if err != nil {
		return s, err
	}
	s.PID, s.PIDStart, s.BootID, s.StartedAt = sup.PID, sup.PIDStart, sup.BootID, sup.StartedAt
	end, found, err := readJSON[End](filepath.Join(f.Path, exitName))
	if err != nil {
		return s, err
	}
	if found {
		s.Phase, s.Exit, s.ExitedAt = launch.Exited, end.Exit, end.ExitedAt
		if s.StartedAt.IsZero() {
			s.StartedAt = end.StartedAt
		}
	}
	return s, nil
}

// Tuned is what a supervisor records once it has given its processes as many processors as the launcher said.
type Tuned struct {
	Cores int `json:"cores"`
	// Refused says why the processes cannot have that number. Restarts is set if they get it only after a restart.
	Refused  string `json:"refused,omitempty"`
	Restarts bool   `json:"restarts,omitempty"`
}

// Tune records the processors of the processes.
func (f Folder) Tune(t Tuned) error { return f.replace(tunedName, t) }

// Tuned returns what Tune has recorded; the zero value if it has recorded nothing.
func (f Folder) Tuned() (Tuned, error) {
	t, _, err := readWhole[Tuned](filepath.Join(f.Path, tunedName))
	return t, err
}

// Stage records how far the data of an attempt is.
func (f Folder) Stage(s train.Staging) error { return f.replace(stagingName, s) }

// Staging returns what Stage has recorded; nil if it has recorded nothing.
func (f Folder) Staging() *train.Staging {
	s, found, err := readJSON[train.Staging](filepath.Join(f.Path, stagingName))
	if err != nil || !found {
		return nil
	}
	return &s
}
