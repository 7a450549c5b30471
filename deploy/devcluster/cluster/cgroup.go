package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// systemGroup is the group, below the cluster's own, of the programs that are no pods; the kubelet makes kubepods
// beside it.
const systemGroup = "system"

// hierarchies are where control groups are mounted: one place a controller with version 1, or one place for all with
// version 2. A machine with version 1 often mounts version 2 too, without controllers; containers have groups there all
// the same.
type hierarchies struct {
	first, second []string
}

func findHierarchies() (hierarchies, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return hierarchies{}, fmt.Errorf("read mounts: %w", err)
	}
	var found hierarchies
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[1], "/sys/fs/cgroup") {
			continue
		}
		switch fields[2] {
		case "cgroup":
			found.first = append(found.first, fields[1])
		case "cgroup2":
			found.second = append(found.second, fields[1])
		}
	}
	if len(found.all()) == 0 {
		return hierarchies{}, errors.New("no control groups are mounted below /sys/fs/cgroup")
	}
	return found, nil
}

func (h hierarchies) all() []string { return slices.Concat(h.first, h.second) }

// unified tells whether version 2 has the controllers.
func (h hierarchies) unified() bool { return len(h.first) == 0 }

// controlling are the places with controllers.
func (h hierarchies) controlling() []string {
	if h.unified() {
		return h.second
	}
	return h.first
}

// systemProcs is the file that takes a process into the system group of the cluster with that group. With version 1 the
// pids controller's is enough: the group is there to find every process of the cluster again, not to limit them.
func (h hierarchies) systemProcs(name string) string {
	chosen := h.controlling()[0]
	if at := slices.IndexFunc(h.first, func(path string) bool { return filepath.Base(path) == "pids" }); at >= 0 {
		chosen = h.first[at]
	}
	return filepath.Join(chosen, name, systemGroup, "cgroup.procs")
}

// makeCgroups makes the cluster's group in every hierarchy, as the kubelet asks of the root that it is given, and the
// system group.
func (c *Cluster) makeCgroups() error {
	found, err := findHierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range found.controlling() {
		group := filepath.Join(hierarchy, c.cgroupName())
		if found.unified() {
			enableControllers(hierarchy)
		}
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		if found.unified() {
			enableControllers(group)
		}
		if err := copyCpuset(hierarchy, group); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(found.systemProcs(c.cgroupName())), 0o755); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	return nil
}

// enableControllers gives the group's children every controller there is. The kubelet reports missing ones by name.
func enableControllers(group string) {
	available, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return
	}
	for controller := range strings.FieldsSeq(string(available)) {
		_ = os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// copyCpuset fills a new cpuset group of version 1, which takes no process while it has no processors.
func copyCpuset(hierarchy, group string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(hierarchy, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read control group: %w", err)
		}
		if err := os.WriteFile(filepath.Join(group, name), value, 0o644); err != nil {
			return fmt.Errorf("write control group: %w", err)
		}
	}
	return nil
}

// killGroup ends every process of the cluster: programs, containers' shims and containers.
func (c *Cluster) killGroup(patience time.Duration) error {
	found, err := findHierarchies()
	if err != nil {
		return err
	}
	var left []int
	ended := poll(patience, func() bool {
		left, err = groupProcesses(found, c.cgroupName())
		for _, pid := range left {
			if killErr := syscall.Kill(pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
				err = errors.Join(err, fmt.Errorf("kill process %d: %w", pid, killErr))
			}
		}
		return err != nil || len(left) == 0
	})
	if err == nil && !ended {
		err = fmt.Errorf("processes %v of the cluster do not end", left)
	}
	return err
}

func groupProcesses(h hierarchies, name string) ([]int, error) {
	var pids []int
	for _, group := range groups(h, name) {
		data, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read control group: %w", err)
		}
		for field := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("read control group %s: %w", group, err)
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// groups lists the cluster's groups in every hierarchy, children before their parents.
func groups(h hierarchies, name string) []string {
	var found []string
	for _, hierarchy := range h.all() {
		// A group that vanishes while it is walked is what the caller wants.
		_ = filepath.WalkDir(filepath.Join(hierarchy, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				found = append(found, path)
			}
			return nil
		})
	}
	slices.Reverse(found)
	return found
}

func (c *Cluster) removeCgroups(patience time.Duration) error {
	found, err := findHierarchies()
	if err != nil {
		return err
	}
	removed := poll(patience, func() bool {
		for _, group := range groups(found, c.cgroupName()) {
			// The kernel refuses while it still lets go of the processes.
			_ = syscall.Rmdir(group)
		}
		return len(groups(found, c.cgroupName())) == 0
	})
	if !removed {
		return fmt.Errorf("control groups %s do not go", c.cgroupName())
	}
	return nil
}
