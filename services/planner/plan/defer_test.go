package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/queue"
)

func nightTime(minutes int) time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute)
}

// TestJobsWithSlackWaitForBetterEnergy decides every ten minutes: the job starts in the cheapest hour and then runs on,
// and the others never wait for it.
func TestJobsWithSlackWaitForBetterEnergy(t *testing.T) {
	spec := train.Spec{Name: "x", BatchSize: 1, TrainingSetSize: 10, MaxEpochs: 5, EstimatedHours: 1}
	startBy := nightTime(300)
	patient := spec
	patient.Energy = &train.EnergySpec{StartBy: &startBy}
	s := State{
		Nodes: []train.Node{{ID: "a", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}, {ID: "gpu:1", Kind: train.KindGPU}}}},
		Rates: Rates{
			{From: nightTime(0), Cost: 4}, {From: nightTime(60), Cost: 2}, {From: nightTime(120), Cost: 1}, {From: nightTime(180), Cost: 3}, {From: nightTime(360)},
		},
		Jobs: []Job{{ID: "patient", Spec: patient.WithDefaults()}, {ID: "other", Spec: spec.WithDefaults()}},
	}
	for name, policy := range Policies() {
		now := s
		now.Jobs = append([]Job(nil), s.Jobs...)
		for at := 0; at <= 240; at += 10 {
			now.Now = nightTime(at)
			made := Decide(now, policy)
			a, placed := made.Find("patient")
			if placed != (at >= 120) || len(made.Allocations)+len(made.Waiting) != 2 {
				t.Fatalf("%s: minute %d: %+v", name, at, made)
			}
			if placed {
				now.Jobs[0].Planned = &Holding{Node: a.Node, Devices: a.Devices}
				continue
			}
			w := made.Waiting[0]
			if w.Blockers[0].Code != queue.Postponed || w.StartInSeconds != float64(60*(120-at)) || !strings.Contains(w.Blockers[0].Message, "2030-01-01T02:00:00Z") {
				t.Fatalf("%s: minute %d: %+v", name, at, w)
			}
		}
	}
}

// The weighed cost has no unit, so the reason gives the price and the carbon.
func TestTheGainOfWaiting(t *testing.T) {
	startBy := nightTime(300)
	spec := train.Spec{Name: "x", EstimatedHours: 1, Energy: &train.EnergySpec{StartBy: &startBy}}.WithDefaults()
	for want, later := range map[string]Rate{
		"starts at 2030-01-01T01:00:00Z: 67 % cheaper, 0 % less CO2e":  {PricePerKWh: 0.1, GramsPerKWh: 100},
		"starts at 2030-01-01T01:00:00Z: 67 % cheaper, 20 % more CO2e": {PricePerKWh: 0.1, GramsPerKWh: 120},
		"starts at 2030-01-01T01:00:00Z: 10 % dearer, 90 % less CO2e":  {PricePerKWh: 0.33, GramsPerKWh: 10},
	} {
		later.From, later.Cost = nightTime(60), 1
		made := Decide(State{
			Now: nightTime(0), Nodes: []train.Node{{ID: "a", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}}},
			Rates: Rates{{From: nightTime(0), Cost: 2, PricePerKWh: 0.3, GramsPerKWh: 100}, later, {From: nightTime(360)}},
			Jobs:  []Job{{ID: "patient", Spec: spec}},
		}, FIFO{})
		if len(made.Waiting) != 1 || made.Waiting[0].Blockers[0].Message != want {
			t.Errorf("%+v, want %s", made.Waiting, want)
		}
	}
}

// TestAJobIsNotPostponedBeyondItsDeadline: it starts when its energy costs least among the starts that meet it.
func TestAJobIsNotPostponedBeyondItsDeadline(t *testing.T) {
	startBy := nightTime(150)
	for _, tc := range []struct{ deadline, start int }{{160, 100}, {180, 120}, {90, 30}, {60, 0}, {30, 0}} {
		deadline := nightTime(tc.deadline)
		spec := train.Spec{Name: "x", EstimatedHours: 1, Deadline: &deadline, Energy: &train.EnergySpec{StartBy: &startBy}}
		made := Decide(State{
			Nodes: []train.Node{{ID: "a", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}}},
			Rates: Rates{{From: nightTime(0), Cost: 4}, {From: nightTime(60), Cost: 2}, {From: nightTime(120), Cost: 1}, {From: nightTime(360)}},
			Jobs:  []Job{{ID: "a", Spec: spec.WithDefaults()}},
			Now:   nightTime(0),
		}, Switchyard{})
		if _, placed := made.Find("a"); placed != (tc.start == 0) || !placed && made.Waiting[0].StartInSeconds != float64(60*tc.start) {
			t.Errorf("deadline in %d min: has devices %t, waits: %+v; want a start in %d min", tc.deadline, placed, made.Waiting, tc.start)
		}
	}
}

// TestAnArrayRunsSoManyAtOnce: jobs that hold devices count first, then those that have waited longest; a job that
// people hold takes no place.
func TestAnArrayRunsSoManyAtOnce(t *testing.T) {
	node := train.Node{ID: "a"}
	for _, id := range []train.DeviceID{"gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:4"} {
		node.Devices = append(node.Devices, train.Device{ID: id, Kind: train.KindGPU})
	}
	member := func(id train.JobID, array train.JobID, minutes int) Job {
		return Job{ID: id, SubmittedAt: nightTime(minutes), Spec: train.Spec{ArrayMember: &train.ArrayMember{Array: array, AtOnce: 2}}.WithDefaults()}
	}
	s := State{Now: nightTime(10), Nodes: []train.Node{node}, Jobs: []Job{
		member("x-0", "x", 0), member("x-1", "x", 1), member("x-2", "x", 2), member("x-3", "x", 3), member("y-0", "y", 4),
		{ID: "free", SubmittedAt: nightTime(5), Spec: train.Spec{}.WithDefaults()},
	}}
	s.Jobs[0].Withheld = &train.Reason{Code: "Held"}
	s.Jobs[3].Planned = &Holding{Node: "a", Devices: []train.DeviceID{"gpu:0"}}
	for name, policy := range Policies() {
		made := Decide(s, policy)
		for id, want := range map[train.JobID]bool{"x-0": false, "x-1": true, "x-2": false, "x-3": true, "y-0": true, "free": true} {
			if _, placed := made.Find(id); placed != want {
				t.Errorf("%s: %s has devices: %t, want %t", name, id, placed, want)
			}
		}
		for _, w := range made.Waiting {
			if w.Job == "x-2" && (w.Blockers[0].Code != queue.ArrayLimit || w.Blockers[0].Message != "2 jobs of the array x run at once") {
				t.Errorf("%s: %+v", name, w.Blockers)
			}
		}
	}
}
