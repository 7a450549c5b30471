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

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
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
	var applied train.Applied
	if b.launched(a.Job, a.Number) { // whose threads belong to another user
		for name, value := range wanted.Values {
			applied.TakeByRestart(name, value, a.Setting.Values[name])
		}
		return applied, nil
	}
	l, found, err := readJSON[Launch](filepath.Join(b.Attempt(a.Job, a.Number), launchName))
	if err != nil || !found {
		return applied, fmt.Errorf("retune %s: read its launch: %w", a.Job, errors.Join(err, os.ErrNotExist))
	}
	for name, value := range wanted.Values {
		if name != train.SettingCores || l.upgraded().Runtime != noRuntime {
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
