package planner

import (
	"context"
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// modelTimeout bounds the wait for the profiler, without whose model an answer says less.
const modelTimeout = time.Second

// subject returns the job that a question is about, nil if the question is about policies. A candidate comes with the
// model that it would begin with.
func (q *questions) subject(ctx context.Context, asked rpc.OutlookRequest) (*train.Job, *train.Model, error) {
	switch {
	case asked.Candidate != nil:
		job := *asked.Candidate
		job.Spec.Array = "" // one of its jobs is tried
		job.Assume()
		wait, cancel := context.WithTimeout(ctx, modelTimeout)
		defer cancel()
		if m, err := bus.Ask[train.Spec, train.Model](wait, q.bus, rpc.ModelSubject, job.Spec); err == nil {
			return &job, &m, nil
		}
		return &job, nil, nil
	case asked.Job != "":
		job, known := q.cache.job(asked.Job)
		if !known {
			return nil, nil, rpc.Missing("job %s has ended, or nobody has heard of it", asked.Job)
		}
		if job.Spec.Array != "" {
			return nil, nil, rpc.Invalid("%s is an array, which needs no devices: ask about one of its jobs, such as %s", job.ID, job.Members()[0])
		}
		job.Assume()
		return &job, nil, nil
	}
	return nil, nil, nil
}

// decide decides as the loop would, by a policy, with a record of a job (if it is not nil) instead of the one that is
// known, if any is.
func (q *questions) decide(job *train.Job, model *train.Model, policy plan.Policy, now time.Time, last train.Plan, known bool) train.Plan {
	terms := q.terms
	terms.Rates = q.grid.rates(now)
	next := plan.Decide(q.cache.with(job, model, now, last, known, terms), policy)
	next.DecidedAt = now.UTC()
	return next
}

// spend adds the power and the energy of a job.
func (q *questions) spend(o *rpc.Outlook, spec train.Spec, now time.Time) {
	o.PowerWatts = q.cache.powerFor(spec, o.Allocation)
	o.Energy = o.EnergyFrom(now)
}

// newestPlan reads the newest plan; known is false if there is none.
func (q *questions) newestPlan(ctx context.Context) (p train.Plan, known bool, err error) {
	decided, known, err := bus.LastOf[event.PlanDecided](ctx, q.bus, event.StreamPlans, decision.Subject())
	return decided.Plan, known, err
}

// with is the state of a decision with a record of a job instead of the one that is known, if any is.
func (p *cache) with(job *train.Job, model *train.Model, now time.Time, last train.Plan, known bool, terms plan.State) plan.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.records()
	others := maps.Clone(p.jobs)
	if job != nil {
		others[string(job.ID)] = job
	}
	r.Jobs = maps.Values(others)
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

// mostVariants bounds a question: each is a decision.
const mostVariants = 16

// runOutlooks answers until ctx ends what other wishes of a job, or one more job, would lead to.
func (q *questions) runOutlooks(ctx context.Context) error {
	return bus.Answer(ctx, q.bus, rpc.OutlookSubject, q.outlooks)
}

// outlooks decides on the job as it is and on each variant, all at the same moment.
func (q *questions) outlooks(ctx context.Context, asked rpc.OutlookRequest) (rpc.OutlookAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	if len(asked.Variants) > mostVariants {
		return rpc.OutlookAnswer{}, rpc.Invalid("%d variants are asked for, want at most %d", len(asked.Variants), mostVariants)
	}
	if !q.cache.ready() {
		return rpc.OutlookAnswer{}, errNotReady
	}
	job, model, err := q.subject(ctx, asked)
	if err != nil {
		return rpc.OutlookAnswer{}, err
	}
	last, planned, err := q.newestPlan(ctx)
	if err != nil {
		return rpc.OutlookAnswer{}, err
	}
	now := q.now()
	asIs := q.decide(job, model, q.policy, now, last, planned)
	answer := rpc.OutlookAnswer{DecidedAt: asIs.DecidedAt}
	for _, variant := range append([]rpc.Variant{{}}, asked.Variants...) {
		if ctx.Err() != nil {
			break
		}
		answer.Outlooks = append(answer.Outlooks, q.outlook(job, model, variant, asIs, now, last, planned))
	}
	return answer, ctx.Err()
}

// outlook decides on a variant. job is nil if the question is about policies.
func (q *questions) outlook(job *train.Job, model *train.Model, variant rpc.Variant, asIs train.Plan, now time.Time, last train.Plan, planned bool) rpc.JobOutlook {
	tried := rpc.JobOutlook{Variant: variant}
	policy, id := q.policy, train.JobID("")
	if variant.Policy != "" {
		other, err := plan.Find(variant.Policy)
		if err != nil {
			tried.Refused = &train.Reason{Code: "NoSuchPolicy", Field: "policies", Message: err.Error()}
			return tried
		}
		policy = other
	}
	if job != nil {
		changed := *job
		if changed.Spec, tried.Refused = variant.Apply(job.Spec); tried.Refused != nil {
			return tried
		}
		job, id = &changed, changed.ID
	}
	next := q.decide(job, model, policy, now, last, planned)
	o := whatif.NewOutlook(last, next, id)
	o.Shifted, o.ShiftedMore = whatif.Shifts(asIs, next, id)
	if job != nil {
		q.spend(&o, job.Spec, now)
	}
	tried.Outlook = &o
	return tried
}

// job returns the record of a job that has not ended.
func (p *cache) job(id train.JobID) (train.Job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	job := p.jobs[string(id)]
	if job == nil || job.State.Terminal() {
		return train.Job{}, false
	}
	return *job, true
}
