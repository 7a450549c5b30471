package system

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// jetStream is the door of an operator to the bus.
func (c *cluster) jetStream() jetstream.JetStream {
	c.t.Helper()
	nc, err := c.raw(identity.Operator, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
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
	c.remove(string(contract.Jobs))
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
func (c *cluster) remove(bucket string) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.data, "bus", "jetstream", "*", "streams", "KV_"+bucket))
	if err != nil || len(found) != 1 {
		c.t.Fatalf("the files of bucket %s: %v, %v", bucket, found, err)
	}
	if err := os.RemoveAll(found[0]); err != nil {
		c.t.Fatal(err)
	}
}

// A backup is taken while jobs train. Restored into another data folder, it has every job, and goes on: what had ended
// is as it was, what waited or ran is trained to its end.
func TestABackupRunsOnInAnotherFolder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.submit("ended", 2, 1)
	c.await("the first job has ended", func(jobs map[train.JobID]train.Job) bool { return jobs["ended"].State == train.StateSucceeded })
	c.submit("runs", 500, 2)
	c.trained("runs", 1)
	c.submit("waits", 3, 1)
	c.await("the last job waits", func(jobs map[train.JobID]train.Job) bool {
		return jobs["waits"].State == train.StateQueued || jobs["waits"].Attempt > 0
	})
	file := filepath.Join(c.dir, "backup.tar")
	if code, out := c.command("backup", file, "--nats", c.url()); code != 0 {
		t.Fatalf("backup: exit %d: %s", code, out)
	}
	before, err := c.register()
	if err != nil {
		t.Fatal(err)
	}
	c.kill("up", syscall.SIGKILL)
	c.killRest()
	if code, out := c.command("restore", file, "--data-dir", c.data); code == 0 || !strings.Contains(out, "overwrites nothing") {
		t.Errorf("restore over a bus: exit %d: %s", code, out)
	}

	other := newCluster(t)
	if code, out := other.command("restore", file, "--data-dir", other.data); code != 0 {
		t.Fatalf("restore: exit %d: %s", code, out)
	}
	other.start("up")
	other.connect()
	now := other.await("the register is whole", func(jobs map[train.JobID]train.Job) bool { return len(jobs) == 3 })
	was, is := before["ended"], now["ended"]
	was.Seal, is.Seal = nil, nil // admission signs with another key there
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("the ended job (-before +restored): %s", diff)
	}
	other.await("the waiting job ends", func(jobs map[train.JobID]train.Job) bool { return jobs["waits"].State == train.StateSucceeded })
	other.await("the job that ran goes on", func(jobs map[train.JobID]train.Job) bool {
		return jobs["runs"].Attempt > before["runs"].Attempt && jobs["runs"].State == train.StateRunning
	})
	if code, out := other.command("repair", "--check", "--nats", other.url(), "--data-dir", other.data); code != 0 {
		t.Errorf("repair --check: exit %d: %s", code, out)
	}
}

// The disk loses the newest facts, and a bucket of what was learned. The services say so and wait; a repair and the
// newest snapshot bring everything back that is there.
func TestDamageIsToldAndRepaired(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.eventually("a snapshot of the buckets", func() error {
		found, err := filepath.Glob(filepath.Join(c.data, "bus-snapshots", "*.tar"))
		if err == nil && len(found) == 0 {
			err = errors.New("none yet")
		}
		return err
	})
	epochs := map[string]int{"long": 60}
	c.submit("long", epochs["long"], 1)
	before := map[string]int{"long": c.trained("long", 2)}
	c.kill("up", syscall.SIGKILL)
	c.cut("JOBS", 2000)
	c.remove("models")
	c.start("up")
	said := ""
	c.eventually("the damage is told", func() error {
		_, said = c.command("repair", "--check", "--nats", c.url(), "--data-dir", c.data)
		if !strings.Contains(said, "its newest messages are lost") {
			return errors.New(said)
		}
		return nil
	})
	c.same("damaged", before)
	code, repaired := c.command("repair", "--nats", c.url(), "--data-dir", c.data)
	if code != 0 {
		t.Errorf("repair: exit %d: %s", code, repaired)
	}
	jobs := c.await("the job goes on and ends", allEnded(1))
	if j := jobs["long"]; j.State != train.StateSucceeded || j.EpochsDone != epochs["long"] || j.Restarts > 0 {
		t.Errorf("%s after %d epochs and %d restarts: %s", j.State, j.EpochsDone, j.Restarts, j.Message)
	}
	c.eventually("nothing is wrong any more", func() error {
		if code, out := c.command("repair", "--check", "--nats", c.url(), "--data-dir", c.data); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	log, err := os.ReadFile(filepath.Join(c.dir, "up.log"))
	if err != nil {
		t.Fatal(err)
	}
	// Who notices the lost bucket first puts it back: the services, or the repair.
	if !strings.Contains(string(log), "a bucket was lost, and was restored from a snapshot") && !strings.Contains(repaired, "what it lacks is put back from the newest snapshot") {
		t.Errorf("nobody restores the bucket: %s", repaired)
	}
	for _, want := range []string{"the bus has lost data", "nats-server"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// cut removes the end of what a stream has on the disk, and its index.
func (c *cluster) cut(stream string, bytes int64) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.data, "bus", "jetstream", "*", "streams", stream, "msgs", "*"))
	if err != nil || len(found) == 0 {
		c.t.Fatalf("the files of %s: %v, %v", stream, found, err)
	}
	for _, path := range found {
		info, err := os.Stat(path)
		if err == nil && strings.HasSuffix(path, ".blk") {
			err = os.Truncate(path, info.Size()-bytes)
		} else if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}
