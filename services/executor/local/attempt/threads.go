package attempt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// First returns the first cores processors; cores 0 means all.
func First(cpus []int, cores int) []int {
	if cores <= 0 || cores >= len(cpus) {
		return cpus
	}
	return cpus[:cores]
}

// Lacks explains why processes cannot have that many processors; it is empty if they can.
func (l Launch) Lacks(cores int) string {
	for _, p := range l.Processes {
		if !p.Serves && cores > len(p.CPUs) {
			return fmt.Sprintf("it was started on %d processors", len(p.CPUs))
		}
	}
	return ""
}

// KeepOn binds every process below a supervisor to the first of the processors that it was started on, as many as
// cores.
func (l Launch) KeepOn(supervisor, cores int) error {
	// A thread that is created meanwhile inherits the processors of its creator, so the second round finds nothing
	// new.
	const rounds = 2
	for range rounds {
		pids, err := Descendants(supervisor)
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
	rank, role := Kernel.Variable(pid, launch.Rank), Kernel.Variable(pid, launch.RoleVariable)
	i := slices.IndexFunc(l.Processes, func(p Process) bool {
		return Variable(p.Env, launch.Rank) == rank && Variable(p.Env, launch.RoleVariable) == role
	})
	return l.Processes[max(i, 0)]
}

// keepThreads binds the threads of a running process. It skips threads that have ended.
func keepThreads(pid int, p Process, cores int) error {
	folder := filepath.Join(string(Kernel), strconv.Itoa(pid), "task")
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
	for _, cpu := range First(cpus, cores) {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(tid, &set)
}
