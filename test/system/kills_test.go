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

// verify waits for the end of all jobs, checks the invariants with the oracle, and returns the jobs.
func (c *cluster) verify(epochs map[string]int, killed map[int]bool) map[train.JobID]train.Job {
	c.t.Helper()
	return c.verifyLives(epochs, killed, 1)
}

// verifyLives is verify for jobs that were resumed after an end.
func (c *cluster) verifyLives(epochs map[string]int, killed map[int]bool, lives int) map[train.JobID]train.Job {
	c.t.Helper()
	jobs := c.await("the end of all jobs", allEnded(len(epochs)))
	for id, want := range epochs {
		if j := jobs[train.JobID(id)]; j.State != train.StateSucceeded || j.EpochsDone != want {
			c.t.Errorf("job %s: %s after %d epochs (%s), want succeeded after %d", id, j.State, j.EpochsDone, j.Message, want)
		}
	}
	for id, n := range c.terminals() {
		if n != lives {
			c.t.Errorf("job %s has %d terminal facts, want %d", id, n, lives)
		}
	}
	for _, fault := range judge(readLedger(c.t, c.ledger), epochs, killed) {
		c.t.Error(fault)
	}
	if left := c.trainers(); len(left) > 0 {
		c.t.Errorf("processes %v are left over", left)
	}
	return jobs
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
	c.verify(epochs, nil)
}

func TestOrderlyStopLeavesJobsRunning(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := c.submitAll()
	// The trainer stands still meanwhile: otherwise it may have trained all its epochs before the stop is over.
	trainer := c.trained("first", 1)
	signal(t, trainer, syscall.SIGSTOP)
	c.kill("up", syscall.SIGTERM)
	if !slices.Contains(c.trainers(), trainer) {
		t.Error("the job did not outlive an orderly stop")
	}
	signal(t, trainer, syscall.SIGCONT)
	c.start("up")
	c.verify(epochs, nil)
}

func TestAKilledTrainerRepeatsOnlyFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := map[string]int{"wide": 14, "victim": 20}
	c.submit("wide", epochs["wide"], 2)
	c.submit("victim", epochs["victim"], 1)
	victim := c.trained("victim", 2)
	signal(t, victim, syscall.SIGKILL)
	recoveries := 0
	for _, j := range c.verify(epochs, map[int]bool{victim: true}) {
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
	epochs := map[string]int{"only": 20}
	c.submit("only", epochs["only"], 1)
	trainer := c.trained("only", 2)
	signal(t, parentOf(t, trainer), syscall.SIGKILL)
	c.verify(epochs, map[int]bool{trainer: true})
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
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
