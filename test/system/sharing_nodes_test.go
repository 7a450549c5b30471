package system

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Two jobs over two nodes share a GPU of each: the machine presents itself as both. A worker of one is killed on the
// second node; its job goes on from its checkpoint beside the other, which trains on. A third that fits beside them on
// neither node waits. Each node meters both jobs, as much of its GPU each.
func TestJobsOverTwoNodesShareTheirGPUs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	gpus := []string{"--device-kind", "gpu", "--sim-gpus", "1", "--sim-gpu-memory", "16", "--sim-gpu-watts", "300", "--meter-interval", "200ms"}
	c.flags = append([]string{"--node", "n0"}, gpus...)
	c.start("up")
	c.connect()
	second := settings.Words(append([]string{
		"--nats", c.url(), "--keys", string(c.keys()), "--data-dir", c.data + "-n1", "--http", "127.0.0.1:0", "--node", "n1", "--machine", "n0",
	}, gpus...)...)
	c.run("nodeagent-n1", filepath.Join(binaries, "nodeagent"), second.Flags, second.Environ)
	c.await("both nodes are known", func(map[train.JobID]train.Job) bool {
		_, out := c.command("node", "list", "-o", "json")
		return strings.Contains(out, `"n0"`) && strings.Contains(out, `"n1"`)
	})
	submit := func(id train.JobID, gib int64, devices int) {
		t.Helper()
		c.submitSpec(id, train.Spec{
			Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "2ms"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
			BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: endless, MinDevices: devices, MaxDevices: devices, AllowSharing: true, EstimatedMemoryMiB: gib << 10,
		})
	}
	submit("wide", 10, 2)
	c.await("one job over both nodes", func(jobs map[train.JobID]train.Job) bool { return jobs["wide"].EpochsDone >= 1 })
	submit("broad", 5, 2)
	c.await("two jobs over both nodes", func(jobs map[train.JobID]train.Job) bool {
		return jobs["wide"].EpochsDone >= 2 && jobs["broad"].EpochsDone >= 2
	})
	submit("third", 4, 1)
	c.await("the reason why the third waits", func(jobs map[train.JobID]train.Job) bool { return jobs["third"].Reason == "WaitingForMemory" })
	c.sharesTwoNodes("wide", 10, 1)
	c.sharesTwoNodes("broad", 5, 1)

	before := c.epochsDone("wide", "broad")
	pid := c.rankOf("broad", 1)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.await("the killed job goes on beside the other", func(jobs map[train.JobID]train.Job) bool {
		return jobs["broad"].Attempt == 2 && jobs["broad"].EpochsDone >= before["broad"]+2 && jobs["wide"].EpochsDone > before["wide"]
	})
	c.sharesTwoNodes("wide", 10, 1)
	c.sharesTwoNodes("broad", 5, 2)
	if _, out := c.command("describe", "broad"); !strings.Contains(out, "5.0 GiB of gpu:0 of node n0 and 5.0 GiB of gpu:0 of node n1") || !strings.Contains(out, "beside wide: predicted at") {
		t.Errorf("describe broad:\n%s", out)
	}
	for _, node := range []train.NodeID{"n0", "n1"} {
		c.eventually("both jobs are metered alike on "+string(node), func() error { return c.meteredAlike(node, "broad", "wide") })
	}
	for _, id := range []string{"third", "wide", "broad"} {
		if code, out := c.command("cancel", id); code != 0 {
			t.Errorf("cancel %s: exit %d: %s", id, code, out)
		}
	}
	c.await("all have ended", func(jobs map[train.JobID]train.Job) bool {
		return !slices.ContainsFunc([]train.JobID{"third", "wide", "broad"}, func(id train.JobID) bool { return !jobs[id].State.Terminal() })
	})
}

// sharesTwoNodes fails unless a job runs in the given attempt with so much of the GPU of each node.
func (c *cluster) sharesTwoNodes(id train.JobID, gib, attempt int) {
	c.t.Helper()
	part := func(node train.NodeID) train.Part {
		return train.Part{Node: node, Devices: []train.DeviceID{"gpu:0"}, Memory: unit.Bytes(gib) * unit.GiB}
	}
	if a := c.attempt(id); a.Number != attempt || !train.SamePlaces(a.Places(), []train.Part{part("n0"), part("n1")}) {
		c.t.Errorf("%s: attempt %d has %s, want %d GiB of each", id, a.Number, train.JoinPlaces(a.Places()), gib)
	}
}

// epochsDone returns the epochs that jobs have done.
func (c *cluster) epochsDone(ids ...train.JobID) map[train.JobID]int {
	c.t.Helper()
	jobs, err := c.register()
	if err != nil {
		c.t.Fatal(err)
	}
	done := map[train.JobID]int{}
	for _, id := range ids {
		done[id] = jobs[id].EpochsDone
	}
	return done
}

// rankOf returns the process of a rank of a job.
func (c *cluster) rankOf(id train.JobID, rank int) int {
	c.t.Helper()
	found := processes(func(proc string) bool {
		return names(proc, "environ", "TRAIN_LEDGER="+c.ledger) && names(proc, "environ", fmt.Sprintf("SWITCHYARD_JOB=%s\x00", id)) && names(proc, "environ", fmt.Sprintf("\x00RANK=%d\x00", rank))
	})
	if len(found) != 1 {
		c.t.Fatalf("rank %d of %s is %v", rank, id, found)
	}
	return found[0]
}

// meteredAlike returns an error unless the newest interval of a node attributes as much of its GPU to both jobs.
func (c *cluster) meteredAlike(node train.NodeID, x, y train.JobID) error {
	m, err := c.bus.Last(c.ctx, event.StreamSamples, event.Subject{Entity: "energy", ID: string(node), Fact: event.FactMeasured, Version: 1})
	if err != nil {
		return err
	}
	measured, err := event.Decode[event.Measured](m.Data)
	if err != nil {
		return err
	}
	uses := map[train.JobID]event.Use{}
	for _, u := range measured.Users {
		if u.Component == event.ComponentGPU && u.Device == "gpu:0" {
			uses[u.Job] = u
		}
	}
	length := measured.To.Sub(measured.From)
	if a, b := uses[x], uses[y]; len(uses) != 2 || a.Work != b.Work || !(a.Work > 0) || a.Work+b.Work > 1.01*length.Seconds() || a.ReservedRatio != 0.5 || b.ReservedRatio != 0.5 {
		return fmt.Errorf("in %s on %s: %+v", length.Round(time.Millisecond), node, uses)
	}
	return nil
}
