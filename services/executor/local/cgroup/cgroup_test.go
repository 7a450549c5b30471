package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestControllersArePassedOn uses the real tree of version 2: a group with processes can pass no controller on, so they
// move to a leaf first.
func TestControllersArePassedOn(t *testing.T) {
	mount := ThisMachine().Mount
	if !Group(mount).second() {
		mount = filepath.Join(mount, "unified")
	}
	offered := slices.DeleteFunc([]string{"memory", "pids", "hugetlb", "cpuset"}, func(name string) bool { return !Group(mount).offers(name) })
	group := Group(filepath.Join(mount, fmt.Sprintf("switchyard-test-%d", os.Getpid())))
	if len(offered) == 0 || Group(mount).pass(offered[0]) != nil || os.Mkdir(string(group), 0o755) != nil {
		t.Skip("this process may make no control groups of version 2")
	}
	t.Cleanup(func() {
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	placed, err := group.Place(cmd.SysProcAttr)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	placed()
	if err := group.pass(offered[0]); err != nil {
		t.Fatal(err)
	}
	if !Group(group.file("switchyard-services")).offers(offered[0]) {
		t.Errorf("groups below do not have %s", offered[0])
	}
	if got := group.Members(); !slices.Equal(got, []int{cmd.Process.Pid}) {
		t.Errorf("members %v, want %d", got, cmd.Process.Pid)
	}
	if n := group.Kill(); n != 1 {
		t.Errorf("%d killed", n)
	}
	_ = cmd.Wait()
}

// TestOwnGroups: of both versions, and of a container that sees only its own.
func TestOwnGroups(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "own")
	if err := os.WriteFile(file, []byte("5:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/system.slice/up.service\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := Machine{Mount: dir, Own: file}.own()
	if diff := cmp.Diff(map[string]string{"cpu": "/a", "cpuacct": "/a", "memory": "/docker/x", "": "/system.slice/up.service"}, own); diff != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	if err := os.MkdirAll(filepath.Join(dir, "memory", "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/a": "memory/a", "/docker/x": "memory", "/../own": "memory"} {
		if got := below(filepath.Join(dir, "memory"), path); got != filepath.Join(dir, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if _, err := (Machine{Mount: dir, Own: filepath.Join(dir, "none")}).Open(); err == nil {
		t.Error("there is nothing to open")
	}
}

func TestAnAttemptWithoutAGroup(t *testing.T) {
	var none Group
	bounded, err := none.Make(0)
	leave, entered := none.Enter()
	if bounded || err != nil || none.Kill() != 0 || none.Remove() != nil || entered != nil || leave() != nil || none.OutOfMemory() || Parent("").Of("/d", "j/1/x") != "" {
		t.Errorf("bounded %t, %v", bounded, err)
	}
}

// A thread is in the group between Enter and leave, alone of its process, and the group can be removed after that. In
// version 2 programs begin in the group without it.
func TestAThreadEntersAndLeaves(t *testing.T) {
	parent, err := ThisMachine().Open()
	if err != nil {
		t.Skip("this process may make no control groups")
	}
	group := parent.Of("/d", fmt.Sprintf("test/%d", os.Getpid()))
	if _, err := group.Make(0); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	members := func() string {
		if group.second() {
			return ""
		}
		text, err := os.ReadFile(group.file(threads))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	leave, err := group.Enter()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintln(unix.Gettid()); !group.second() && members() != want {
		t.Errorf("threads %q, want %q", members(), want)
	}
	if err := leave(); err != nil || members() != "" {
		t.Errorf("threads %q after the thread has left, %v", members(), err)
	}
	if err := group.Remove(); err != nil {
		t.Error(err)
	}
}
