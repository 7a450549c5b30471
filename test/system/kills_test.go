package system

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// submitAll submits the jobs of every test: a job that grows to both devices, and two small ones.
func (c *cluster) submitAll() map[string]int {
	epochs := map[string]int{"wide": 14, "first": 8, "second": 8}
	c.submit("wide", epochs["wide"], 2)
	c.submit("first", epochs["first"], 1)
	c.submit("second", epochs["second"], 1)
	return epochs
}

func progressed(epochs int) func(map[train.JobID]train.Job) bool {
	return func(jobs map[train.JobID]train.Job) bool {
		sum := 0
		for _, j := range jobs {
			sum += j.EpochsDone
		}
		return sum >= epochs
	}
}

func allEnded(count int) func(map[train.JobID]train.Job) bool {
	return func(jobs map[train.JobID]train.Job) bool {
		ended := 0
		for _, j := range jobs {
			if j.State.Terminal() {
				ended++
			}
		}
		return ended == count
	}
}

// verify checks the invariants with the oracle, after everything has ended.
func (c *cluster) verify(epochs map[string]int, killed map[int]bool) {
	c.t.Helper()
	jobs, err := c.register()
	if err != nil {
		c.t.Fatal(err)
	}
	for id, want := range epochs {
		if j := jobs[train.JobID(id)]; j.State != train.StateSucceeded || j.EpochsDone != want {
			c.t.Errorf("job %s: %s after %d epochs (%s), want succeeded after %d", id, j.State, j.EpochsDone, j.Message, want)
		}
	}
	for id, n := range c.terminals() {
		if n != 1 {
			c.t.Errorf("job %s has %d terminal facts, want 1", id, n)
		}
	}
	for _, fault := range judge(readLedger(c.t, c.ledger), epochs, killed) {
		c.t.Error(fault)
	}
	if left := c.trainers(); len(left) > 0 {
		c.t.Errorf("processes %v are left over", left)
	}
}

func TestKillOfEachServiceLosesNothing(t *testing.T) {
	for _, victim := range append(serviceNames(), "bus") {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.start("bus")
			c.connect()
			for _, s := range serviceNames() {
				c.start(s)
			}
			epochs := c.submitAll()
			for _, at := range []int{3, 12} {
				c.await(fmt.Sprintf("%d epochs", at), progressed(at))
				c.kill(victim, syscall.SIGKILL)
				c.start(victim)
			}
			c.await("the end of all jobs", allEnded(len(epochs)))
			c.verify(epochs, nil)
		})
	}
}

func TestKillOfEverythingAtOnceLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := c.submitAll()
	for _, at := range []int{2, 10, 18} {
		c.await(fmt.Sprintf("%d epochs", at), progressed(at))
		c.kill("up", syscall.SIGKILL)
		c.start("up")
	}
	c.await("the end of all jobs", allEnded(len(epochs)))
	c.verify(epochs, nil)
}

func TestOrderlyStopLeavesJobsRunning(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := c.submitAll()
	c.await("2 epochs", progressed(2))
	c.kill("up", syscall.SIGTERM)
	if len(c.trainers()) == 0 {
		t.Error("no job outlived an orderly stop")
	}
	c.start("up")
	c.await("the end of all jobs", allEnded(len(epochs)))
	c.verify(epochs, nil)
}

func TestAKilledTrainerRepeatsOnlyFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := c.submitAll()
	c.await("4 epochs", progressed(4))
	killed := map[int]bool{}
	for _, e := range slices.Backward(readLedger(t, c.ledger)) {
		if e.Event == "epoch" && len(killed) == 0 {
			killed[e.PID] = true
			if err := syscall.Kill(e.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.await("the end of all jobs", allEnded(len(epochs)))
	c.verify(epochs, killed)
	jobs, err := c.register()
	if err != nil {
		t.Fatal(err)
	}
	recoveries := 0
	for _, j := range jobs {
		recoveries += j.Recoveries
	}
	if recoveries != 1 {
		t.Errorf("%d recoveries, want the 1 of the killed trainer", recoveries)
	}
}

func TestAKilledSupervisorLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.submit("only", 10, 1)
	c.await("2 epochs", progressed(2))
	trainers := c.trainers()
	killed := map[int]bool{}
	for _, pid := range trainers {
		killed[pid] = true
		if parent := parentOf(t, pid); !slices.Contains(trainers, parent) {
			if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.await("the end of the job", allEnded(1))
	c.verify(map[string]int{"only": 10}, killed)
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	var parent int
	var state string
	tail := data[bytes.LastIndexByte(data, ')')+1:]
	if _, err := fmt.Sscan(string(tail), &state, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}
