package jobs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
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
	spec, err := submittedAs(ctx, b, job)
	if err != nil {
		return err
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

// submittedAs returns the submission of a job. Its record has defaults and resolved folders; it serves if the stream no
// longer has the submission.
func submittedAs(ctx context.Context, b *bus.Bus, job train.Job) (train.Spec, error) {
	submission, found, err := console.LastIfThere[event.Submitted](ctx, b, event.StreamJobs, event.JobSubject(job.ID, event.FactSubmitted))
	if err != nil || !found {
		return job.Spec, err
	}
	return submission.Spec, nil
}
