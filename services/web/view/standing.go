package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Standing is where a job stands now.
type Standing struct {
	// Job is the record of the job. While the job waits, its reasons are those of the newest plan.
	Job train.Job `json:"job"`
	// Home is the node whose executor has the output of the job; empty before its first start.
	Home train.NodeID `json:"home,omitempty"`
	// Pods is set if the newest attempt runs as pods.
	Pods bool `json:"pods,omitempty"`
	// Namespace is that of its pods, if it is not the executor's own.
	Namespace string `json:"namespace,omitempty"`
	// Terminal is the node whose executor opens terminals in the job; empty unless the job runs there now.
	Terminal train.NodeID `json:"terminal,omitempty"`
	// Plan is what the newest plan says about the job. It is nil if the plan does not know the job, and once it has ended.
	Plan *Plan `json:"plan,omitempty"`
}

// Stand returns where a job stands. Home is unknown once the record of the attempt is deleted.
func Stand(x *index.Index, job train.Job) Standing {
	s := Standing{Job: job}
	if a := x.Attempts.Get(string(job.ID)); a != nil && a.Number > 0 {
		s.Home, s.Pods, s.Namespace = cmp.Or(a.Machine, a.Home()), a.Backend == train.BackendKubernetes, a.Namespace
		if a.Phase == train.PhaseRunning && !s.Pods {
			s.Terminal = s.Home
		}
	}
	if !job.State.Terminal() {
		s.Job, s.Plan = inPlan(x.Plan(), job)
	}
	return s
}

// HomeOf returns the home of a job whose newest start is known.
func HomeOf(started event.Started) train.NodeID { return cmp.Or(started.Machine, started.Node) }

// Held are records of jobs.
type Held struct {
	// Jobs are in no order.
	Jobs []*train.Job `json:"jobs"`
}

// Pick returns the records that the ids name; there may be fewer. Those of waiting jobs have the reasons of the newest
// plan.
func Pick(x *index.Index, ids []string) Held {
	held, at := Held{Jobs: []*train.Job{}}, map[train.JobID]int{}
	for _, id := range ids {
		if j := x.Jobs.Get(id); j != nil {
			at[j.ID], held.Jobs = len(held.Jobs), append(held.Jobs, j)
		}
	}
	if plan := x.Plan(); len(held.Jobs) > 0 {
		for i := range plan.Waiting {
			if k, is := at[plan.Waiting[i].Job]; is {
				held.Jobs[k] = reworded(held.Jobs[k], plan.Generation, &plan.Waiting[i])
			}
		}
	}
	return held
}

// inPlan returns what a plan says about a job, or nil, and the job with the reasons of the plan if it waits.
func inPlan(plan *train.Plan, job train.Job) (train.Job, *Plan) {
	p := planOf(plan, job.ID)
	if p == nil {
		return job, nil
	}
	return *reworded(&job, p.Generation, p.Waiting), p
}

// reworded returns a job that waits with the reasons of a plan, if these begin with the code of its record. The record
// is written when the code changes; the words change more often, for example those that name the jobs ahead. Waits is
// nil if the job does not wait in the plan.
func reworded(job *train.Job, generation uint64, waits *train.Waiting) *train.Job {
	if waits == nil || generation < job.Generation || len(waits.Blockers) == 0 || waits.Blockers[0].Code != job.Reason {
		return job
	}
	newer, why := *job, waits.Blockers[0]
	newer.Message, newer.Hint, newer.Blockers = why.Message, why.Hint, waits.Blockers
	return &newer
}

// Planned returns those of the ids whose jobs the newest plan knows, while their records still say that they wait for a
// first plan.
func Planned(x *index.Index, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		j := x.Jobs.Get(id)
		return j == nil || j.State != train.StateQueued || j.Reason != train.ReasonAdmitted || planOf(x.Plan(), j.ID) == nil
	})
}

// Forecast is what the plan of a time predicted of a job.
type Forecast struct {
	// At is when the plan was decided.
	At time.Time `json:"at"`
	train.Predicted
}
