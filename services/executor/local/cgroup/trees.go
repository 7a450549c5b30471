package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Bounds are what the processes of a group may take together; 0 is no bound.
type Bounds struct {
	Memory unit.Bytes
	Tasks  int
	Cores  int
}

// Trees are the folders of all attempts, at the root of each hierarchy: one of version 2, or one for each controller of
// version 1. Only root can make them. They lie outside of the group of any service, so that none of its restarts
// concerns them.
type Trees []Parent

// Groups are the groups of one attempt, in each hierarchy. A process is in all of them or in none.
type Groups []Group

// OpenTrees opens the folders of all attempts.
func (m Machine) OpenTrees() (Trees, error) {
	if root := Group(m.Mount); root.second() {
		parent := Group(root.file(parentName))
		err := os.Mkdir(string(parent), 0o755)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		for _, controller := range []string{"memory", "pids"} {
			err = errors.Join(err, root.pass(controller), parent.pass(controller))
		}
		if err == nil {
			_ = errors.Join(root.pass("cpu"), parent.pass("cpu")) // without it, processors are given by affinity alone
		}
		return Trees{Parent(parent)}, err
	}
	var trees Trees
	for _, controller := range []string{"memory", "pids", "cpu"} {
		parent := filepath.Join(m.Mount, controller, parentName)
		if err := os.Mkdir(parent, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			trees = append(trees, Parent(parent))
		}
	}
	if len(trees) == 0 {
		return nil, fmt.Errorf("make control groups: %s has neither version 2 nor the controllers memory, pids and cpu of version 1", m.Mount)
	}
	return trees, nil
}

// Of returns the groups of the attempt with a name, of the installation in a data folder.
func (t Trees) Of(dataDir, name string) Groups {
	var groups Groups
	for _, parent := range t {
		groups = append(groups, parent.Of(dataDir, name))
	}
	return groups
}

// Make makes the groups. bounded reports whether the kernel keeps them within the memory.
func (g Groups) Make(b Bounds) (bounded bool, err error) {
	for _, group := range g {
		if err := os.Mkdir(string(group), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, fmt.Errorf("make a control group: %w", err)
		}
		keeps, err := group.bound(b)
		if err != nil {
			return false, err
		}
		bounded = bounded || keeps
	}
	return bounded, nil
}

// cpuPeriod is the time in microseconds over which processor time is counted.
const cpuPeriod = 100_000

// bound writes the bounds into the files that the group has.
func (g Group) bound(b Bounds) (memory bool, err error) {
	quota := strconv.Itoa(b.Cores * cpuPeriod)
	for _, file := range []struct {
		name, value string
		wanted      bool
	}{
		{"pids.max", strconv.Itoa(b.Tasks), b.Tasks > 0},
		{"cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod), b.Cores > 0},
		{"cpu.cfs_quota_us", quota, b.Cores > 0},
		{"memory.swap.max", "0", b.Memory > 0},
		{"memory.max", strconv.FormatInt(int64(b.Memory), 10), b.Memory > 0},
		{"memory.limit_in_bytes", strconv.FormatInt(int64(b.Memory), 10), b.Memory > 0},
		{"memory.memsw.limit_in_bytes", strconv.FormatInt(int64(b.Memory), 10), b.Memory > 0},
	} {
		if !file.wanted || !g.has(file.name) {
			continue
		}
		if err := g.write(file.name, file.value); err != nil {
			return false, err
		}
		memory = memory || file.name == "memory.max" || file.name == "memory.limit_in_bytes"
	}
	return memory, nil
}

// Add makes a process a member of the groups, and what it starts from then on.
func (g Groups) Add(pid int) error {
	for _, group := range g {
		if err := group.write(processes, strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Members returns the processes of the groups.
func (g Groups) Members() []int {
	if len(g) == 0 {
		return nil
	}
	return g[0].Members()
}

// Kill kills all processes of the groups and returns how many there were. It is called until there are none.
func (g Groups) Kill() int {
	if len(g) == 0 {
		return 0
	}
	return g[0].Kill()
}

// Signal signals a process of the groups, and no other.
func (g Groups) Signal(pid int, signal unix.Signal) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(handle) }()
	if slices.Contains(g.Members(), pid) { // the handle stays with its process if the number goes to another
		return unix.PidfdSendSignal(handle, signal, nil, 0)
	}
	return nil
}

// Remove removes groups without processes.
func (g Groups) Remove() error {
	var errs []error
	for _, group := range g {
		errs = append(errs, group.Remove())
	}
	return errors.Join(errs...)
}
