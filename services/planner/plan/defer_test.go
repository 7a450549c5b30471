package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
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
			if w.Blockers[0].Code != ReasonPostponed || w.StartInSeconds != float64(60*(120-at)) || !strings.Contains(w.Blockers[0].Message, "2030-01-01T02:00:00Z") {
				t.Fatalf("%s: minute %d: %+v", name, at, w)
			}
		}
	}
}
