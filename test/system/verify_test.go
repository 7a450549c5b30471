package system

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/chaos"
)

// readLedger returns what the trainers wrote themselves, apart from the bus.
func readLedger(t *testing.T, path string) []chaos.Entry {
	t.Helper()
	entries, err := chaos.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return entries
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

// verify waits for the end of all jobs, checks the invariants with the ledger, and returns the jobs.
func (c *cluster) verify(epochs map[string]int, killed map[int]bool) map[train.JobID]train.Job {
	c.t.Helper()
	return c.verifyLives(epochs, killed, 1)
}

// verifyLives is verify for jobs that were resumed after an end.
func (c *cluster) verifyLives(epochs map[string]int, killed map[int]bool, lives int) map[train.JobID]train.Job {
	c.t.Helper()
	jobs := c.await("the end of all jobs", allEnded(len(epochs)))
	last := map[int]chaos.Entry{}
	entries := readLedger(c.t, c.ledger)
	for _, e := range entries {
		last[e.PID] = e
	}
	for pid := range killed {
		e := last[pid]
		e.Event = chaos.Killed
		entries = chaos.Add(entries, e)
	}
	for id, want := range epochs {
		if j := jobs[train.JobID(id)]; j.State != train.StateSucceeded || j.EpochsDone != want {
			c.t.Errorf("job %s: %s after %d epochs (%s), want succeeded after %d", id, j.State, j.EpochsDone, j.Message, want)
		}
		entries = chaos.Add(entries, chaos.Entry{Event: chaos.Submitted, Job: id, Epochs: want})
	}
	for id, n := range c.terminals() {
		if n != lives {
			c.t.Errorf("job %s has %d terminal facts, want %d", id, n, lives)
		}
	}
	for _, v := range chaos.Processes(entries) {
		c.t.Errorf("%s: %s", v.Invariant, v.Text)
	}
	if left := c.trainers(); len(left) > 0 {
		c.t.Errorf("processes %v are left over", left)
	}
	return jobs
}

// parentOf returns the parent of a process and its state; none if it is gone.
func parentOf(pid int) (parent int, state string) {
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return 0, ""
	}
	tail := data[bytes.LastIndexByte(data, ')')+1:]
	_, _ = fmt.Sscan(string(tail), &state, &parent)
	return parent, state
}
