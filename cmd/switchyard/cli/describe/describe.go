// Package describe prints what the records say about one job.
package describe

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/results"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "describe JOB",
		Aliases: []string{"show"},
		Short:   "Show a job: its state and the reasons, prediction, model, history and energy",
		Long: `Shows the state of a job with the reasons for it, its submission, the predicted end, the fitted model, the history of its devices and its energy.
A job is named by its id, the beginning of its id, or its name (the newest job with that name).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return describe(ctx, a, b, args[0], time.Now()) })
		},
	}
}

// description is the content of all records about a job. A missing record is nil.
type description struct {
	Job        train.Job            `json:"job"`
	RunSeconds float64              `json:"run_seconds"`
	Attempt    *attemptView         `json:"attempt,omitempty"`
	Report     *train.AttemptReport `json:"report,omitempty"`
	Batches    []epochBatch         `json:"batches,omitempty"`
	Plan       *planView            `json:"plan,omitempty"`
	Company    *companyView         `json:"company,omitempty"`
	// Silent is set while running code reports no more steps.
	Silent  *train.Reason         `json:"silent,omitempty"`
	Model   *train.Model          `json:"model,omitempty"`
	Account *train.Account        `json:"account,omitempty"`
	Course  *train.EnergyProgress `json:"course,omitempty"`
	Tuning  *TuningView           `json:"tuning,omitempty"`
	// Mounted says whether the job sees its folders as /custom, /snapshots and /data. It is nil before the job has
	// started.
	Mounted *bool `json:"mounted,omitempty"`
	// Folders are paths on the job's machine. It is nil before the start, for pods, and if the executor does not answer.
	Folders *train.Folders `json:"folders,omitempty"`
	// CheckpointPath is the machine's path of the newest checkpoint.
	CheckpointPath string `json:"checkpoint_path,omitempty"`
}

// attemptView is the newest attempt without the hashes of its secrets.
type attemptView struct {
	Number  int              `json:"number"`
	Node    train.NodeID     `json:"node"`
	Devices []train.DeviceID `json:"devices"`
	Memory  unit.Bytes       `json:"memory_bytes,omitempty"`
	Parts   []train.Part     `json:"parts,omitempty"`
	// Enforcement is the mechanism that holds the attempt to its part of its devices.
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

// planView is the part of the newest plan about a job: its allocation, or its position in the queue.
type planView struct {
	Generation uint64            `json:"generation"`
	Policy     string            `json:"policy"`
	DecidedAt  time.Time         `json:"decided_at"`
	Allocation *train.Allocation `json:"allocation,omitempty"`
	Waiting    *train.Waiting    `json:"waiting,omitempty"`
	// Position is the job's place among the Queue waiting jobs, from 1; 0 if the job does not wait.
	Position int `json:"position,omitempty"`
	Queue    int `json:"queue,omitempty"`
	// Predicted is when the job starts and ends. Holders are jobs whose devices it could use.
	Predicted train.Predicted `json:"predicted,omitzero"`
	Holders   []holderView    `json:"holders,omitempty"`
}

// holderView is a job that holds devices, until its predicted end.
type holderView struct {
	Job    train.JobID   `json:"job"`
	Places []train.Part  `json:"places"`
	Finish *train.Moment `json:"finish,omitempty"`
}

func describe(ctx context.Context, a *console.Console, b *bus.Bus, ref string, now time.Time) error {
	job, err := console.FindJob(ctx, b, ref, exit.Failed)
	if err != nil {
		return err
	}
	d, err := gather(ctx, b, job, now)
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return a.PrintJSON(d)
	}
	_, err = fmt.Fprint(a.Stdout, describeText(d, now))
	return err
}

// gather reads all records about a job.
func gather(ctx context.Context, b *bus.Bus, job train.Job, now time.Time) (description, error) {
	d := description{Job: job, RunSeconds: job.RunSecondsAt(now)}
	id := string(job.ID)
	attempt, found, err := console.GetIfThere(ctx, b, contract.Attempts, id)
	if err != nil {
		return d, err
	}
	if found && attempt.Number > 0 {
		d.Attempt = &attemptView{
			Number: attempt.Number, Node: attempt.Node, Devices: attempt.Devices, Memory: attempt.Memory, Parts: attempt.Parts, Enforcement: attempt.Enforcement, Phase: attempt.Phase, Stop: attempt.Stop, StopSince: attempt.StopSince,
			StartedAt: attempt.StartedAt, ExitedAt: attempt.ExitedAt, NotBefore: attempt.NotBefore, Exit: attempt.Exit, Outcome: attempt.Outcome,
		}
		if d.Report, err = optional(ctx, b, contract.Reports, contract.ReportKey(train.JobID(id), attempt.Number)); err != nil {
			return d, err
		}
		if d.Report != nil {
			if reason, silent := train.Silent(attempt, *d.Report, now); silent {
				d.Silent = &reason
			}
		}
		all, err := Tunings(ctx, b)
		if err != nil {
			return d, err
		}
		d.Tuning = ViewTuning(all, job.ID, attempt.Number)
	}
	if d.Batches, err = readBatches(ctx, b, job); err != nil {
		return d, err
	}
	if d.Model, err = optional(ctx, b, contract.Models, id); err != nil {
		return d, err
	}
	if d.Account, err = optional(ctx, b, contract.Accounts, contract.AccountKey(train.JobID(id))); err != nil {
		return d, err
	}
	if d.Course, err = optional(ctx, b, contract.EnergyProgress, contract.EnergyProgressKey(train.JobID(id))); err != nil {
		return d, err
	}
	if err := d.locate(ctx, b); err != nil {
		return d, err
	}
	plan, err := console.LastPlan(ctx, b)
	if err != nil {
		return d, err
	}
	d.Plan = viewPlan(plan, job)
	d.Company, err = viewCompany(ctx, b, plan, job)
	return d, err
}

// locate finds where a job that has started keeps its files.
func (d *description) locate(ctx context.Context, b *bus.Bus) error {
	started, found, err := console.LastIfThere[event.Started](ctx, b, event.StreamJobs, event.JobSubject(d.Job.ID, event.FactStarted))
	if err != nil || !found {
		return err
	}
	d.Mounted = &started.Mounts
	if answer, unanswered := results.Ask(ctx, b, train.FileRequest{Job: d.Job.ID}); unanswered == nil {
		d.Folders = &answer.Folders
		if d.Report != nil && d.Report.Checkpoint != "" {
			d.CheckpointPath = answer.Folders.OnHost(d.Report.Checkpoint)
		}
	}
	return nil
}

// optional reads a key, or returns nil if it does not exist.
func optional[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T], key string) (*T, error) {
	value, found, err := console.GetIfThere(ctx, b, bucket, key)
	if err != nil || !found {
		return nil, err
	}
	return &value, nil
}

// viewPlan returns the part of the plan about a job, or nil.
func viewPlan(plan train.Plan, job train.Job) *planView {
	if job.State.Terminal() {
		return nil
	}
	view := &planView{Generation: plan.Generation, Policy: plan.Policy, DecidedAt: plan.DecidedAt, Predicted: plan.Predicted(job.ID)}
	if allocation, found := plan.Find(job.ID); found {
		view.Allocation = &allocation
		return view
	}
	for i, w := range plan.Waiting {
		if w.Job == job.ID {
			view.Waiting, view.Position, view.Queue = &w, i+1, len(plan.Waiting)
			view.Holders = viewHolders(plan, w.Holders)
			return view
		}
	}
	return nil
}

func viewHolders(plan train.Plan, ids []train.JobID) []holderView {
	var views []holderView
	for _, id := range ids {
		if a, found := plan.Find(id); found {
			views = append(views, holderView{Job: id, Places: a.Places(), Finish: plan.Predicted(id).Finish})
		}
	}
	return views
}
