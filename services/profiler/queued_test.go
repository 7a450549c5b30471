package profiler

import (
	"reflect"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAQueuedJobIsTaught: a job that waits is kept as its fact alone, gets a model as soon as its family has taught
// something, and is known in full from its start.
func TestAQueuedJobIsTaught(t *testing.T) {
	l, spec := newEstimator(), spec()
	spec.Family = "sweep"
	feed(t, l, event.JobFact("first", event.FactAdmitted, "admitted", event.Admitted{Spec: spec}))
	feed(t, l, event.JobFact("waits", event.FactAdmitted, "admitted", event.Admitted{Spec: spec}))
	if len(l.jobs) != 0 || l.size() != 2 || len(l.due(true)) != 0 {
		t.Fatalf("%d jobs in full of %d", len(l.jobs), l.size())
	}
	start := func(id train.JobID) {
		feed(t, l, event.JobFact(id, event.FactStarted, "attempt/1/started", event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"cpu:0"}}))
	}
	epoch := func(id train.JobID) {
		feed(t, l, event.JobFact(id, event.FactEpochEnded, "attempt/1/epoch/1", event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 3, StepSeconds: 0.1, Devices: 1}))
	}
	start("first")
	epoch("first")
	if due := l.due(true); !slices.Equal(due, []train.JobID{"first", "waits"}) || len(l.jobs) != 1 {
		t.Fatalf("%v are due, %d jobs are known in full", due, len(l.jobs))
	}
	out, known := l.update("waits")
	taught, _ := l.beginning(t.Context(), spec)
	untaught, _ := newEstimator().beginning(t.Context(), spec)
	taught.Job, untaught.Job = "waits", "waits"
	if !known || !reflect.DeepEqual(out.model, taught) || reflect.DeepEqual(out.model, untaught) {
		t.Errorf("known %t: %+v", known, out.model)
	}
	start("waits")
	epoch("waits")
	if out, known = l.update("waits"); !known || out.model.EpochsSeen != 1 || len(l.queued) != 0 {
		t.Errorf("known %t: %+v, %d are queued", known, out.model, len(l.queued))
	}
}
