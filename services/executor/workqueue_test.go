package executor

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// A pass compares only a few jobs. Whatever happened in whatever order, comparing all jobs would find nothing more to
// do.
func TestNothingIsLeftOutOfAPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newQueueWorld()
		w.pass(t, time.Minute) // all are looked at once
		t.Repeat(map[string]func(*rapid.T){
			"job": func(t *rapid.T) {
				id := w.draw(t)
				j := w.c.record(id)
				j.ID, j.State = id, rapid.SampledFrom([]train.State{train.StateQueued, train.StateRunning, train.StateQueued, train.StateFailed}).Draw(t, "state")
				j.CancelRequested = rapid.IntRange(0, 9).Draw(t, "cancel") == 0
				w.c.onJob(bus.Entry[*train.Job]{Key: string(id), Value: &j, Revision: w.next()}, rapid.IntRange(0, 19).Draw(t, "deleted") == 0)
			},
			"attempt": func(t *rapid.T) { w.attempt(t) },
			"report": func(t *rapid.T) {
				id := w.draw(t)
				r := train.AttemptReport{Job: id, Attempt: w.c.attempts[id].Value.Number, Spoke: true, StopAnswered: rapid.Bool().Draw(t, "answered"), EpochsDone: rapid.IntRange(0, 3).Draw(t, "epochs")}
				w.c.onReport(bus.Entry[train.AttemptReport]{Key: fmt.Sprintf("%s.%d", id, r.Attempt), Value: r, Revision: w.next()}, false)
			},
			"node": func(t *rapid.T) {
				w.node(rapid.SampledFrom([]train.NodeID{"n1", "n2"}).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "gone") == 0)
			},
			"plan": func(t *rapid.T) { w.c.follow(w.drawPlan(t)) },
			"pass": func(t *rapid.T) {
				w.pass(t, time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds"))*time.Second)
			},
		})
	})
}

// queueWorld is a cache with records that the test writes.
type queueWorld struct {
	c        *cache
	now      time.Time
	revision uint64
}

func newQueueWorld() *queueWorld {
	w := &queueWorld{c: newCache(diff.Realm{Realm: train.Realm{Backend: train.BackendKubernetes}}), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, id := range []train.NodeID{"n1", "n2"} {
		w.node(id, false)
	}
	for i := range 5 {
		id := train.JobID(fmt.Sprintf("j%d", i))
		w.c.onJob(bus.Entry[*train.Job]{Key: string(id), Value: &train.Job{ID: id, State: train.StateQueued}, Revision: w.next()}, false)
	}
	return w
}

func (w *queueWorld) next() uint64 {
	w.revision++
	return w.revision
}

func (w *queueWorld) node(id train.NodeID, gone bool) {
	n := train.Node{ID: id, Backend: train.BackendKubernetes}
	for _, d := range []train.DeviceID{"gpu:0", "gpu:1"} {
		n.Devices = append(n.Devices, train.Device{ID: d, Kind: train.KindGPU, Memory: deviceMemory})
	}
	w.c.onNode(bus.Entry[train.Node]{Key: string(id), Value: n}, gone)
}

// deviceMemory is the memory of a device.
const deviceMemory = 16 * unit.GiB

func (w *queueWorld) draw(t *rapid.T) train.JobID {
	return train.JobID(fmt.Sprintf("j%d", rapid.IntRange(0, 4).Draw(t, "job")))
}

func drawParts(t *rapid.T) []train.Part {
	device := rapid.SampledFrom([]train.DeviceID{"gpu:0", "gpu:1"})
	nodes := rapid.SampledFrom([][]train.NodeID{{"n1"}, {"n2"}, {"n1", "n2"}}).Draw(t, "nodes")
	var parts []train.Part
	for _, n := range nodes {
		parts = append(parts, train.Part{Node: n, Devices: rapid.SliceOfNDistinct(device, 1, 2, rapid.ID[train.DeviceID]).Draw(t, "devices")})
	}
	if len(train.NodeDevices(parts)) == 1 {
		parts[0].Memory = rapid.SampledFrom([]unit.Bytes{0, 4 * unit.GiB, 8 * unit.GiB}).Draw(t, "part")
	}
	return parts
}

// drawPlan gives no device to two jobs unless it has memory for both. A plan that does so is handled at the next look
// at all jobs.
func (w *queueWorld) drawPlan(t *rapid.T) train.Plan {
	given := map[train.NodeDevice]unit.Bytes{}
	p := train.Plan{Generation: w.c.plan.plan.Generation + uint64(rapid.IntRange(0, 2).Draw(t, "newer"))}
	for i := range 5 {
		if rapid.Bool().Draw(t, "gets") {
			a := train.Allocation{Job: train.JobID(fmt.Sprintf("j%d", i)), Parts: drawParts(t)}
			devices := train.NodeDevices(a.Parts)
			asked := cmp.Or(a.Parts[0].Memory, deviceMemory)
			if slices.ContainsFunc(devices, func(at train.NodeDevice) bool { return given[at]+asked > deviceMemory }) {
				continue
			}
			for _, at := range devices {
				given[at] += asked
			}
			p.Allocations = append(p.Allocations, a)
		}
	}
	return p
}

// attempt changes the record of an attempt to any possible value, or deletes it.
func (w *queueWorld) attempt(t *rapid.T) {
	id := w.draw(t)
	if rapid.IntRange(0, 9).Draw(t, "deleted") == 0 {
		w.c.onAttempt(bus.Entry[train.Attempt]{Key: string(id), Revision: w.next()}, true)
		return
	}
	a := w.c.attempts[id].Value
	a.Job, a.Backend = id, train.BackendKubernetes
	switch {
	case a.Phase == train.PhaseClaimed && rapid.Bool().Draw(t, "runs"):
		a.Phase, a.StartedAt = train.PhaseRunning, w.now
	case a.Live() && rapid.Bool().Draw(t, "stops"):
		a.Stop, a.StopSince = train.StopPreempt, w.now
	case a.Live():
		a.Phase, a.Exit, a.ExitedAt = train.PhaseExited, &train.Exit{Lost: rapid.Bool().Draw(t, "lost")}, w.now
	case a.Number > 0 && a.Outcome == train.OutcomeNone:
		a.Outcome, a.NotBefore = train.OutcomeRecovering, w.now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "delay"))*time.Second)
	case a.Number > 0 && !a.Published:
		a.Published = true
	default:
		parts := drawParts(t)
		if i, planned := w.c.plan.at[id]; planned && rapid.IntRange(0, 3).Draw(t, "as planned") > 0 {
			parts = w.c.plan.plan.Allocations[i].Places()
		}
		a = train.Attempt{Job: id, Number: a.Number + 1, Backend: train.BackendKubernetes, Phase: train.PhaseClaimed, Generation: w.c.plan.plan.Generation}
		a.SetPlaces(parts)
	}
	w.c.onAttempt(bus.Entry[train.Attempt]{Key: string(id), Value: a, Revision: w.next()}, false)
}

