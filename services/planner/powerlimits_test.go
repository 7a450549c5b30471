package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestARunningJobIsProfiled has a planner take over at every step. The test plays the job and the ledger.
func TestARunningJobIsProfiled(t *testing.T) {
	b := newBench(t)
	courses, limits := openKV(b, contract.EnergyProgress), openKV(b, contract.PowerLimits)
	known, now := newCache(), time.Unix(1_000_000, 0)
	job := admitted("j", 1)
	job.Spec.Energy = &train.EnergySpec{Eta: new(1.0), Group: "nightly"}
	job.State = train.StateRunning
	attempt := train.Attempt{Job: "j", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning}
	known.observeJob(bus.Entry[*train.Job]{Key: "j", Value: &job}, false)
	known.observeAttempt(bus.Entry[train.Attempt]{Key: "j", Value: attempt}, false)
	hurried, other := admitted("hurried", 1), attempt
	other.Job, other.Devices = "hurried", []train.DeviceID{"gpu:1"}
	known.observeJob(bus.Entry[*train.Job]{Key: "hurried", Value: &hurried}, false)
	known.observeAttempt(bus.Entry[train.Attempt]{Key: "hurried", Value: other}, false)
	pass := func(watts ...float64) {
		t.Helper()
		p, err := newPowerLimits(b.ctx, b.bus, slog.New(slog.DiscardHandler), known, watts, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.now = func() time.Time { return now }
		if err := p.pass(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	course := train.EnergyProgress{Job: "j"}
	for _, want := range []float64{300, 200, 100, 200} {
		pass(200, 300, 100)
		limit, err := limits.Get(b.ctx, "j")
		if err != nil || limit.Value.Watts != want || limit.Value.Attempt != 1 {
			t.Fatalf("the limit is %+v, not %g W: %v", limit.Value, want, err)
		}
		for range 2 {
			now = now.Add(10 * time.Second)
			used := map[float64]unit.Energy{300: 3000, 200: 2000, 100: 2500}[limit.Value.Watts]
			b.measured("n", now, limit.Value.Watts)
			course.Mark(train.EpochEnergy{Attempt: 1, EpochsDone: course.EpochsDone + 1, At: now, Energy: course.Marked + used*unit.Joule}, 0)
		}
		put(b, courses, "course.j", course)
	}
	if _, err := limits.Get(b.ctx, "hurried"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a job whose energy does not count has a limit: %v", err)
	}
	group := openKV(b, contract.Groups)
	if e, err := group.Get(b.ctx, contract.GroupKey(job.Spec)); err != nil || e.Value.Unlimited[job.Spec.BatchSize] != (contract.PowerWindow{LimitWatts: 300, EnergyJoules: 3000, Seconds: 10}) {
		t.Errorf("an epoch at the highest limit is %+v, %v", e.Value.Unlimited, err)
	}
	next, another := job, attempt
	next.ID, another.Job, another.Devices = "next", "next", []train.DeviceID{"gpu:2"}
	sharer, beside := job, other
	sharer.ID, beside.Job = "sharer", "sharer"
	known.observeJob(bus.Entry[*train.Job]{Key: "sharer", Value: &sharer}, false)
	known.observeAttempt(bus.Entry[train.Attempt]{Key: "sharer", Value: beside}, false)
	known.observeJob(bus.Entry[*train.Job]{Key: "next", Value: &next}, false)
	known.observeAttempt(bus.Entry[train.Attempt]{Key: "next", Value: another}, false)
	trial, tried := job, attempt
	trial.ID, tried.Job, tried.Devices = "trial", "trial", []train.DeviceID{"gpu:3"}
	known.observeJob(bus.Entry[*train.Job]{Key: "trial", Value: &trial}, false)
	known.observeAttempt(bus.Entry[train.Attempt]{Key: "trial", Value: tried}, false)
	noting(known, known.wishes)(bus.Entry[train.Setting]{Key: "trial", Value: train.Setting{Job: "trial", Values: map[string]float64{"power_limit_w": 250}}}, false)
	pass(200, 300, 100)
	if _, err := limits.Get(b.ctx, "trial"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a trial with a limit of its own has another one: %v", err)
	}
	if limit, err := limits.Get(b.ctx, "next"); err != nil || limit.Value.Watts != 200 {
		t.Errorf("the next of the group has %+v, %v", limit.Value, err)
	}
	if _, err := limits.Get(b.ctx, "sharer"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a job that shares its device has a limit: %v", err)
	}
	job.State = train.StateSucceeded
	known.observeJob(bus.Entry[*train.Job]{Key: "j", Value: &job}, false)
	pass(200, 300, 100)
	if _, err := limits.Get(b.ctx, "j"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("an ended job has a limit: %v", err)
	}
}

// measured plays the agent of a node whose GPU 0 is at a power limit.
func (b *bench) measured(node train.NodeID, at time.Time, watts float64) {
	b.t.Helper()
	m := event.Measured{
		Node: node, BootID: "b", Sequence: uint64(at.Unix()), From: at.Add(-time.Second), To: at,
		Meters: []event.Meter{{Component: event.ComponentGPU, Device: "gpu:0", Method: "nvml_counter", Board: &event.Board{LimitWatts: watts}}},
	}
	fact := event.Fact{
		Subject: event.Subject{Entity: "energy", ID: string(node), Fact: event.FactMeasured, Version: 1}, Body: m, Source: "nodeagent",
		Key: fmt.Sprintf("node/%s/b/%d", node, m.Sequence),
	}
	if err := b.bus.Publish(b.ctx, fact); err != nil {
		b.t.Fatal(err)
	}
}

// TestALimitThatIsNotInForceTeachesNothing has an agent that cannot set limits, and one that says nothing.
func TestALimitThatIsNotInForceTeachesNothing(t *testing.T) {
	for name, told := range map[string]bool{"at its own limit": true, "nothing measured": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			courses, profiles, groups := openKV(b, contract.EnergyProgress), openKV(b, contract.PowerProfiles), openKV(b, contract.Groups)
			known, now := newCache(), time.Unix(1_000_000, 0)
			job := admitted("j", 1)
			job.Spec.Energy, job.State = &train.EnergySpec{Eta: new(1.0), Group: "nightly"}, train.StateRunning
			known.observeJob(bus.Entry[*train.Job]{Key: "j", Value: &job}, false)
			attempt := train.Attempt{Job: "j", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning}
			known.observeAttempt(bus.Entry[train.Attempt]{Key: "j", Value: attempt}, false)
			p, err := newPowerLimits(b.ctx, b.bus, slog.New(slog.DiscardHandler), known, []float64{200}, 0)
			if err != nil {
				t.Fatal(err)
			}
			p.now = func() time.Time { return now }
			course := train.EnergyProgress{Job: "j"}
			for n := range 3 {
				if err := p.pass(b.ctx); err != nil {
					t.Fatal(err)
				}
				now = now.Add(10 * time.Second)
				if told {
					b.measured("n", now, 350)
				}
				course.Mark(train.EpochEnergy{Attempt: 1, EpochsDone: n + 1, At: now, Energy: course.Marked + unit.Joule}, 0)
				put(b, courses, "course.j", course)
			}
			if e, err := profiles.Get(b.ctx, "j"); err != nil || e.Value.Watts != 0 || !e.Value.Settled || len(e.Value.Windows) != 0 {
				t.Errorf("%+v, %v; want to have settled on no limit", e.Value, err)
			}
			if e, err := groups.Get(b.ctx, contract.GroupKey(job.Spec)); !errors.Is(err, bus.ErrNotFound) {
				t.Errorf("the group has %+v, %v; want nothing", e.Value, err)
			}
		})
	}
}

// TestLimitsOfAnEarlierPlannerAreWithdrawn starts one that sets none.
func TestLimitsOfAnEarlierPlannerAreWithdrawn(t *testing.T) {
	b := newBench(t)
	limits := openKV(b, contract.PowerLimits)
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
