package planner

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestARunningJobIsProfiled has a planner take over at every step. The test plays the job and the ledger.
func TestARunningJobIsProfiled(t *testing.T) {
	b := newBench(t)
	courses, limits := openKV[train.Course](b, event.BucketLedger), openKV[train.PowerLimit](b, event.BucketPowerLimits)
	look, now := newPicture(), time.Unix(1_000_000, 0)
	job := admitted("j", 1)
	job.Spec.Energy = &train.EnergySpec{Eta: new(1.0), Group: "nightly"}
	job.State = train.StateRunning
	attempt := train.Attempt{Job: "j", Number: 1, Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning}
	look.seeJob(bus.Entry[train.Job]{Key: "j", Value: job}, false)
	look.seeAttempt(bus.Entry[train.Attempt]{Key: "j", Value: attempt}, false)
	hurried, other := admitted("hurried", 1), attempt
	other.Job, other.Devices = "hurried", []train.DeviceID{"gpu:1"}
	look.seeJob(bus.Entry[train.Job]{Key: "hurried", Value: hurried}, false)
	look.seeAttempt(bus.Entry[train.Attempt]{Key: "hurried", Value: other}, false)
	pass := func(watts ...float64) {
		t.Helper()
		p, err := newPowerLimits(b.ctx, b.bus, slog.New(slog.DiscardHandler), look, watts, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.now = func() time.Time { return now }
		if err := p.pass(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	course := train.Course{Job: "j"}
	for _, want := range []float64{300, 200, 100, 200} {
		pass(200, 300, 100)
		limit, err := limits.Get(b.ctx, "j")
		if err != nil || limit.Value.Watts != want || limit.Value.Attempt != 1 {
			t.Fatalf("the limit is %+v, not %g W: %v", limit.Value, want, err)
		}
		for range 2 {
			now = now.Add(10 * time.Second)
			used := map[float64]unit.Energy{300: 3000, 200: 2000, 100: 2500}[limit.Value.Watts]
			course.Mark(train.EpochEnergy{Attempt: 1, EpochsDone: course.EpochsDone + 1, At: now, Energy: course.Marked + used*unit.Joule}, 0)
		}
		put(b, courses, "course.j", course)
	}
	if _, err := limits.Get(b.ctx, "hurried"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a job whose energy does not count has a limit: %v", err)
	}
	next, another := job, attempt
	next.ID, another.Job, another.Devices = "next", "next", []train.DeviceID{"gpu:2"}
	sharer, beside := job, other
	sharer.ID, beside.Job = "sharer", "sharer"
	look.seeJob(bus.Entry[train.Job]{Key: "sharer", Value: sharer}, false)
	look.seeAttempt(bus.Entry[train.Attempt]{Key: "sharer", Value: beside}, false)
	look.seeJob(bus.Entry[train.Job]{Key: "next", Value: next}, false)
	look.seeAttempt(bus.Entry[train.Attempt]{Key: "next", Value: another}, false)
	pass(200, 300, 100)
	if limit, err := limits.Get(b.ctx, "next"); err != nil || limit.Value.Watts != 200 {
		t.Errorf("the next of the group has %+v, %v", limit.Value, err)
	}
	if _, err := limits.Get(b.ctx, "sharer"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a job that shares its device has a limit: %v", err)
	}
	job.State = train.StateSucceeded
	look.seeJob(bus.Entry[train.Job]{Key: "j", Value: job}, false)
	pass(200, 300, 100)
	if _, err := limits.Get(b.ctx, "j"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("an ended job has a limit: %v", err)
	}
}

// TestLimitsOfAnEarlierPlannerAreWithdrawn starts one that sets none.
func TestLimitsOfAnEarlierPlannerAreWithdrawn(t *testing.T) {
	b := newBench(t)
	limits := openKV[train.PowerLimit](b, event.BucketPowerLimits)
	put(b, limits, "j", train.PowerLimit{Job: "j", Attempt: 1, Watts: 100})
	b.serve()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	gone := false
	_ = limits.Watch(ctx, func(e bus.Entry[train.PowerLimit], deleted bool) {
		if deleted {
			gone = true
			cancel()
		}
	}, nil)
	if !gone {
		t.Error("the limit is still there")
	}
}
