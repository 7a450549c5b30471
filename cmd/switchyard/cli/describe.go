package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func (a *app) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "describe JOB",
		Aliases: []string{"show"},
		Short:   "Tell all about a job: why it waits, what was learned about it, where it ran, what it spent",
		Long: `Tells the state of a job with its reasons, what was asked for, the predicted finish, the fitted model, the history of its devices and its energy account.
A job is named by its id, the beginning of its id, or its name (the newest one of that name).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.describe(ctx, b, args[0], time.Now()) })
		},
	}
}

// description is everything that is known of a job. What is missing is nil.
type description struct {
	Job        train.Job            `json:"job"`
	RunSeconds float64              `json:"run_seconds"`
	Attempt    *attemptView         `json:"attempt,omitempty"`
	Report     *train.AttemptReport `json:"report,omitempty"`
	Plan       *planView            `json:"plan,omitempty"`
	Company    *companyView         `json:"company,omitempty"`
	Model      *train.Model         `json:"model,omitempty"`
	Account    *train.Account       `json:"account,omitempty"`
	Course     *train.Course        `json:"course,omitempty"`
	Tuning     *tuningView          `json:"tuning,omitempty"`
	// Mounted tells whether the job sees its folders as /custom, /snapshots and /data; nil before it has started.
	Mounted *bool `json:"mounted,omitempty"`
}

// attemptView is the newest attempt without its secrets' hashes.
type attemptView struct {
	Number  int              `json:"number"`
	Node    train.NodeID     `json:"node"`
	Devices []train.DeviceID `json:"devices"`
	Memory  unit.Bytes       `json:"memory_bytes,omitempty"`
	Parts   []train.Part     `json:"parts,omitempty"`
	// Enforcement is what holds it to its part of its devices.
	Enforcement train.Enforcement `json:"enforcement,omitempty"`
	Phase       train.Phase       `json:"phase"`
	Stop        train.StopCause   `json:"stop,omitempty"`
	StopSince   time.Time         `json:"stop_since,omitzero"`
	StartedAt   time.Time         `json:"started_at,omitzero"`
	ExitedAt    time.Time         `json:"exited_at,omitzero"`
	NotBefore   time.Time         `json:"not_before,omitzero"`
	Exit        *train.Exit       `json:"exit,omitempty"`
	Outcome     train.Outcome     `json:"outcome,omitempty"`
}

func (a attemptView) places() []train.Part {
	return train.Attempt{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Parts: a.Parts}.Places()
}

// planView is what the newest plan says of a job: an allocation, or its place among those that wait.
type planView struct {
	Generation uint64            `json:"generation"`
	Policy     string            `json:"policy"`
	DecidedAt  time.Time         `json:"decided_at"`
	Allocation *train.Allocation `json:"allocation,omitempty"`
	Waiting    *train.Waiting    `json:"waiting,omitempty"`
	// Position among the Queue jobs that wait, from 1 on; 0 for one that does not.
	Position int `json:"position,omitempty"`
	Queue    int `json:"queue,omitempty"`
}

func (a *app) describe(ctx context.Context, b *bus.Bus, ref string, now time.Time) error {
	job, err := findJob(ctx, b, ref, ExitError)
	if err != nil {
		return err
	}
	d, err := gather(ctx, b, job, now)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(d)
	}
	_, err = fmt.Fprint(a.stdout, describeText(d, now))
	return err
}

// gather reads what the services know of a job.
func gather(ctx context.Context, b *bus.Bus, job train.Job, now time.Time) (description, error) {
	d := description{Job: job, RunSeconds: runSeconds(job, now)}
	id := string(job.ID)
	attempt, found, err := getIfThere[train.Attempt](ctx, b, event.BucketAttempts, id)
	if err != nil {
		return d, err
	}
	if found && attempt.Number > 0 {
		d.Attempt = &attemptView{
			Number: attempt.Number, Node: attempt.Node, Devices: attempt.Devices, Memory: attempt.Memory, Parts: attempt.Parts, Enforcement: attempt.Enforcement, Phase: attempt.Phase, Stop: attempt.Stop, StopSince: attempt.StopSince,
			StartedAt: attempt.StartedAt, ExitedAt: attempt.ExitedAt, NotBefore: attempt.NotBefore, Exit: attempt.Exit, Outcome: attempt.Outcome,
		}
		if d.Report, err = optional[train.AttemptReport](ctx, b, event.BucketReports, fmt.Sprintf("%s.%d", id, attempt.Number)); err != nil {
			return d, err
		}
		all, err := tunings(ctx, b)
		if err != nil {
			return d, err
		}
		d.Tuning = viewTuning(all, job.ID, attempt.Number)
	}
	if d.Model, err = optional[train.Model](ctx, b, event.BucketModels, id); err != nil {
		return d, err
	}
	if d.Account, err = optional[train.Account](ctx, b, event.BucketLedger, "job."+id); err != nil {
		return d, err
	}
	if d.Course, err = optional[train.Course](ctx, b, event.BucketLedger, "course."+id); err != nil {
		return d, err
	}
	started, found, err := lastIfThere[event.Started](ctx, b, event.StreamJobs, event.JobSubject(job.ID, event.FactStarted))
	if err != nil {
		return d, err
	}
	if found {
		d.Mounted = &started.Mounts
	}
	plan, err := lastPlan(ctx, b)
	if err != nil {
		return d, err
	}
	d.Plan = viewPlan(plan, job)
	d.Company, err = viewCompany(ctx, b, plan, job)
	return d, err
}

// optional reads a key; nil where there is none.
func optional[T any](ctx context.Context, b *bus.Bus, bucket, key string) (*T, error) {
	value, found, err := getIfThere[T](ctx, b, bucket, key)
	if err != nil || !found {
		return nil, err
	}
	return &value, nil
}

// viewPlan picks what concerns a job; nil where the plan says nothing of it.
func viewPlan(plan train.Plan, job train.Job) *planView {
	if job.State.Terminal() {
		return nil
	}
	view := &planView{Generation: plan.Generation, Policy: plan.Policy, DecidedAt: plan.DecidedAt}
	if allocation, found := plan.Find(job.ID); found {
		view.Allocation = &allocation
		return view
	}
	for i, w := range plan.Waiting {
		if w.Job == job.ID {
			view.Waiting, view.Position, view.Queue = &w, i+1, len(plan.Waiting)
			return view
		}
	}
	return nil
}