// pass advances the time and compares a few jobs, then all. The actions need not be carried out: they come again.
func (w *queueWorld) pass(t *rapid.T, after time.Duration) {
	w.now = w.now.Add(after)
	limits := diff.Limits{StopGrace: time.Minute}
	few := w.c.take(w.now)
	actions := w.c.actions(few, w.now, limits, nil)
	held := w.c.tally.held
	w.c.tally.held = train.Occupancy{}
	for _, e := range w.c.attempts {
		if e.Value.Live() {
			w.c.tally.held.Take(e.Value.Places())
		}
	}
	if fmt.Sprint(held) != fmt.Sprint(w.c.tally.held) {
		t.Fatalf("devices held: %v, counted from all attempts: %v", held, w.c.tally.held)
	}
	var every []train.JobID
	for i := range 5 {
		every = append(every, train.JobID(fmt.Sprintf("j%d", i)))
	}
	for _, a := range diff.Actions(w.c.state(every, w.now, nil), limits) {
		found := slices.ContainsFunc(actions, func(b diff.Action) bool { return a.Kind == b.Kind && a.Job == b.Job })
		if !found && !slices.Contains(few, a.Job) {
			t.Fatalf("%s %s is left out; looked at %v", a.Kind, a.Job, few)
		}
	}
	for _, a := range actions {
		w.c.queue.addAt(a.Job, w.now)
	}
}

func TestAFreedDeviceQueuesTheJobThatGetsIt(t *testing.T) {
	w := newQueueWorld()
	parts := []train.Part{{Node: "n1", Devices: []train.DeviceID{"gpu:0"}}}
	holds := train.Attempt{Job: "j0", Number: 1, Backend: train.BackendKubernetes, Phase: train.PhaseRunning}
	holds.SetPlaces(parts)
	w.c.store(holds, w.next())
	w.c.follow(train.Plan{Generation: 1, Allocations: []train.Allocation{{Job: "j1", Parts: parts}}})
	if got := w.starts(); len(got) != 0 {
		t.Fatalf("%v start on a device that j0 holds", got)
	}
	holds.Phase = train.PhaseExited
	w.c.store(holds, w.next())
	if got := w.starts(); !slices.Equal(got, []train.JobID{"j1"}) {
		t.Fatalf("%v start when j0 has exited", got)
	}
}

func TestANewNodeQueuesAllJobs(t *testing.T) {
	w := newQueueWorld()
	w.c.follow(train.Plan{Generation: 1, Allocations: []train.Allocation{{Job: "j1", Node: "n3", Devices: []train.DeviceID{"gpu:0"}}}})
	if got := w.starts(); len(got) != 0 {
		t.Fatalf("%v start on an unknown node", got)
	}
	w.node("n3", false)
	if got := w.starts(); !slices.Equal(got, []train.JobID{"j1"}) {
		t.Fatalf("%v start when the node is there", got)
	}
	if got := w.c.take(w.now); len(got) != 0 {
		t.Fatalf("%v are looked at again although nothing happened", got)
	}
}

