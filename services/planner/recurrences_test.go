package planner

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// nightly is a job of a group. The test plays the register, the executor and the ledger.
func nightly(id train.JobID) train.Job {
	j := admitted(id, 1)
	eta := 1.0
	j.Spec.Energy = &train.EnergySpec{Eta: &eta, Group: "nightly", BatchSizes: []int{16, 32, 64, 128}}
	return j
}

// tuned waits until the planner has chosen for a job, and has the register show it.
func (b *bench) tuned(j *train.Job) int {
	b.t.Helper()
	all := b.await(event.StreamJobs, key(fmt.Sprintf("job/%s/tuned", j.ID)))
	fact := decode[event.Tuned](b.t, all[len(all)-1])
	j.Spec.BatchSize, j.TunedBatch = fact.BatchSize, fact.BatchSize
	put(b, b.jobs, string(j.ID), *j)
	return fact.BatchSize
}

// ended notes that a job has ended.
func (b *bench) ended(ledger *bus.KV[train.Account], j train.Job, joules float64, state train.State) {
	b.t.Helper()
	j.State, j.RunSeconds, j.FinishedAt = state, 60, time.Now()
	put(b, b.jobs, string(j.ID), j)
	put(b, ledger, contract.AccountKey(j.ID), train.Account{Job: j.ID, Energy: unit.Energy(joules) * unit.Joule, Final: true})
}

// record waits until a group has a number of attempts.
func (b *bench) record(groups *bus.KV[contract.Group], attempts int) contract.Group {
	b.t.Helper()
	for {
		e, err := groups.Get(b.ctx, contract.GroupKey(nightly("x").Spec))
		if err == nil && len(e.Value.Attempts) >= attempts {
			return e.Value
		}
		if !tick.Pause(b.ctx, 10*time.Millisecond) {
			b.t.Fatalf("the group has %d attempts, not %d: %v", len(e.Value.Attempts), attempts, err)
		}
	}
}

func TestAGroupSettlesOnACheaperBatchSize(t *testing.T) {
	b := newBench(t)
	ledger, groups := openKV(b, contract.Accounts), openKV(b, contract.Groups)
	b.node(1)
	b.serve()
	joules := map[int]float64{16: 1500, 32: 1000, 64: 600, 128: 900}
	const jobs = 12
	var chosen []int
	for i := range jobs {
		j := nightly(train.JobID(fmt.Sprintf("night-%d", i)))
		put(b, b.jobs, string(j.ID), j)
		batch := b.tuned(&j)
		chosen = append(chosen, batch)
		if i == 0 && batch != 32 {
			t.Errorf("the first job got %d, and 32 was submitted", batch)
		}
		b.ended(ledger, j, joules[batch], train.StateSucceeded)
		b.record(groups, i+1)
	}
	for _, batch := range chosen[jobs-4:] {
		if batch != 64 {
			t.Errorf("batch sizes %v, and 64 is the cheapest", chosen)
			break
		}
	}
}

func TestAJobOfAGroupIsPlannedOnceItIsTuned(t *testing.T) {
	b := newBench(t)
	b.node(1)
	b.serve()
	j := nightly("a")
	put(b, b.jobs, "a", j)
	put(b, b.jobs, "b", admitted("b", 1))
	first := b.await(event.StreamPlans, func(bus.Message) bool { return true })
	if p := decode[event.PlanDecided](t, first[0]).Plan; len(p.Allocations)+len(p.Waiting) != 1 || p.Allocations[0].Job != "b" {
		t.Fatalf("planned before it was tuned: %+v", p)
	}
	b.tuned(&j)
	b.await(event.StreamPlans, func(m bus.Message) bool {
		p := decode[event.PlanDecided](t, m).Plan
		return len(p.Allocations) == 1 && len(p.Waiting) == 1
	})
}

// TestAPlannerThatIsKilledNotesEachEndOnce has another planner take over after each step, with nothing but the buckets.
func TestAPlannerThatIsKilledNotesEachEndOnce(t *testing.T) {
	b := newBench(t)
	ledger, groups := openKV(b, contract.Accounts), openKV(b, contract.Groups)
	known := newCache()
	known.observeNode(time.Now(), bus.Entry[train.Node]{Key: "a", Value: train.Node{ID: "a", Devices: []train.Device{{ID: "gpu:0"}}}}, false)
	takeOver := func(jobs ...train.Job) contract.Group {
		t.Helper()
		r, err := newRecurrences(b.ctx, b.bus, slog.New(slog.DiscardHandler), known, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			r.see(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false)
		}
		r.pass(b.ctx)
		e, err := groups.Get(b.ctx, contract.GroupKey(nightly("x").Spec))
		if err != nil {
			t.Fatal(err)
		}
		return e.Value
	}
	first, second := nightly("first"), nightly("second")
	for range 2 {
		if r := takeOver(first, second); len(r.Running) != 2 || r.MaxPowerWatts != 300 {
			t.Fatalf("two jobs begin: %+v", r)
		}
	}
	first.State, first.RunSeconds, first.FinishedAt = train.StateFailed, 60, time.Now()
	second.State, second.FinishedAt = train.StateCancelled, time.Now()
	if r := takeOver(first, second); len(r.Running) != 1 || len(r.Attempts) != 0 {
		t.Fatalf("one is cancelled, the account of the other is still open: %+v", r)
	}
	put(b, ledger, "job.first", train.Account{Job: "first", Energy: 700 * unit.Joule, Final: true})
	want := contract.GroupAttempt{BatchSize: 32, EnergyJoules: 700, Seconds: 60}
	for range 2 {
		if r := takeOver(first, second); len(r.Running) != 0 || len(r.Attempts) != 1 || r.Attempts[0] != want {
			t.Fatalf("one has ended with %+v, noted is %+v", want, r)
		}
	}
}

func TestReached(t *testing.T) {
	stop := &train.StopSpec{LossDecrease: 0.1, Epochs: 3}
	target := &train.EnergySpec{Target: &train.TargetSpec{Metric: "accuracy", AtLeast: new(0.9)}}
	for _, c := range []struct {
		job  train.Job
		want bool
	}{
		{train.Job{State: train.StateSucceeded}, true},
		{train.Job{State: train.StateSucceeded, Spec: train.Spec{Energy: target}}, false},
		{train.Job{ID: "there", State: train.StateSucceeded, Spec: train.Spec{Energy: target, Stop: stop}}, true},
		{train.Job{ID: "there", State: train.StateFailed, Spec: train.Spec{Energy: target}}, false},
		{train.Job{State: train.StateFailed}, false},
		{train.Job{State: train.StateSucceeded, Spec: train.Spec{Stop: stop}}, false},
		{train.Job{State: train.StateSucceeded, Spec: train.Spec{Stop: stop}, ConvergedEpochs: 9}, true},
	} {
		var account train.Account
		if c.job.ID == "there" {
			account.ToTarget = &train.EpochEnergy{EpochsDone: 3}
		}
		if reached(c.job, account) != c.want {
			t.Errorf("%+v: reached is %v", c.job, !c.want)
		}
	}
}
