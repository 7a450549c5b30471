package local

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/seal"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// people starts attempts as the users who submitted them: it asks the launcher. What it knows of such an attempt is
// what the launcher has written down and what the kernel says of its control groups. The files of its supervisor belong
// to the user, and are believed only about how his own job ended.
type people struct {
	installation.Layout
	launcher launcher.Client
}

// RunAsSubmitters makes jobs from here on run as the users who submitted them. The launcher answers at a socket, and
// has the files of their jobs in a folder. Jobs that run already are not concerned.
func (b *Backend) RunAsSubmitters(socket, jobs string) {
	b.people = &people{Layout: installation.Layout{DataDir: jobs, People: true}, launcher: launcher.Client{Socket: socket}}
}

// Unknown is the reason of a job whose submitter the kernel has not named.
const Unknown = "UnknownSubmitter"

var errUnknown = errors.New("no user of this machine submitted the job: it did not come through the shared socket, where the kernel names the submitter, or the owner of the installation submitted it")

// startAs asks the launcher to start an attempt. archive has the uploaded folder of the job, if it has one.
func (b *Backend) startAs(s launch.Setting, archive *os.File) error {
	folder := b.folder(s.Attempt)
	if err := installation.MakeFolder(folder.Path); err != nil {
		return err
	}
	lock, err := folder.Lock()
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if folder.Claimed() {
		return nil // it was refused meanwhile
	}
	if s.Signed.Spec.UID == 0 {
		_ = lock.Close()
		return folder.Refuse(train.Exit{Code: launch.CannotStart, Message: errUnknown.Error(), Reason: train.Reason{
			Code: Unknown, Message: errUnknown.Error(), Hint: "submit it as yourself on this machine: `switchyard submit` finds the shared socket",
		}})
	}
	a := prepare.Asked{Setting: s, LogBytes: b.Bounds.LogBytes, KillAfterMillis: b.Bounds.KillAfterMillis, Data: b.Data.Terms()}
	a.Setting.Spec, a.Setting.Signed, a.Setting.Base, a.Setting.Passed = train.Spec{}, train.Job{}, nil, nil
	err = b.people.launcher.Launch(seal.Signed(s.Signed), s.Attempt.Number, boundsOf(s), a, archive)
	refused, is := errors.AsType[*launcher.RefusedError](err)
	if !is {
		return err
	}
	if _, there, err := b.people.record(s.Attempt); err != nil || there {
		return err // it was started, or was about to: what has become of it is seen by its control groups
	}
	_ = lock.Close()
	return folder.Refuse(train.Exit{Code: launch.CannotStart, Message: refused.Why, Reason: train.Reason{Code: "NotLaunched", Message: refused.Why}})
}

// mostTasksOf bounds the processes and threads of an attempt, as package prepare does those of a container.
const mostTasksOf = 32768

// boundsOf returns what the processes of an attempt may take together.
func boundsOf(s launch.Setting) cgroup.Bounds {
	b := cgroup.Bounds{Memory: unit.Bytes(prepare.MemoryMiB(s)) * unit.MiB, Tasks: mostTasksOf}
	if !s.OnGPUs() && !slices.ContainsFunc(s.Processes(), launch.Process.Serves) {
		b.Cores = len(s.Devices())
	}
	return b
}

// record returns what the launcher has written down of an attempt.
func (p *people) record(a train.Attempt) (r launcher.Record, found bool, err error) {
	r, found, err = launcher.Read(p.Layout, a.Job)
	return r, found && r.Attempt >= a.Number, err
}

// status returns how far an attempt has got. One has ended only once no process of it is left.
func (p *people) status(a train.Attempt) (launch.Status, error) {
	r, found, err := p.record(a)
	if err != nil || !found {
		return launch.Status{}, err
	}
	s, err := attempt.In(p.Layout, a.Job, a.Number).Recorded()
	if r.Attempt > a.Number { // another one was launched since, so nothing is left of this one
		s.Phase = max(s.Phase, launch.Lost)
		return s, err
	}
	var left []int
	if r.BootID == attempt.BootID() {
		left = r.Groups.Members()
	}
	ended := s.Phase == launch.Exited
	s.PID, s.PIDStart, s.BootID = r.PID, r.PIDStart, r.BootID
	supervised := r.PID > 0 && slices.Contains(left, r.PID)
	switch {
	case ended && len(left) == 0:
		s.Phase = launch.Exited
	case !supervised && len(left) > 0 && ended:
		s.Phase = launch.Ending // what outlived its supervisor holds the devices
		_, err = p.launcher.Kill(a.Job, a.Number)
	case !supervised:
		s.Phase = launch.Lost
	case s.StartedAt.IsZero():
		s.Phase = launch.Starting
	default:
		s.Phase = launch.Running
	}
	if s.Phase != launch.Exited {
		s.Exit, s.ExitedAt = train.Exit{}, time.Time{}
	}
	return s, err
}

// stop asks the supervisor of an attempt to end it, or kills all of it.
func (p *people) stop(a train.Attempt, signal unix.Signal) error {
	if signal != unix.SIGKILL {
		return p.launcher.Signal(a.Job, a.Number)
	}
	_, err := p.launcher.Kill(a.Job, a.Number)
	return err
}

// status returns how far an attempt has got: what this process has refused or started itself comes first.
func (b *Backend) status(a train.Attempt) (launch.Status, error) {
	s, err := b.folder(a).Status()
	if err != nil || s.Phase != launch.Absent || b.people == nil {
		return s, err
	}
	return b.statusOfLaunched(a)
}

// statusOfLaunched is the status of an attempt that the launcher has. While this process waits for the launcher to
// start it, the record without a supervisor means that there is none yet.
func (b *Backend) statusOfLaunched(a train.Attempt) (launch.Status, error) {
	folder := b.folder(a)
	before := b.isPreparing(folder)
	s, err := b.people.status(a)
	if s.Phase == launch.Lost && (before || b.isPreparing(folder)) {
		s.Phase = launch.Starting
	}
	return s, err
}

// isPreparing reports whether an attempt is being started beside.
func (b *Backend) isPreparing(folder attempt.Folder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.preparing[folder] != nil
}

// launched reports whether the launcher has an attempt.
func (b *Backend) launched(a train.Attempt) bool {
	if b.people == nil {
		return false
	}
	_, found, err := b.people.record(a)
	return found || err != nil
}

// LayoutOf returns where the files of a job are.
func (b *Backend) LayoutOf(job train.JobID) installation.Layout {
	if b.people != nil && installation.Exists(b.people.Own(job)) {
		return b.people.Layout
	}
	return b.Layout
}
