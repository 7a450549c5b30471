package jobs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
)

func rerunCommand(a *console.Console) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "rerun JOB",
		Short: "Submit a job again, under a new id, from the beginning",
		Long: `Submits what JOB was submitted as again, under a new id. It begins without a checkpoint; ` + "`switchyard resume`" + ` continues a job that failed or was
cancelled from its own.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return rerun(ctx, a, b, refs[0], id) })
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "id of the new job (default: the name and a random suffix)")
	return cmd
}

func rerun(ctx context.Context, a *console.Console, b *bus.Bus, ref, id string) error {
	job, err := console.FindJob(ctx, b, ref, exit.Failed)
	if err != nil {
		return err
	}
	spec := job.Spec
	// The record has defaults and resolved folders; the submission itself may be older than its stream keeps.
	submission, found, err := console.LastIfThere[event.Submitted](ctx, b, event.StreamJobs, event.JobSubject(job.ID, event.FactSubmitted))
	if err != nil {
		return err
	}
	if found {
		spec = submission.Spec
	}
	next, err := (&submitFlags{id: id}).jobID(spec)
	if err != nil {
		return err
	}
	result, err := Submit(ctx, b, spec, next)
	if err != nil {
		return err
	}
	if result.Predicted, err = firstPrediction(ctx, b, next); err != nil {
		return err
	}
	return printSubmission(a, result, time.Now())
}
