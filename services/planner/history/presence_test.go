package history

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

func TestDevicesAreGoneBetweenTheDecisionsThatMissThem(t *testing.T) {
	one, both, half := h100s("gpu1", 2), []train.Node{h100s("gpu1", 2), h100s("gpu2", 1)}, h100s("gpu1", 1)
	nodes, absences := presence([]Sighting{
		{moment(100), []train.Node{one}},
		{moment(400), both},
		{moment(600), []train.Node{half, both[1]}}, // gpu1 was silent for a moment: its idle device is not shown
		{moment(660), both},
		{moment(900), []train.Node{both[1]}},
		{moment(2000), []train.Node{both[1], half}},
	}, moment(0))
	if d := cmp.Diff(both, nodes); d != "" {
		t.Error(d)
	}
	want := []sim.Absence{
		{Node: "gpu1", Device: "gpu:0", FromSeconds: 900, UntilSeconds: 2000},
		{Node: "gpu1", Device: "gpu:1", FromSeconds: 900, UntilSeconds: math.Inf(1)},
		{Node: "gpu2", Device: "gpu:0", FromSeconds: math.Inf(-1), UntilSeconds: 400},
	}
	if d := cmp.Diff(want, absences); d != "" {
		t.Error(d)
	}
	if nodes, absences := presence(nil, moment(0)); len(nodes)+len(absences) > 0 {
		t.Errorf("of no sighting follows %v, %v", nodes, absences)
	}
}

// bundled writes the story with what two decisions saw into a bundle, and reads it back.
func (s *story) bundled(before []train.Node, seconds float64, after []train.Node) Live {
	s.t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, History{Manifest: Manifest{Version: bundleVersion, MadeAt: moment(5000)}, Facts: s.facts, Nodes: after}, true)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, nodes := range [][]train.Node{before, after} {
		in := decision.Input{Version: decision.InputVersion, Generation: uint64(i + 1), Policy: "fifo", DecidedAt: moment(seconds * float64(i)), State: plan.State{Nodes: nodes}}
		if err := w.Input(in); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
	h, err := ReadBundle(&file, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	live, err := h.Live()
	if err != nil {
		s.t.Fatal(err)
	}
	return live
}

// again simulates what was recorded by the policy that decided, with more nodes if any.
func (l Live) again(t *testing.T, more ...train.Node) sim.Result {
	t.Helper()
	r, err := sim.Run(sim.Config{
		Workload: l.Workload, Nodes: append(l.Nodes, more...), Absences: l.Absences, State: l.State, Policy: plan.FIFO{}, IntervalSeconds: 0.5,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// trains plays five epochs of a minute, from a start on.
func (s *story) trains(seconds float64, id train.JobID, number int, node train.NodeID, from int) {
	s.tell(seconds, id, event.FactStarted, event.Started{Attempt: number, Node: node, Devices: []train.DeviceID{"gpu:0"}})
	for done := from + 1; done <= 5; done++ {
		s.epoch(seconds+60*float64(done-from), id, number, done, 60)
	}
	s.tell(seconds+60*float64(5-from), id, event.FactSucceeded, event.Succeeded{Attempt: number, EpochsDone: 5})
}

func TestANodeThatJoinedHalfwayIsNotThereBefore(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", nil)
	s.admit(1, "b", nil)
	s.trains(0, "a", 1, "gpu1", 0)
	s.trains(200, "b", 1, "gpu2", 0)
	l := s.bundled([]train.Node{h100s("gpu1", 1)}, 200, []train.Node{h100s("gpu1", 1), h100s("gpu2", 1)})
	// b waits for the second node, which comes at 200 s; not for a, which ends at 300 s.
	r := l.again(t)
	if math.Abs(r.JCTs["a"]-300) > 2 || math.Abs(r.JCTs["b"]-l.Happened["b"].JCTSeconds) > 2 || l.Happened["b"].JCTSeconds != 499 {
		t.Errorf("simulated %v, happened %v", r.JCTs, l.Happened)
	}
	if got := l.again(t, h100s("added", 1)); math.Abs(got.JCTs["b"]-300) > 2 {
		t.Errorf("with a node more b takes %v s", got.JCTs["b"])
	}
	if r.GPUUtilisation < 0.7 || l.CameAndWent() != 1 {
		t.Errorf("the devices were busy for %v of the time in which they were there; %d nodes came or went", r.GPUUtilisation, l.CameAndWent())
	}
}

func TestANodeThatWasLostIsLostAgain(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", nil)
	s.admit(1, "b", nil)
	s.trains(0, "a", 1, "gpu1", 0)
	s.tell(1, "b", event.FactStarted, event.Started{Attempt: 1, Node: "gpu2", Devices: []train.DeviceID{"gpu:0"}})
	s.epoch(61, "b", 1, 1, 60)
	s.epoch(121, "b", 1, 2, 60)
	s.tell(170, "b", event.FactAttemptLost, event.AttemptLost{Attempt: 1, EpochsDone: 2})
	s.trains(300, "b", 2, "gpu1", 2)
	l := s.bundled([]train.Node{h100s("gpu1", 1), h100s("gpu2", 1)}, 170, []train.Node{h100s("gpu1", 1)})
	// b has two epochs and most of a third when its node is lost; it trains that one again when a has ended.
	r := l.again(t)
	if math.Abs(r.JCTs["b"]-479) > 2 || l.Happened["b"].JCTSeconds != 479 || r.Starts["b"] != 2 {
		t.Errorf("simulated %v, happened %v", r.JCTs, l.Happened)
	}
	// With a node more that is taken first, b never was where it is lost.
	if got := l.again(t, h100s("added", 1)); math.Abs(got.JCTs["b"]-300) > 2 {
		t.Errorf("with a node more b takes %v s", got.JCTs["b"])
	}
}

func TestAnOpaqueJobNeedsWhatItsLastAttemptTook(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "o", nil)
	s.start(0, "o", 1, 1)
	s.tell(100, "o", event.FactAttemptLost, event.AttemptLost{Attempt: 1})
	s.start(110, "o", 2, 1)
	s.tell(140, "o", event.FactSucceeded, event.Succeeded{Attempt: 2})
	if r := s.live().job(t, "o"); r.RunSeconds != 30 {
		t.Errorf("it runs %v s", r.RunSeconds)
	}
}
