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
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/services/web/explain"
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

func describe(ctx context.Context, a *console.Console, y console.Yard, ref string, now time.Time) error {
	detail, err := y.Job(ctx, ref, exit.Failed)
	if err != nil {
		return err
	}
	d := explain.Of(detail)
	d.Company = companyOf(detail)
	if d.Mounted != nil {
		locate(ctx, y, &d)
	}
	if a.Output == "json" {
		return a.PrintJSON(d)
	}
	_, err = fmt.Fprint(a.Stdout, explain.Explain(d, now))
	return err
}

// locate asks the executor of a job that has started where its files are.
func locate(ctx context.Context, y console.Yard, d *explain.Job) {
	answer, err := results.Ask(ctx, y, rpc.FileRequest{Job: d.Job.ID})
	if err != nil {
		return
	}
	d.Folders = &answer.Folders
	if d.Report != nil && d.Report.Checkpoint != "" {
		d.CheckpointPath = answer.Folders.OnHost(d.Report.Checkpoint)
	}
}
