package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Machine is the back end in the executor's terms: it makes settings into supervisors.
type Machine struct {
	*Backend
	bounds Bounds
	// waiting are the attempts whose supervisor's end is waited for.
	waiters   conc.WaitGroup
	waitingMu sync.Mutex
	waiting   map[string]bool
}

// NewMachine makes the back end of a data folder.
func NewMachine(b *Backend, bounds Bounds) *Machine {
	return &Machine{Backend: b, bounds: bounds, waiting: map[string]bool{}}
}

// MakeSecrets gives the capability of a job and the token of an attempt. They are made once and stay.
func (m *Machine) MakeSecrets(_ context.Context, job train.JobID, number int) (capability, token string, err error) {
	return m.Secrets(job, number)
}

// ReadSecrets makes them, too: a supervisor of this attempt would be found by its folder, so others than those that were claimed are a loss and no danger.
func (m *Machine) ReadSecrets(_ context.Context, job train.JobID, number int) (capability, token string, err error) {
	return m.Secrets(job, number)
}

// Mounts says whether a job sees its folders under their fixed names: always in a container, else where the machine allows it.
func (m *Machine) Mounts(spec train.Spec) bool {
	return spec.Image != "" || m.bounds.Sandbox != SandboxNone
}

// Starting says whether a supervisor is about to take the attempt over. A supervisor that failed says why in a file, not here.
func (m *Machine) Starting(job train.JobID, number int) (bool, error) {
	if m.Backend.Starting(job, number) {
		return true, nil
	}
	return false, errNotTaken
}

var errNotTaken = errors.New("no supervisor has taken it over; shim.log in its folder may say why")

// Start has a supervisor start the processes. What can never work is recorded as the end.
func (m *Machine) Start(_ context.Context, s launch.Setting) error {
	home := s.Home()
	if s.Spec.Image != "" && home.ContainerRuntime == "" {
		return m.Backend.Refuse(s.Job, s.Attempt.Number, train.Exit{
			Code: launch.CannotStart, Message: "this node has no container runtime (docker or podman) to run the image in",
		})
	}
	s.Mounted = m.Mounts(s.Spec)
	if err := m.folders(&s); err != nil {
		return m.Backend.Refuse(s.Job, s.Attempt.Number, train.Exit{Code: launch.CannotStart, Message: err.Error()})
	}
	var err error
	if s.Ports, err = freePorts(len(s.Processes())); err != nil {
		return err
	}
	return m.Backend.Start(Compose(s, m.Layout, m.bounds, joblog.Header(s.Attempt, time.Now().UTC().Format(time.RFC3339))))
}

// freePorts finds ports that nobody listens on now. Between this and their use somebody else may take one; the attempt then fails to meet, and says so.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			ports[i] = a.Port
		}
	}
	return ports, nil
}

// Refuse records the end of an attempt that cannot be started; nothing happens where it was started before.
func (m *Machine) Refuse(_ context.Context, a train.Attempt, e train.Exit) error {
	return m.Backend.Refuse(a.Job, a.Number, e)
}

// Look says how far an attempt has come. Files tell nothing by themselves.
func (m *Machine) Look(_ context.Context, a train.Attempt) (launch.Sight, error) {
	s, err := m.Backend.Look(a.Job, a.Number)
	s.Again = launch.Later
	if s.Phase == launch.Absent || s.Phase == launch.Starting {
		s.Again = launch.Soon
	}
	return s, err
}

// Follow has changed called when the supervisor of a running attempt ends.
func (m *Machine) Follow(ctx context.Context, a train.Attempt, s launch.Sight, changed func()) {
	dir := m.Attempt(a.Job, a.Number)
	m.waitingMu.Lock()
	defer m.waitingMu.Unlock()
	if m.waiting[dir] {
		return
	}
	m.waiting[dir] = true
	m.waiters.Go(func() {
		WaitExit(ctx, s)
		changed()
	})
}

// Run has nothing to do: the supervisors are processes of their own.
func (m *Machine) Run(ctx context.Context, _ func(...train.JobID)) error {
	<-ctx.Done()
	return nil
}

// Ready is always so.
func (m *Machine) Ready() error { return nil }

// Close waits for what was begun, after the context of Follow has ended.
func (m *Machine) Close() { m.waiters.Wait() }

// Stop has the processes of an attempt end; it is called until the exit is seen.
func (m *Machine) Stop(_ context.Context, a train.Attempt, now time.Time) error {
	return m.Backend.Stop(a.Job, a.Number, time.Duration(m.bounds.KillAfterMillis)*time.Millisecond, now)
}

// Forget removes the private files of an attempt that is over.
func (m *Machine) Forget(_ context.Context, a train.Attempt) error {
	m.waitingMu.Lock()
	delete(m.waiting, m.Attempt(a.Job, a.Number))
	m.waitingMu.Unlock()
	return m.Backend.Forget(a.Job, a.Number)
}

// ForgetAll removes the private files of every attempt of a job that has ended long ago.
func (m *Machine) ForgetAll(_ context.Context, job train.JobID) error {
	return m.Backend.ForgetAll(job)
}

// Find lists the attempts that were started on this machine and not forgotten yet.
func (m *Machine) Find(context.Context) ([]launch.Found, error) { return m.Backend.Find() }

// ReadLog reads a piece of a job's log.
func (m *Machine) ReadLog(r train.LogRequest) (train.LogChunk, error) {
	return m.Layout.ReadLog(r, m.bounds.LogBytes)
}

// TryMounts finds out whether the machine allows jobs mounts of their own; reason is why it does not.
func (m *Machine) TryMounts(ctx context.Context) (reason, err error) {
	scratch := filepath.Join(m.DataDir, "jobs")
	if err := makeFolder(scratch); err != nil {
		return nil, err
	}
	m.bounds.Sandbox, reason = Probe(ctx, scratch)
	return reason, nil
}
