package view

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Detail is all that is known about one job. What is missing is nil.
type Detail struct {
	// Job is the record of the job. While the job waits, its reasons are those of the newest plan.
	Job train.Job `json:"job"`
	// RunSeconds is how long its processes have run.
	RunSeconds float64 `json:"run_seconds"`
	// ContinuedBy are the jobs that began from its checkpoints.
	ContinuedBy []train.JobID `json:"continued_by,omitempty"`
	// Unsearched says that nobody has looked for them: without the service web, that would take all jobs.
	Unsearched bool `json:"continued_by_unknown,omitempty"`
	// Attempt is the newest attempt.
	Attempt *Attempt `json:"attempt,omitempty"`
	// Report is what its training code has reported.
	Report *train.AttemptReport `json:"report,omitempty"`
	// Plan is what the newest plan says about the job, unless it has ended.
	Plan *Plan `json:"plan,omitempty"`
	// Beside are the jobs with which it shares devices.
	Beside []Neighbour `json:"beside,omitempty"`
	// Met is what is known about jobs that share its type of device.
	Met *curve.InterferenceRecord `json:"met,omitempty"`
	// Progress is the part of the training that is done, by its steps if they are known.
	Progress *float64 `json:"progress,omitempty"`
	// Silent is set while running code reports no more steps.
	Silent *train.Reason `json:"silent,omitempty"`
	// Model is what was learned about the job.
	Model *train.Model `json:"model,omitempty"`
	// Account is the energy that it has used.
	Account *train.Account `json:"account,omitempty"`
	// Course is its energy at the end of each epoch.
	Course *train.EnergyProgress `json:"course,omitempty"`
	// Tuning is its micro-batch while it shares a device.
	Tuning *Tuning `json:"tuning,omitempty"`
	// Batches are those of the last epochs of a job with a global batch.
	Batches []EpochBatch `json:"batches,omitempty"`
	// Submission is what was submitted, before admission completed it. It is nil if its stream no longer has it.
	Submission *train.Spec `json:"submission,omitempty"`
	// Experiment is the experiment whose trial the job is.
	Experiment string `json:"experiment,omitempty"`
	// Mounted says whether the job sees its folders as /custom, /snapshots and /data. It is nil before the job has
	// started.
	Mounted *bool `json:"mounted,omitempty"`
}

// Attempt is an attempt without the hashes of its secrets.
type Attempt struct {
	// Number counts the attempts of the job, from 1.
	Number int `json:"number"`
	// Node is where it runs.
	Node train.NodeID `json:"node"`
	// Devices are those on Node.
	Devices []train.DeviceID `json:"devices"`
	// Memory is its part of each of them; 0 if it has them alone.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
	// Parts are its devices on all nodes, if there are several.
	Parts []train.Part `json:"parts,omitempty"`
	// Enforcement is the mechanism that holds the attempt to its part of its devices.
	Enforcement train.Enforcement `json:"enforcement,omitempty"`
	// Phase is how far it has come.
	Phase train.Phase `json:"phase"`
	// Stop is why it was asked to stop.
	Stop train.StopCause `json:"stop,omitempty"`
	// StopSince is when.
	StopSince time.Time `json:"stop_since,omitzero"`
	// StartedAt is when its processes started.
	StartedAt time.Time `json:"started_at,omitzero"`
	// ExitedAt is when they ended.
	ExitedAt time.Time `json:"exited_at,omitzero"`
	// Staging is how far its data is on its way to the node.
	Staging *train.Staging `json:"staging,omitempty"`
	// NotBefore is when the next attempt may start.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Exit is how its processes ended.
	Exit *train.Exit `json:"exit,omitempty"`
	// Outcome is what that meant for the job.
	Outcome train.Outcome `json:"outcome,omitempty"`
}

// Public returns what everybody may see of an attempt: how it goes and how it ended, not where its data is or what it
// has written.
func (a Attempt) Public() Attempt {
	if a.Staging != nil {
		staging := *a.Staging
		staging.URL = ""
		a.Staging = &staging
	}
	if a.Exit != nil {
		exit := a.Exit.Public()
		a.Exit = &exit
	}
	return a
}

// Live reports whether processes of the attempt may exist.
func (a Attempt) Live() bool { return train.Attempt{Phase: a.Phase}.Live() }

// Places returns the parts of the attempt, for one node as well.
func (a Attempt) Places() []train.Part {
	return train.Attempt{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Parts: a.Parts}.Places()
}

// Plan is the part of the newest plan about a job: its allocation, or its position in the queue.
type Plan struct {
	// Generation is the number of the plan.
	Generation uint64 `json:"generation"`
	// Policy is who decided.
	Policy string `json:"policy"`
	// DecidedAt is when.
	DecidedAt time.Time `json:"decided_at"`
	// Allocation is what the job gets.
	Allocation *train.Allocation `json:"allocation,omitempty"`
	// Waiting is why it gets nothing.
	Waiting *train.Waiting `json:"waiting,omitempty"`
	// Position is the job's place among the waiting jobs, from 1; 0 if the job does not wait.
	Position int `json:"position,omitempty"`
	// Queue is the number of waiting jobs.
	Queue int `json:"queue,omitempty"`
	// Predicted is when the job starts and ends.
	Predicted train.Predicted `json:"predicted,omitzero"`
	// Holders are jobs whose devices it could use.
	Holders []Holder `json:"holders,omitempty"`
}

