package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestARehearsalInWords(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	at := func(low, expected, high int) *train.Moment {
		second := func(n int) time.Time { return now.Add(time.Duration(n) * time.Second) }
		return &train.Moment{Expected: second(expected), Low: second(low), High: second(high)}
	}
	p := train.Predicted{Start: at(10, 20, 40), Finish: at(60, 380, 800)}
	r := rehearsal{SubmitResult: SubmitResult{ID: "x", Predicted: p}, Plan: &rpc.Outlook{
		Waiting:   &train.Waiting{Blockers: []train.Reason{{Message: "needs 1 device, 0 free"}}},
		Predicted: p, Before: []train.JobID{"a", "b", "c", "d", "e", "f"}, Holders: []train.JobID{"h"}, Starts: []train.JobID{"s"}, PowerWatts: 100,
		Moved: []rpc.Move{{Job: "m", Reason: train.Reason{Message: "makes room"}}},
	}}
	r.Energy = &energyOutlook{EnergyOutlook: *r.Plan.EnergyFrom(now)}
	r.Energy.cost(train.EnergyRates{Until: now.Add(time.Hour), Rates: []train.EnergyRate{{From: now.Add(-time.Hour), PricePerKWh: 0.5, GramsPerKWh: 400}}}, now)
	var b strings.Builder
	if err := r.write(&b, now); err != nil {
		t.Fatal(err)
	}
	want := `job x would be admitted
  starts    in 20s (10s to 40s)
  waits     needs 1 device, 0 free
  behind    a, b, c, d, e, and 1 more in the queue
  devices   held by h
  ends      in 6m20s (1m00s to 13m20s)
  energy    up to 10.0 Wh (1.39 Wh to 21.1 Wh), modelled: 100 W while it runs
  cost      0.005 by the rate of now
  CO2       4 g by the rate of now
  others    s would start now, too
  others    m would leave its devices: makes room
nothing was submitted
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	late := energyOutlook{EnergyOutlook: *r.Plan.EnergyFrom(now)}
	late.cost(train.EnergyRates{Until: now, Rates: []train.EnergyRate{{From: now.Add(-time.Hour), PricePerKWh: 0.5}}}, now)
	if late.Price != nil || (rpc.Outlook{PowerWatts: 1}).EnergyFrom(now) != nil {
		t.Error("a rate that has ended, or a run of unknown length, gives a cost")
	}
}
