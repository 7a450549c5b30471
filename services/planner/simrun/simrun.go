// Package simrun runs simulations side by side on this machine. It measures how long their decisions take, notes how
// allocations change and shows progress. What is simulated is services/planner/sim.
package simrun

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Run is a simulation that has ended.
type Run struct {
	sim.Result
	Changes []Change
	Ticks   []sim.Tick
}

// Change is a change of a job's placement. Placement is node:devices, in order of ranks; "" if the job holds nothing.
type Change struct {
	Seconds   float64
	Job       string
	Devices   int
	Placement string
	Reason    string
}

// All runs the simulations, as many at once as there are processors. Results are in their order. A nil bar shows
// nothing.
func All(ctx context.Context, simulations []sim.Config, bar *Bar) ([]Run, error) {
	runs := make([]Run, len(simulations))
	bar.begin(simulations)
	p := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(runtime.GOMAXPROCS(0))
	for i, c := range simulations {
		p.Go(func(ctx context.Context) error {
			var err error
			runs[i], err = one(ctx, c, func(done int) { bar.set(i, done) })
			return err
		})
	}
	err := p.Wait()
	bar.clear()
	return runs, err
}

// one runs one simulation.
func one(ctx context.Context, c sim.Config, progress func(done int)) (Run, error) {
	var r Run
	var took []float64
	c.Decide = func(state plan.State, policy plan.Policy) train.Plan {
		start := time.Now()
		decided := plan.Decide(state, policy)
		took = append(took, float64(time.Since(start))/float64(time.Millisecond))
		return decided
	}
	held := map[train.JobID]string{}
	c.Watch = func(t sim.Tick) bool {
		progress(t.Done)
		r.Changes = append(r.Changes, changes(held, t)...)
		t.Plan = nil
		r.Ticks = append(r.Ticks, t)
		return ctx.Err() == nil
	}
	var err error
	if r.Result, err = sim.Run(c); err != nil {
		return r, err
	}
	slices.Sort(took)
	r.DecideMSP50, r.DecideMSP99 = sim.Percentile(took, 0.5), sim.Percentile(took, 0.99)
	return r, ctx.Err()
}

// changes returns the allocations that a decision changed, and brings held up to date.
func changes(held map[train.JobID]string, t sim.Tick) []Change {
	if t.Plan == nil {
		clear(held)
		return nil
	}
	var list []Change
	listed := make(map[train.JobID]bool, len(t.Plan.Allocations))
	for _, a := range t.Plan.Allocations {
		placement, n := "", 0
		for _, p := range a.Places() {
			placement += fmt.Sprintf(" %s:%d", p.Node, len(p.Devices))
			n += len(p.Devices)
		}
		listed[a.Job] = true
		if held[a.Job] != placement {
			held[a.Job] = placement
			list = append(list, Change{t.Seconds, string(a.Job), n, placement[1:], a.Reason.Code})
		}
	}
	for _, w := range t.Plan.Waiting {
		if held[w.Job] != "" {
			list = append(list, Change{Seconds: t.Seconds, Job: string(w.Job), Reason: w.Blockers[0].Code})
		}
	}
	maps.DeleteFunc(held, func(job train.JobID, _ string) bool { return !listed[job] })
	return list
}