// A job may be waiting for a device that a known node gets later.
func TestANewDeviceQueuesAllJobs(t *testing.T) {
	w := newQueueWorld()
	w.c.follow(train.Plan{Generation: 1, Allocations: []train.Allocation{{Job: "j1", Node: "n1", Devices: []train.DeviceID{"gpu:7"}, Memory: unit.GiB}}})
	if got := w.starts(); len(got) != 0 {
		t.Fatalf("%v start on an unknown device", got)
	}
	n := w.c.realm.Nodes["n1"]
	n.Devices = append(slices.Clone(n.Devices), train.Device{ID: "gpu:7", Memory: deviceMemory})
	w.c.onNode(bus.Entry[train.Node]{Key: "n1", Value: n, Revision: w.next()}, false)
	if got := w.starts(); !slices.Equal(got, []train.JobID{"j1"}) {
		t.Fatalf("%v start when the device is there", got)
	}
}

// A pod that was asked to leave sends no event by itself, but the plan that wants it to stay queues its job.
func TestAPlanThatWithdrawsAStopQueuesTheJob(t *testing.T) {
	w := newQueueWorld()
	parts := []train.Part{{Node: "n1", Devices: []train.DeviceID{"gpu:0"}}}
	leaves := train.Attempt{Job: "j0", Number: 1, Backend: train.BackendKubernetes, Phase: train.PhaseRunning, Generation: 1, Stop: train.StopPreempt, StopSince: w.now}
	leaves.SetPlaces(parts)
	w.c.store(leaves, w.next())
	w.c.follow(train.Plan{Generation: 2})
	w.c.take(w.now)
	w.c.follow(train.Plan{Generation: 3, Allocations: []train.Allocation{{Job: "j0", Parts: parts}}})
	actions := w.c.actions(w.c.take(w.now), w.now, diff.Limits{StopGrace: time.Minute}, nil)
	if len(actions) != 1 || actions[0].Kind != diff.WithdrawStop {
		t.Errorf("actions %+v, want the stop taken back", actions)
	}
}

// starts returns the jobs that a pass starts now.
func (w *queueWorld) starts() []train.JobID {
	var jobs []train.JobID
	for _, a := range w.c.actions(w.c.take(w.now), w.now, diff.Limits{StopGrace: time.Minute}, nil) {
		if a.Kind == diff.Start {
			jobs = append(jobs, a.Job)
		}
	}
	return jobs
}

func TestStartsArePutOffInPortions(t *testing.T) {
	p := newCache(diff.Realm{Realm: train.Realm{Backend: train.BackendKubernetes}})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.take(now)
	var starts []diff.Action
	for i := range 2*startsPerPass + 3 {
		starts = append(starts, diff.Action{Job: train.JobID(fmt.Sprint(i))})
	}
	p.queue.postpone(starts)
	p.queue.add("urgent")
	for _, want := range []int{startsPerPass + 1, startsPerPass, 3, 0} {
		if got := p.take(now); len(got) != want {
			t.Fatalf("%d jobs in a pass, want %d", len(got), want)
		}
	}
}

// BenchmarkPass measures the deciding part of a pass with 10,000 running attempts: after an event of one job, and for
// all.
func BenchmarkPass(b *testing.B) {
	const jobs = 10_000
	p := newCache(diff.Realm{Realm: train.Realm{Backend: train.BackendKubernetes}})
	plan := train.Plan{Generation: 1}
	for i := range jobs {
		id, node := train.JobID(fmt.Sprintf("j%d", i)), train.NodeID(fmt.Sprintf("n%d", i/8))
		devices := []train.DeviceID{train.DeviceID(fmt.Sprintf("gpu:%d", i%8))}
		plan.Allocations = append(plan.Allocations, train.Allocation{Job: id, Node: node, Devices: devices})
		p.onNode(bus.Entry[train.Node]{Key: string(node), Value: train.Node{ID: node, Backend: train.BackendKubernetes}}, false)
		p.onJob(bus.Entry[*train.Job]{Key: string(id), Value: &train.Job{ID: id, State: train.StateRunning}, Revision: 1}, false)
		p.store(train.Attempt{Job: id, Number: 1, Backend: train.BackendKubernetes, Phase: train.PhaseRunning, Generation: 1, Node: node, Devices: devices}, 1)
	}
	p.follow(plan)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.take(now)
	for name, change := range map[string]func(){
		"one": func() { p.queue.add("j4711") },
		"all": func() { p.queue.resync = now },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				change()
				if actions := p.actions(p.take(now), now, diff.Limits{StopGrace: time.Minute}, nil); len(actions) > 0 {
					b.Fatalf("something to do: %v", actions)
				}
			}
		})
	}
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			plan.Generation++
			p.follow(plan)
		}
	})
}
