package jobs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A third job joins two only after a measurement showed that such jobs get on. The three are tuned and settle; one of
// them is killed, starts again, and all settle once more. The measurements of two and of three together are kept.
func TestJobsThatShareAreTunedThroughAKill(t *testing.T) {
	y := newYard(t)
	y.start("planner")
	y.start("profiler")
	// Passes that mostly sleep take as long beside others as alone, however busy the machine is.
	alike := func(s *train.Spec) {
		s.Command, s.BatchSize, s.TrainingSetSize, s.MaxDevices = append(s.Command, "-slow-by", "20ms"), 2, 500, 1
	}
	sharing := func(s *train.Spec) {
		alike(s)
		s.AllowSharing, s.EstimatedMemoryMiB = true, 5<<10
	}
	const endless = 1_000_000
	ahead := 80
	y.submit("whole", endless, 1, func(s *train.Spec) { alike(s); s.Priority = &ahead })
	y.running("whole", 1) // to the end: nobody gets its device instead of a place beside others
	y.submit("one", endless, 1, sharing)
	y.running("one", 1)
	y.submit("two", endless, 1, sharing)
	y.running("two", 1)
	y.submit("three", endless, 1, sharing)
	y.job("three", "the reason why it waits", func(j train.Job) bool { return j.Reason == "SlowTogether" })
	device := y.running("three", 1).Devices[0]
	for _, id := range []train.JobID{"one", "two", "three"} {
		if units := y.units(string(id)+"-1-0", device); units != "5" {
			t.Errorf("%s asks for %q units of %s, want 5", id, units, device)
		}
	}
	before := y.settled(device, map[train.JobID]int{"one": 1, "two": 1, "three": 1})

	y.kubectl("delete", "pod", "two-1-0", "-n", y.namespace, "--wait=false", "--force", "--grace-period=0")
	after := y.settled(device, map[train.JobID]int{"one": 1, "two": 2, "three": 1})
	if after.Generation <= before.Generation {
		t.Errorf("settled in generation %d, before the kill in %d", after.Generation, before.Generation)
	}
	for _, id := range []train.JobID{"one", "three"} {
		if j := y.state(id, train.StateRunning); j.Attempt != 1 || j.Recoveries != 0 {
			t.Errorf("%s is disturbed: attempt %d, %d recoveries", id, j.Attempt, j.Recoveries)
		}
	}

	kind := curve.KindOf(y.state("one", train.StateRunning).Spec)
	y.until("it is known how two and how three such jobs get on", func() bool {
		known := y.interference(device).Known
		return known.Measurements(kind, []curve.Kind{kind}) > 0 && known.Measurements(kind, []curve.Kind{kind, kind}) > 0
	})
	if out := y.describe("one"); !strings.Contains(out, "beside three, two: predicted at ") || !strings.Contains(out, " measured ") {
		t.Errorf("describe one:\n%s", out)
	}
	for _, id := range []train.JobID{"whole", "one", "two", "three"} {
		y.cancel(id)
	}
	y.nothingLeft()
}

// settled waits until these attempts share a device, have been tuned and follow the desired micro-batches, and checks
// that describe shows it.
func (y *yard) settled(device train.DeviceID, attempts map[train.JobID]int) train.Tuning {
	y.t.Helper()
	kv, err := bus.OpenKV(y.ctx, y.bus, contract.Tunings)
	y.must(err)
	var tuning train.Tuning
	y.until(fmt.Sprintf("%v have settled", attempts), func() bool {
		e, err := kv.Get(y.ctx, train.TuningKey("node1", device))
		tuning = e.Value
		if err != nil || tuning.Settled.Code == "" || len(tuning.Tenants) != len(attempts) {
			return false
		}
		for id, number := range attempts {
			if !y.follows(tuning, id, number) {
				return false
			}
		}
		return true
	})
	y.t.Logf("generation %d after %d trials: %s", tuning.Generation, tuning.Tried, tuning.Settled)
	if tuning.Tried != 8 {
		y.t.Errorf("%d trials of 8 combinations", tuning.Tried)
	}
	list := y.switchyard("ps", "-A")
	for _, one := range tuning.Tenants {
		if want, out := fmt.Sprintf("(generation %d, 8 trials)", tuning.Generation), y.describe(one.Job); !strings.Contains(out, want) {
			y.t.Errorf("describe %s, want %q:\n%s", one.Job, want, out)
		}
		listed := false
		for line := range strings.Lines(list) {
			words := strings.Fields(line)
			listed = listed || words[0] == string(one.Job) && words[len(words)-1] == one.String()
		}
		if !listed {
			y.t.Errorf("ps does not show %s of %s:\n%s", one, one.Job, list)
		}
	}
	return tuning
}

// follows reports whether the newest heartbeat of a job's attempt has the desired micro-batch.
func (y *yard) follows(t train.Tuning, id train.JobID, number int) bool {
	m, err := y.bus.Last(y.ctx, event.StreamSamples,
		event.Subject{Entity: "sample", ID: string(id), Fact: event.FactStepped, Version: 1})
	if err != nil {
		return false
	}
	beat, err := event.Decode[event.Stepped](m.Data)
	wanted, tuned := t.Of(id, number)
	return err == nil && tuned && beat.Attempt == number && beat.MicroBatch == wanted.MicroBatch && beat.Generation == t.Generation
}

// interference returns the interference record of devices like one of the node's.
func (y *yard) interference(device train.DeviceID) curve.InterferenceRecord {
	y.t.Helper()
	node, err := y.node()
	y.must(err)
	kv, err := bus.OpenKV(y.ctx, y.bus, contract.Interference)
	y.must(err)
	for i, d := range node.Devices {
		if d.ID == device {
			e, err := kv.Get(y.ctx, curve.InterferenceKey(&node.Devices[i]))
			y.must(err)
			return e.Value
		}
	}
	y.t.Fatalf("node1 has no %s", device)
	return curve.InterferenceRecord{}
}
