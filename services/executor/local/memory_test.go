package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
)

// groupKinds are the control groups of this machine: without any, those in which the kernel bounds memory, and those
// of version 2, which may have no bound.
func groupKinds() map[string]cgroup.Machine {
	machine := cgroup.ThisMachine()
	second := machine
	if _, err := os.Stat(filepath.Join(machine.Mount, "unified")); err == nil {
		second.Mount = filepath.Join(machine.Mount, "unified")
	}
	return map[string]cgroup.Machine{"none": {}, "of this machine": machine, "version 2": second}
}

// grouped makes b's attempts have control groups of a kind, or skips.
func (b *bench) grouped(t *testing.T, machine cgroup.Machine) {
	t.Helper()
	if machine.Mount == "" {
		return
	}
	var err error
	if b.Bounds.Groups, err = ProbeGroups(t.Context(), Supervisor{}, machine, b.DataDir); err != nil {
		t.Skipf("this machine allows no control groups: %v", err)
	}
}

// inGroup is launch with the control group of the attempt.
func (b *bench) inGroup(job train.JobID, commands ...[]string) attempt.Launch {
	l := b.launch(job, commands...)
	l.Group = b.Bounds.Groups.Of(b.DataDir, train.Attempt{Job: job, Number: 1}.Name())
	return l
}

// A job that takes more main memory than it asked for is ended and says so, whether or not the kernel helps. A job
// that stays below goes on.
func TestMemoryIsBounded(t *testing.T) {
	const hold = `(head -c $1 /dev/zero; echo full > $2; sleep 1000) | tail > /dev/null & echo $! > $3; wait`
	for kind, machine := range groupKinds() {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			b.grouped(t, machine)
			much, little := b.inGroup("much", append(sh(hold), "sh", "120000000", "full1", "pid1")), b.inGroup("little", append(sh(hold), "sh", "20000000", "full2", "pid2"))
			for _, l := range []*attempt.Launch{&much, &little} {
				l.MemoryMiB, l.Processes[0].MemoryMiB = 64, 64
				b.start(*l)
			}
			e := b.phase("much", launch.Exited).Exit
			if e.Reason.Code != train.OutOfMemory || e.Signal != "SIGKILL" || e.Forced || !strings.Contains(e.Reason.Message, "64 MiB") || !strings.Contains(e.Reason.Hint, "`switchyard set much memory=128MiB`") {
				t.Errorf("exit %+v", e)
			}
			if pid := b.pidIn("pid1"); alive(pid) {
				t.Errorf("process %d goes on", pid)
			}
			if !strings.Contains(b.log("much"), "[switchyard: killed: its processes took ") {
				t.Errorf("the log is %q", b.log("much"))
			}
			b.until("the other is full", func() bool { return installation.Exists(filepath.Join(b.DataDir, "full2")) })
			b.phase("little", launch.Running)
			b.until("no group is left", func() bool { return much.Group == "" || !installation.Exists(string(much.Group)) })
		})
	}
}

// A process with a session of its own and an empty environment does not outlive an attempt whose supervisor was killed.
func TestControlGroupsHoldWhatLeft(t *testing.T) {
	for kind, machine := range groupKinds() {
		if machine.Mount == "" {
			continue // nothing tells such a process from others
		}
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			b.grouped(t, machine)
			l := b.inGroup("j", sh(`(setsid env -i sh -c 'echo $$ > daemon; while :; do sleep 1000; done' &) ; exec sleep 1000`))
			b.start(l)
			s, daemon := b.phase("j", launch.Running), b.pidIn("daemon")
			b.must(unix.Kill(s.PID, unix.SIGKILL))
			b.phase("j", launch.Lost)
			if !alive(daemon) {
				t.Fatal("the daemon ended by itself")
			}
			b.until("nothing left", func() bool {
				left, err := b.Sweep(t.Context(), train.Attempt{Job: "j", Number: 1})
				b.must(err)
				return left == 0
			})
			if alive(daemon) || installation.Exists(string(l.Group)) {
				t.Errorf("process %d lives: %t; its group is left: %t", daemon, alive(daemon), installation.Exists(string(l.Group)))
			}
		})
	}
}

// A restored copy of the data folder has records of attempts whose processes are those of the original.
func TestACopyOfTheInstallationKillsNothing(t *testing.T) {
	for kind, machine := range groupKinds() {
		if machine.Mount == "" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			b, restored := newBench(t), newBench(t)
			b.grouped(t, machine)
			restored.grouped(t, machine)
			b.start(b.inGroup("j", sh(`echo $$ > trainer; exec sleep 1000`)))
			s, trainer := b.phase("j", launch.Running), b.pidIn("trainer")
			left, err := restored.Sweep(t.Context(), train.Attempt{Job: "j", Number: 1})
			if err != nil || left != 0 || !alive(trainer) {
				t.Errorf("the copy found %d processes (%v), and the trainer lives: %t", left, err, alive(trainer))
			}
			b.must(unix.Kill(s.PID, unix.SIGTERM))
			b.phase("j", launch.Exited)
		})
	}
}
