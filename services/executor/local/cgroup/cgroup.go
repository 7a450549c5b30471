// Package cgroup keeps the programs of an attempt in a control group of their own, of either version. The kernel bounds
// their main memory there, and no process leaves the group by a session of its own or an empty environment. The package
// decides neither how much memory an attempt may take nor when it ends.
package cgroup

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

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Group is the folder of a control group; empty if the attempt has none.
type Group string

// The files of a group, by version.
const (
	processes   = "cgroup.procs"
	threads     = "tasks" // version 1 moves single threads, too
	killFile    = "cgroup.kill"
	controllers = "cgroup.controllers"
	subtree     = "cgroup.subtree_control"
)

func (g Group) file(name string) string { return filepath.Join(string(g), name) }

func (g Group) has(name string) bool {
	_, err := os.Stat(g.file(name))
	return g != "" && err == nil
}

// second reports whether the group is of version 2.
func (g Group) second() bool { return g.has(controllers) }

func (g Group) write(name, value string) error {
	if err := os.WriteFile(g.file(name), []byte(value), 0o600); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// Make makes the group. bounded reports whether the kernel keeps it within the memory; 0 is no bound.
func (g Group) Make(memory unit.Bytes) (bounded bool, err error) {
	if g == "" {
		return false, nil
	}
	if err := os.Mkdir(string(g), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("make a control group: %w", err)
	}
	bytes := strconv.FormatInt(int64(memory), 10)
	switch {
	case memory <= 0:
		return false, nil
	case g.has("memory.max"):
		// All processes end together, and none of them goes on in the swap.
		for name, value := range map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"} {
			if g.has(name) {
				err = errors.Join(err, g.write(name, value))
			}
		}
		return err == nil, errors.Join(err, g.write("memory.max", bytes))
	case g.has("memory.limit_in_bytes"):
		err = g.write("memory.limit_in_bytes", bytes)
		if withSwap := "memory.memsw.limit_in_bytes"; err == nil && g.has(withSwap) {
			err = g.write(withSwap, bytes)
		}
		return err == nil, err
	}
	return false, nil
}

// Place makes the programs that a thread starts members of the group: done by attributes (version 2), or because the
// thread itself is one from now on (version 1). close is called once they have been used.
func (g Group) Place(attributes *syscall.SysProcAttr) (close func(), err error) {
	if !g.second() {
		return func() {}, nil
	}
	folder, err := os.Open(string(g))
	if err != nil {
		return nil, fmt.Errorf("open the control group: %w", err)
	}
	attributes.UseCgroupFD, attributes.CgroupFD = true, int(folder.Fd())
	return func() { _ = folder.Close() }, nil
}

// Enter makes the calling thread a member of a group of version 1, in which what it starts begins. leave moves the
// thread back to the parent group; the thread itself must call it.
func (g Group) Enter() (leave func() error, err error) {
	if g == "" || g.second() {
		return func() error { return nil }, nil
	}
	// The thread may not see the folder any more when it leaves. If it cannot leave, it stays until its process ends.
	parent, unopened := os.OpenFile(Group(filepath.Dir(string(g))).file(threads), os.O_WRONLY, 0)
	// 0 is the calling thread. For a thread by its number the kernel first waits until no thread of the machine is being
	// made or ends, more than 10 ms.
	const self = "0"
	return func() error {
		if unopened != nil {
			return fmt.Errorf("control group: %w", unopened)
		}
		_, err := parent.WriteString(self)
		return errors.Join(err, parent.Close())
	}, g.write(threads, self)
}

// OutOfMemory reports whether the kernel has killed a process of the group because it had reached its bound.
func (g Group) OutOfMemory() bool {
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		text, err := os.ReadFile(g.file(name))
		if g == "" || err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if n, found := strings.CutPrefix(line, "oom_kill "); found {
				return strings.TrimSpace(n) != "0"
			}
		}
	}
	return false
}

// Members returns the processes of the group and of groups below it, without this one.
func (g Group) Members() []int {
	if g == "" {
		return nil
	}
	var pids []int
	_ = filepath.WalkDir(string(g), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // it has just gone
		}
		text, _ := os.ReadFile(filepath.Join(path, processes))
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Kill kills all processes of the group and returns how many there were. It is called until there are none.
func (g Group) Kill() int {
	pids := g.Members()
	if len(pids) > 0 && g.has(killFile) && g.write(killFile, "1") == nil {
		return len(pids)
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return len(pids)
}

// Remove removes a group without processes, with groups that a program has made below it.
func (g Group) Remove() error {
	if g == "" {
		return nil
	}
	var folders []string
	_ = filepath.WalkDir(string(g), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return nil
	})
	var errs []error
	for _, folder := range slices.Backward(folders) {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove a control group: %w", err))
		}
	}
	return errors.Join(errs...)
}
