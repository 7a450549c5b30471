package system

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// jetStream is the door of an operator to the bus.
func (c *cluster) jetStream() jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(c.url(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// same reports whether the jobs run in the same processes as before.
func (c *cluster) same(what string, before map[string]int) {
	c.t.Helper()
	running := c.trainers()
	for job, pid := range before {
		if !slices.Contains(running, pid) {
			c.t.Errorf("%s: the trainer of %s is gone", what, job)
		}
	}
}

// The register is deleted while jobs train and one waits, live and at rest. All go on as before, and nothing is started
// twice.
func TestALostRegisterLosesNoJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := map[string]int{"first": 60, "second": 60, "waits": 4}
	c.submit("first", epochs["first"], 1)
	c.submit("second", epochs["second"], 1)
	before := map[string]int{"first": c.trained("first", 1), "second": c.trained("second", 1)}
	low := 1
	c.submitSpec("waits", train.Spec{
		Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
		BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: epochs["waits"], MinDevices: 2, MaxDevices: 2, Priority: &low,
	})
	c.await("the third job waits", func(jobs map[train.JobID]train.Job) bool { return jobs["waits"].State == train.StateQueued })

	if err := c.jetStream().DeleteKeyValue(c.ctx, string(contract.Jobs)); err != nil {
		t.Fatal(err)
	}
	back := func(done int) func(map[train.JobID]train.Job) bool {
		return func(jobs map[train.JobID]train.Job) bool {
			return jobs["first"].EpochsDone >= done && jobs["second"].EpochsDone >= done && jobs["waits"].State == train.StateQueued
		}
	}
	c.await("the register is back, and follows", back(12))
	c.same("live", before)

	c.kill("up", syscall.SIGKILL)
	c.remove(contract.Jobs)
	c.start("up")
	c.await("the register is back after a restart, and follows", back(24))
	c.same("at rest", before)
	for id, job := range c.verify(epochs, nil) {
		if job.Preemptions+job.Recoveries+job.Restarts > 0 {
			t.Errorf("job %s: %d preemptions, %d recoveries, %d restarts", id, job.Preemptions, job.Recoveries, job.Restarts)
		}
	}
}

// remove deletes the files of a bucket.
func (c *cluster) remove(bucket contract.Bucket[train.Job]) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.dir, "bus", "jetstream", "*", "streams", "KV_"+string(bucket)))
	if err != nil || len(found) != 1 {
		c.t.Fatalf("the files of bucket %s: %v, %v", bucket, found, err)
	}
	if err := os.RemoveAll(found[0]); err != nil {
		c.t.Fatal(err)
	}
}
