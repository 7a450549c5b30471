package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/seal"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
)

// people starts attempts as the users who submitted them: it asks the launcher. What it knows of such an attempt is
// what the launcher has written down and what the kernel says of its control groups. The files of its supervisor belong
// to the user, and are believed only about how his own job ended.
type people struct {
	Layout
	launcher launcher.Client
}

// RunAsSubmitters makes jobs from here on run as the users who submitted them. The launcher answers at a socket, and
// has the files of their jobs in a folder. Jobs that run already are not concerned.
func (b *Backend) RunAsSubmitters(socket, jobs string) {
	b.people = &people{Layout: Layout{DataDir: jobs, People: true}, launcher: launcher.Client{Socket: socket}}
}

// Unknown is the reason of a job whose submitter the kernel has not named.
const Unknown = "UnknownSubmitter"

var errUnknown = errors.New("no user of this machine submitted the job: it did not come through the shared socket, where the kernel names the submitter, or the owner of the installation submitted it")

// startAs asks the launcher to start an attempt. archive has the uploaded folder of the job, if it has one.
func (b *Backend) startAs(s launch.Setting, archive *os.File) error {
	dir := b.Attempt(s.Job, s.Attempt.Number)
	if err := makeFolder(dir); err != nil {
		return err
	}
	lock, err := tryLock(filepath.Join(dir, lockName))
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if exists(filepath.Join(dir, claimName)) {
		return nil // it was refused meanwhile
	}
	if s.Signed.Spec.UID == 0 {
		_ = lock.Close()
		return refuse(dir, train.Exit{Code: launch.CannotStart, Message: errUnknown.Error(), Reason: train.Reason{
			Code: Unknown, Message: errUnknown.Error(), Hint: "submit it as yourself on this machine: `switchyard submit` finds the shared socket",
		}})
	}
	a := asked{Setting: s, LogBytes: b.bounds.LogBytes, KillAfterMillis: b.bounds.KillAfterMillis, Data: b.Data.Terms()}
	a.Setting.Spec, a.Setting.Signed, a.Setting.Base, a.Setting.Passed = train.Spec{}, train.Job{}, nil, nil
	err = b.people.launcher.Launch(seal.Signed(s.Signed), s.Attempt.Number, boundsOf(s), a, archive)
	refused, is := errors.AsType[*launcher.RefusedError](err)
	if !is {
		return err
	}
	if _, there, err := b.people.record(s.Job, s.Attempt.Number); err != nil || there {
		return err // it was started, or was about to: what has become of it is seen by its control groups
	}
	_ = lock.Close()
	return refuse(dir, train.Exit{Code: launch.CannotStart, Message: refused.Why, Reason: train.Reason{Code: "NotLaunched", Message: refused.Why}})
}

// mostTasksOf bounds the processes and threads of an attempt; see mostTasks.
const mostTasksOf = 32768

// boundsOf returns what the processes of an attempt may take together.
func boundsOf(s launch.Setting) cgroup.Bounds {
	b := cgroup.Bounds{Memory: unit.Bytes(memoryMiB(s)) * unit.MiB, Tasks: mostTasksOf}
	if !s.OnGPUs() && !slices.ContainsFunc(s.Processes(), launch.Process.Serves) {
		b.Cores = len(s.Devices())
	}
	return b
}

// record returns what the launcher has written down of an attempt.
func (p *people) record(job train.JobID, number int) (r launcher.Record, found bool, err error) {
	r, found, err = launcher.Read(p.Layout, job)
	return r, found && r.Attempt >= number, err
}

// status returns how far an attempt has got. One has ended only once no process of it is left.
func (p *people) status(job train.JobID, number int) (launch.Status, error) {
	r, found, err := p.record(job, number)
	if err != nil || !found {
		return launch.Status{}, err
	}
	dir := p.Attempt(job, number)
	s, err := readStatus(dir)
	if r.Attempt > number { // another one was launched since, so nothing is left of this one
		s.Phase = max(s.Phase, launch.Lost)
		return s, err
	}
	var left []int
	if r.BootID == bootID() {
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
		_, err = p.launcher.Kill(job, number)
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
func (p *people) stop(job train.JobID, number int, signal unix.Signal) error {
	if signal != unix.SIGKILL {
		return p.launcher.Signal(job, number)
	}
	_, err := p.launcher.Kill(job, number)
	return err
}

// findLaunched lists the attempts that were launched and not forgotten yet.
func (b *Backend) findLaunched() ([]launch.Found, error) {
	p := b.people
	jobs, err := os.ReadDir(filepath.Dir(p.Job("x")))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list launched attempts: %w", err)
	}
	var found []launch.Found
	for _, job := range jobs {
		id := train.JobID(job.Name())
		numbers, err := os.ReadDir(filepath.Join(p.Job(id), attemptsName))
		if err != nil {
			continue
		}
		for _, n := range numbers {
			number, err := strconv.Atoi(n.Name())
			if err != nil {
				continue
			}
			if s, err := b.statusOfLaunched(id, number); err == nil && s.Phase != launch.Absent {
				found = append(found, launch.Found{Job: id, Number: number, Phase: s.Phase})
			}
		}
	}
	return found, nil
}

// status returns how far an attempt has got: what this process has refused or started itself comes first.
func (b *Backend) status(job train.JobID, number int) (launch.Status, error) {
	s, err := status(b.Attempt(job, number))
	if err != nil || s.Phase != launch.Absent || b.people == nil {
		return s, err
	}
	return b.statusOfLaunched(job, number)
}

// statusOfLaunched is the status of an attempt that the launcher has. While this process waits for the launcher to
// start it, the record without a supervisor means that there is none yet.
func (b *Backend) statusOfLaunched(job train.JobID, number int) (launch.Status, error) {
	dir := b.Attempt(job, number)
	before := b.isPreparing(dir)
	s, err := b.people.status(job, number)
	if s.Phase == launch.Lost && (before || b.isPreparing(dir)) {
		s.Phase = launch.Starting
	}
	return s, err
}

// isPreparing reports whether an attempt is being started beside.
func (b *Backend) isPreparing(dir string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.preparing[dir]
}

// launched reports whether the launcher has an attempt.
func (b *Backend) launched(job train.JobID, number int) bool {
	if b.people == nil {
		return false
	}
	_, found, err := b.people.record(job, number)
	return found || err != nil
}

// LayoutOf returns where the files of a job are.
func (b *Backend) LayoutOf(job train.JobID) Layout {
	if b.people != nil && exists(b.people.Own(job)) {
		return b.people.Layout
	}
	return b.Layout
}

// fetchArchive keeps the archive of an uploaded folder in a file without a name.
func (b *Backend) fetchArchive(ctx context.Context, s launch.Setting) (*os.File, error) {
	if s.Spec.Upload == "" {
		return nil, nil
	}
	f, err := os.CreateTemp(b.Attempt(s.Job, s.Attempt.Number), ".upload.*")
	if err != nil {
		return nil, fmt.Errorf("fetch the uploaded folder of %s: %w", s.Job, err)
	}
	err = errors.Join(os.Remove(f.Name()), b.Uploads(ctx, s.Spec.User, s.Spec.Upload, func(archive io.Reader) error {
		_, err := io.Copy(f, archive)
		return err
	}))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fetch the uploaded folder of %s: %w", s.Job, err), f.Close())
	}
	return f, nil
}
