package meter

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// container is a fixture of a control group with processes in it.
type container struct {
	t    *testing.T
	root string
}

func (c container) lay(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// holds sets what the group's processes used, in ticks, and which they are.
func (c container) holds(ticks int, pids ...int) {
	c.t.Helper()
	list := ""
	for _, pid := range pids {
		list += fmt.Sprintln(pid)
		c.lay(fmt.Sprintf("proc/%d/cgroup", pid), "0::/box\n")
	}
	c.lay("cg/box/cpu.stat", fmt.Sprintf("usage_usec %d\n", ticks*10_000))
	c.lay("cg/box/cgroup.procs", list)
}

func TestAContainersTimeIsThatOfItsGroup(t *testing.T) {
	c := container{t, t.TempDir()}
	w := cpuTimes{since: 100, bootID: "boot", total: map[runKey]proc.Ticks{}, groups: groups{
		proc: proc.Root(filepath.Join(c.root, "proc")), mount: filepath.Join(c.root, "cg"), known: map[runKey]attemptGroup{},
	}}
	pod := train.Attempt{Job: "a", Number: 1, BootID: "boot", Phase: train.PhaseRunning}
	process := func(pid, parent int, own proc.Ticks) proc.Stat {
		return proc.Stat{PID: pid, Parent: parent, Start: 200, Own: own}
	}
	for i, step := range []struct {
		group int // the group's accounting
		pids  []int
		all   map[int]proc.Stat
		want  proc.Ticks
	}{
		{40, []int{30, 99}, stats(process(30, 1, 10)), 10}, // with another process in it, it is not the attempt's alone
		{50, []int{30, 31}, stats(process(30, 1, 12), process(31, 30, 3)), 5},
		{90, []int{30}, stats(process(30, 1, 14)), 40},    // one came and went in between: its time stays
		{93, []int{30, 99}, stats(process(30, 1, 15)), 3}, // once found it stays the attempt's
		{93, []int{30}, stats(process(30, 1, 15)), 0},
	} {
		c.holds(step.group, step.pids...)
		if got := w.used(step.all, []train.Attempt{pod}, map[int]string{30: pod.Name()})[runOf(pod)]; got != step.want {
			t.Errorf("reading %d: %d ticks, want %d", i, got, step.want)
		}
	}
	if got := w.used(stats(), []train.Attempt{pod}, nil); len(got) != 0 || len(w.groups.known) != 0 {
		t.Errorf("%v, %d groups known after the end", got, len(w.groups.known))
	}
}
