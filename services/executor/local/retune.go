package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
)

// narrowed returns the first cores processors; cores 0 means all.
func narrowed(cpus []int, cores int) []int {
	if cores <= 0 || cores >= len(cpus) {
		return cpus
	}
	return cpus[:cores]
}

// Retune sets the system parameters of a running attempt: it keeps the processes and all their threads on the given
// number of their processors. If more are wanted than there are, it refuses and gives them all, as a new start would.
// The parameters of a container, and the memory that the processes may take, are set at the start.
func (b *Backend) Retune(_ context.Context, a train.Attempt, s launch.Status, wanted train.Setting) (train.Applied, error) {
	if b.launched(a.Job, a.Number) { // whose threads belong to another user
		return b.retuneLaunched(a, s, wanted)
	}
	var applied train.Applied
	l, found, err := readJSON[Launch](filepath.Join(b.Attempt(a.Job, a.Number), launchName))
	if err != nil || !found {
		return applied, fmt.Errorf("retune %s: read its launch: %w", a.Job, errors.Join(err, os.ErrNotExist))
	}
	for name, value := range wanted.Values {
		if name != train.SettingCores || l.upgraded().Runtime != engine.None {
			applied.TakeByRestart(name, value, a.Setting.Values[name])
			continue
		}
		if s.Phase != launch.Exited {
			if err := keepOn(l, s, int(value)); err != nil {
				return applied, fmt.Errorf("retune %s: %w", a.Job, err)
			}
		}
		if why := l.lacks(int(value)); why != "" {
			applied.Refuse(name, why)
			continue
		}
		applied.Take(name, value)
	}
	return applied, nil
}

// tunedFile is what a supervisor writes down once it has given its processes as many processors as the launcher said.
type tunedFile struct {
	Cores int `json:"cores"`
	// Refused says why the processes cannot have that number. Restarts is set if they get it only after a
	// restart.
	Refused  string `json:"refused,omitempty"`
	Restarts bool   `json:"restarts,omitempty"`
}

// tunedName is the tunedFile in the folder of an attempt.
const tunedName = "tuned.json"

// retuneLaunched has the launcher tell the supervisor of an attempt. Until that has written down what it did, the value
// is neither taken nor refused.
func (b *Backend) retuneLaunched(a train.Attempt, s launch.Status, wanted train.Setting) (applied train.Applied, err error) {
	for name, value := range wanted.Values {
		started := a.Setting.Values[name]
		if name != train.SettingCores || s.Phase == launch.Exited || a.Setting.Generation == wanted.Generation {
			applied.TakeByRestart(name, value, started)
			continue
		}
		tuned, _, err := readWhole[tunedFile](filepath.Join(b.people.Attempt(a.Job, a.Number), tunedName))
		if err == nil && tuned.Cores != int(value) {
			err = b.people.launcher.Retune(a.Job, a.Number, int(value))
		}
		_, unable := errors.AsType[*launcher.RefusedError](err)
		switch {
		case err != nil && !unable:
			return applied, fmt.Errorf("retune %s: %w", a.Job, err)
		case unable || tuned.Cores == int(value) && tuned.Restarts:
			applied.TakeByRestart(name, value, started)
		case tuned.Cores == int(value) && tuned.Refused != "":
			applied.Refuse(name, tuned.Refused)
		case tuned.Cores == int(value):
			applied.Take(name, value)
		}
	}
	return applied, nil
}

// retune gives the processes as many of their processors as the launcher has written down.
func (s *supervisor) retune() error {
	layout := Layout{DataDir: filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(s.dir)))), People: true}
	text, err := os.ReadFile(launcher.CoresFile(layout, s.launch.Job))
	if err != nil {
		return fmt.Errorf("retune: %w", err)
	}
	cores, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("retune: %w", err)
	}
	tuned := tunedFile{Cores: cores, Refused: s.launch.lacks(cores), Restarts: s.launch.Runtime != engine.None}
	if !tuned.Restarts {
		err = keepOn(s.launch, launch.Status{PID: os.Getpid()}, cores)
	}
	return errors.Join(err, writeJSON(filepath.Join(s.dir, tunedName), tuned, replacing(s.shared)))
}

// lacks explains why processes cannot have that many processors; it is empty if they can.
func (l Launch) lacks(cores int) string {
	for _, p := range l.Processes {
		if !p.Serves && cores > len(p.CPUs) {
			return fmt.Sprintf("it was started on %d processors", len(p.CPUs))
		}
	}
	return ""
}

// keepOn keeps the processes of an attempt on the first cores processors that each was started on.
func keepOn(l Launch, s launch.Status, cores int) error {
	// A thread that is created meanwhile inherits the processors of its creator, so the second round finds nothing
	// new.
	const rounds = 2
	for range rounds {
		pids, err := descendants(s.PID)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			p := l.processOf(pid)
			if p.Serves {
				continue
			}
			if err := keepThreads(pid, p, cores); err != nil {
				return err
			}
		}
	}
	return nil
}

// processOf returns the process to whose rank a running one belongs.
func (l Launch) processOf(pid int) Process {
	rank, role := kernel.Variable(pid, launch.Rank), kernel.Variable(pid, launch.RoleVariable)
	i := slices.IndexFunc(l.Processes, func(p Process) bool {
		return variable(p.Env, launch.Rank) == rank && variable(p.Env, launch.RoleVariable) == role
	})
	return l.Processes[max(i, 0)]
}

// keepThreads binds the threads of a process; a thread that ends meanwhile is no error.
func keepThreads(pid int, p Process, cores int) error {
	folder := filepath.Join(string(kernel), strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := keepThread(tid, p.CPUs, cores); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("bind thread %d: %w", tid, err)
		}
	}
	return nil
}

// keepThread binds a thread to the first of its process's processors. A thread that was bound to others made its own
// choice and keeps it.
func keepThread(tid int, cpus []int, cores int) error {
	var now, set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &now); err != nil {
		return err
	}
	within := 0
	for _, cpu := range cpus {
		if now.IsSet(cpu) {
			within++
		}
	}
	if within != now.Count() {
		return nil
	}
	for _, cpu := range narrowed(cpus, cores) {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(tid, &set)
}
