package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// diskBytes is the size of a storm's disk, busBytes the memory that the bus is held to.
const (
	diskBytes = 1 << 30
	busBytes  = 28 << 20
)

// disk returns a folder that is a disk of its own if the machine allows it, so that it can be filled.
func disk(t *testing.T) (dir, cannot string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
		return dir, fmt.Sprintf("no disk of its own can be made (root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, ""
}

// fill takes all room that is left on the storm's disk.
func fill(s *storm) (func(), error) {
	ballast := filepath.Join(s.dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	for err = nil; err == nil; {
		_, err = f.Write(block[:512])
	}
	return func() { _ = os.Remove(ballast) }, nil
}

// memoryGroup returns the folder in which a group of processes is held to an amount of memory, and the file of that
// amount.
func memoryGroup() (dir, limit string) {
	if _, err := os.Stat("/sys/fs/cgroup/memory/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	}
	return "/sys/fs/cgroup", "memory.max"
}

func noMemoryGroup(s *storm) string {
	dir, limit := memoryGroup()
	group := filepath.Join(dir, fmt.Sprintf("chaos-%d", os.Getpid()))
	err := os.Mkdir(group, 0o755)
	if err == nil || os.IsExist(err) {
		err = os.WriteFile(filepath.Join(group, limit), fmt.Append(nil, busBytes), 0o600)
	}
	if err != nil {
		return fmt.Sprintf("no process can be held to an amount of memory (root, cgroups): %v", err)
	}
	s.t.Cleanup(func() { _ = os.Remove(group) })
	s.group = group
	return ""
}

// starve starts the bus again with little memory. It is started again as often as it is killed for want of more.
func starve(s *storm) (func(), error) {
	heal, err := s.hit("bus", unix.SIGKILL)
	if err != nil {
		return nil, err
	}
	s.limited = true
	heal()
	return func() {
		s.limited = false
		s.kill("bus", unix.SIGKILL)
		s.startPart("bus")
	}, nil
}

// startPart starts a part, the bus with little memory if it is held to that.
func (s *storm) startPart(name string) {
	s.start(name)
	if name == "bus" && s.limited {
		pid := fmt.Append(nil, s.procs[name].Process.Pid)
		if err := os.WriteFile(filepath.Join(s.group, "cgroup.procs"), pid, 0o600); err != nil {
			s.t.Error(err)
		}
	}
}
