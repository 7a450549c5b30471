package planner

import (
	"log/slog"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestAJobThatCostsTooMuchIsToldOfOnce has a job whose ceiling is 1000 J, by eta 0.5 and 100 W, run for 10 s before
// and 4 s now.
func TestAJobThatCostsTooMuchIsToldOfOnce(t *testing.T) {
	b := newBench(t)
	ledger, groups := openKV(b, contract.Accounts), openKV(b, contract.Groups)
	r, err := newRecurrences(b.ctx, b.bus, slog.New(slog.DiscardHandler), newCache(), 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	job := nightly("j")
	job.TunedBatch, job.State, job.RunSeconds, job.AttemptStartedAt = 32, train.StateRunning, 10, now.Add(-4*time.Second)
	job.Spec.Energy.Eta, job.Spec.Energy.StopEarly = new(0.5), true
	put(b, groups, contract.GroupKey(job.Spec), contract.Group{MaxPowerWatts: 100, Running: map[train.JobID]contract.GroupChoice{"j": {BatchSize: 32, MaxCost: 1000}}})
	see := func(change func(*train.Job)) []train.Job {
		seen := job
		change(&seen)
		r.see(bus.Entry[*train.Job]{Key: "j", Value: &seen}, false)
		return r.running()
	}
	others := map[string]func(*train.Job){
		"waits": func(j *train.Job) { j.State = train.StateQueued }, "has ended": func(j *train.Job) { j.State = train.StateFailed },
		"is stopped already": func(j *train.Job) { j.Overspent = "it has" },
		"does not mind":      func(j *train.Job) { j.Spec.Energy = &train.EnergySpec{Group: "nightly"} },
	}
	for name, change := range others {
		if all := see(change); len(all) != 0 {
			t.Errorf("a job that %s is watched", name)
		}
	}
	if all := see(func(*train.Job) {}); len(all) != 1 {
		t.Fatal("the job is not watched")
	}
	for _, joules := range []unit.Energy{0, 599, 601, 602} {
		put(b, ledger, "job.j", train.Account{Job: "j", Energy: joules * unit.Joule})
		if err := r.stopExpensive(b.ctx, job, now); err != nil {
			t.Fatal(err)
		}
	}
	told := b.await(event.StreamJobs, key("job/j/overspent"))
	if fact := decode[event.Overspent](t, told[0]); len(told) != 1 || fact != (event.Overspent{Group: "nightly", CostJoules: 1000.5, CeilingJoules: 1000}) {
		t.Errorf("told %d times: %+v", len(told), fact)
	}
}