// Holder is a job that holds devices, until its predicted end.
type Holder struct {
	// Job is its id.
	Job train.JobID `json:"job"`
	// Places are its devices.
	Places []train.Part `json:"places"`
	// Finish is its predicted end.
	Finish *train.Moment `json:"finish,omitempty"`
}

// Neighbour is a job on the same device.
type Neighbour struct {
	// Job is its record.
	Job train.Job `json:"job"`
	// Allocation is what the plan gives it.
	Allocation train.Allocation `json:"allocation"`
}

// Describe gathers what the index knows about a job.
func Describe(x *index.Index, job train.Job, now time.Time) Detail {
	d := Detail{Job: job, RunSeconds: job.RunSecondsAt(now), Progress: progress(x, &job, now)}
	id := string(job.ID)
	for other, j := range x.Jobs.All() {
		if j.Spec.Continue == job.ID && j.State != train.StateRejected {
			d.ContinuedBy = append(d.ContinuedBy, train.JobID(other))
		}
	}
	slices.Sort(d.ContinuedBy)
	if attempt := x.Attempts.Get(id); attempt != nil && attempt.Number > 0 {
		d.Attempt = &Attempt{
			Number: attempt.Number, Node: attempt.Node, Devices: attempt.Devices, Memory: attempt.Memory, Parts: attempt.Parts, Enforcement: attempt.Enforcement,
			Phase: attempt.Phase, Stop: attempt.Stop, StopSince: attempt.StopSince, StartedAt: attempt.StartedAt, ExitedAt: attempt.ExitedAt,
			Staging: attempt.Staging, NotBefore: attempt.NotBefore, Exit: attempt.Exit, Outcome: attempt.Outcome,
		}
		d.Report = x.Reports.Get(contract.ReportKey(job.ID, attempt.Number))
		if reason, silent := silent(x, job.ID, now); silent {
			d.Silent = &reason
		}
		d.Tuning = TuningOf(x, job.ID, attempt.Number)
	}
	if experiment, is := contract.ExperimentOf(job.ID, x.Experiments.Get); is {
		d.Experiment = experiment
	}
	d.Model, d.Account, d.Course = x.Models.Get(id), x.Accounts.Get(id), x.Courses.Get(id)
	if !job.State.Terminal() {
		d.Job, d.Plan = inPlan(x.Plan(), job)
		d.Beside, d.Met = company(x, job.ID)
	}
	return d
}

// Public returns what everybody may see of a job. The records of others in it are left as they are.
func (d Detail) Public() Detail {
	d.Job, d.Submission = d.Job.Public(), nil
	if d.Attempt != nil {
		attempt := d.Attempt.Public()
		d.Attempt = &attempt
	}
	if d.Report != nil {
		report := d.Report.Public()
		d.Report = &report
	}
	return d
}

// MayBeContinued reports whether another job can have begun from the checkpoints of a job: admission asks for one that
// has saved something and has left its devices.
func MayBeContinued(job train.Job) bool {
	return job.Saved() && (job.Attempt > 1 || !job.State.Active())
}

// planOf returns the part of the plan about a job, or nil.
func planOf(plan *train.Plan, job train.JobID) *Plan {
	view := &Plan{Generation: plan.Generation, Policy: plan.Policy, DecidedAt: plan.DecidedAt, Predicted: plan.Predicted(job)}
	if allocation, found := plan.Find(job); found {
		view.Allocation = &allocation
		return view
	}
	for i, w := range plan.Waiting {
		if w.Job == job {
			view.Waiting, view.Position, view.Queue = &w, i+1, len(plan.Waiting)
			for _, id := range w.Holders {
				if a, found := plan.Find(id); found {
					view.Holders = append(view.Holders, Holder{Job: id, Places: a.Places(), Finish: plan.Predicted(id).Finish})
				}
			}
			return view
		}
	}
	return nil
}

// Neighbours returns the allocations of the plan that share devices with the job's.
func Neighbours(plan *train.Plan, job train.JobID) (mine train.Allocation, beside []train.Allocation) {
	mine, found := plan.Find(job)
	if !found || mine.Memory == 0 {
		return mine, nil
	}
	for _, a := range plan.Allocations {
		if a.Job != job && a.Memory > 0 && train.Meet(a.Places(), mine.Places()) {
			beside = append(beside, a)
		}
	}
	return mine, beside
}

// company returns the jobs that share devices with a job, and the interference samples of such jobs.
func company(x *index.Index, job train.JobID) (beside []Neighbour, met *curve.InterferenceRecord) {
	mine, allocations := Neighbours(x.Plan(), job)
	for _, a := range allocations {
		if other := x.Jobs.Get(string(a.Job)); other != nil {
			beside = append(beside, Neighbour{*other, a})
		}
	}
	first := mine.Places()[0]
	node := x.Nodes.Get(string(first.Node))
	if len(beside) == 0 || node == nil {
		return beside, nil
	}
	if i := slices.IndexFunc(node.Devices, func(d train.Device) bool { return slices.Contains(first.Devices, d.ID) }); i >= 0 {
		met = x.Met.Get(curve.InterferenceKey(&node.Devices[i]))
	}
	return beside, met
}
