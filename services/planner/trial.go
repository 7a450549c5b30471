package planner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// modelTimeout bounds the wait for the profiler, without whose model an answer says less.
const modelTimeout = time.Second

// try decides once more, as the loop would, with one more job.
func (q *questions) try(ctx context.Context, job train.Job) (whatif.Answer, error) {
	last, known, err := q.newestPlan(ctx)
	if err != nil {
		return whatif.Answer{}, err
	}
	var model *train.Model
	wait, cancel := context.WithTimeout(ctx, modelTimeout)
	defer cancel()
	if m, err := bus.Ask[train.Spec, train.Model](wait, q.bus, train.ModelSubject, job.Spec); err == nil {
		model = &m
	}
	job.Spec.Array = "" // one of its jobs is tried
	if job.AwaitsBatch() {
		job.TunedBatch = job.Spec.BatchSize // the one that was submitted is the first to try
	}
	now := q.now()
	terms := q.terms
	terms.Rates = q.grid.rates(now)
	next := plan.Decide(q.cache.with(job, model, now, last, known, terms), q.policy)
	next.DecidedAt = now.UTC()
	trial := whatif.NewTrial(last, next, job.ID)
	trial.PowerWatts = q.cache.powerFor(job.Spec, trial.Allocation)
	return whatif.Answer{Trial: &trial}, nil
}

// newestPlan reads the newest plan; known is false if there is none.
func (q *questions) newestPlan(ctx context.Context) (p train.Plan, known bool, err error) {
	m, err := q.bus.Last(ctx, event.StreamPlans, decision.Subject())
	if errors.Is(err, bus.ErrNotFound) {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	decided, unreadable := event.Decode[event.PlanDecided](m.Data)
	return decided.Plan, unreadable == nil, nil
}

// with is the state of a decision with one more job.
func (p *cache) with(job train.Job, model *train.Model, now time.Time, last train.Plan, known bool, terms plan.State) plan.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.records()
	r.Jobs = slices.Values(slices.AppendSeq([]*train.Job{&job}, r.Jobs))
	if model != nil {
		r.Models = maps.Clone(r.Models)
		r.Models[string(job.ID)] = *model
	}
	s := r.State(now, last, known, terms)
	for key, known := range s.Interference {
		s.Interference[key] = known.Clone() // the loop goes on predicting with its own
	}
	return s
}

// powerFor is what the devices of a job draw at most, in watts: those of its allocation, or else as many of the weakest
// ones that suit it. It is 0 if the job would get a part of a device.
func (p *cache) powerFor(spec train.Spec, a *train.Allocation) float64 {
	if a != nil {
		return p.powerOf(a.Places())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	least, need := 0.0, spec.DeviceNeed()
	for _, n := range p.nodes {
		for _, d := range need.Of(n).Devices {
			if w := d.BusyPower().Watts(); least == 0 || w < least {
				least = w
			}
		}
	}
	return least * float64(spec.MinDevices)
}
