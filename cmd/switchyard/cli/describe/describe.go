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
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
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
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return describe(ctx, a, y, args[0], time.Now()) })
		},
	}
}

// description is what is shown of a job. What is missing is nil.
type description struct {
	Job        train.Job            `json:"job"`
	RunSeconds float64              `json:"run_seconds"`
	Attempt    *view.Attempt        `json:"attempt,omitempty"`
	Report     *train.AttemptReport `json:"report,omitempty"`
	Batches    []view.EpochBatch    `json:"batches,omitempty"`
	Plan       *view.Plan           `json:"plan,omitempty"`
	Company    *companyView         `json:"company,omitempty"`
	// ContinuedBy are the jobs that began from its checkpoints.
	ContinuedBy []train.JobID `json:"continued_by,omitempty"`
	// Unsearched says that nobody has looked for them.
	Unsearched bool `json:"continued_by_unknown,omitempty"`
	// Progress is the part of the training that is done, by its steps if they are known.
	Progress *float64 `json:"progress,omitempty"`
	// Silent is set while running code reports no more steps.
	Silent  *train.Reason         `json:"silent,omitempty"`
	Model   *train.Model          `json:"model,omitempty"`
	Account *train.Account        `json:"account,omitempty"`
	Course  *train.EnergyProgress `json:"course,omitempty"`
	Tuning  *view.Tuning          `json:"tuning,omitempty"`
	// Mounted says whether the job sees its folders as /custom, /snapshots and /data. It is nil before the job has
	// started.
	Mounted *bool `json:"mounted,omitempty"`
	// Folders are paths on the job's machine. It is nil before the start, for pods, and if the executor does not answer.
	Folders *train.Folders `json:"folders,omitempty"`
	// CheckpointPath is the machine's path of the newest checkpoint.
	CheckpointPath string `json:"checkpoint_path,omitempty"`
}

func describe(ctx context.Context, a *console.Console, y console.Yard, ref string, now time.Time) error {
	detail, err := y.Job(ctx, ref, exit.Failed)
	if err != nil {
		return err
	}
	d := describing(detail)
	if d.Mounted != nil {
		d.locate(ctx, y)
	}
	if a.Output == "json" {
		return a.PrintJSON(d)
	}
	_, err = fmt.Fprint(a.Stdout, describeText(d, now))
	return err
}

// locate asks the executor of a job that has started where its files are.
func (d *description) locate(ctx context.Context, y console.Yard) {
	answer, err := results.Ask(ctx, y, train.FileRequest{Job: d.Job.ID})
	if err != nil {
		return
	}
	d.Folders = &answer.Folders
	if d.Report != nil && d.Report.Checkpoint != "" {
		d.CheckpointPath = answer.Folders.OnHost(d.Report.Checkpoint)
	}
}

// card is what became of the job.
func (d description) card() render.Card {
	c := render.Card{Job: d.Job, Account: d.Account, Report: d.Report, Folders: d.Folders}
	if d.Attempt != nil {
		c.Places = d.Attempt.Places()
	}
	return c
}

func describing(d view.Detail) description {
	return description{
		Job: d.Job, RunSeconds: d.RunSeconds, Attempt: d.Attempt, Report: d.Report, Batches: d.Batches, Plan: d.Plan, Company: viewCompany(d),
		ContinuedBy: d.ContinuedBy, Unsearched: d.Unsearched, Progress: d.Progress, Silent: d.Silent, Model: d.Model, Account: d.Account, Course: d.Course, Tuning: d.Tuning, Mounted: d.Mounted,
	}
}
