package jobs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
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
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return rerun(ctx, a, y, refs[0], id) })
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "id of the new job (default: the name and a random suffix)")
	return cmd
}

func rerun(ctx context.Context, a *console.Console, y console.Yard, ref, id string) error {
	d, err := y.Job(ctx, ref, exit.Failed)
	if err != nil {
		return err
	}
	spec := submittedAs(d)
	next, err := (&submitFlags{id: id}).jobID(spec)
	if err != nil {
		return err
	}
	result, err := Submit(ctx, y, spec, next)
	if err != nil {
		return err
	}
	if result.Predicted, err = firstPrediction(ctx, y, result); err != nil {
		return err
	}
	return printSubmission(a, result, time.Now())
}

// submittedAs returns the submission of a job. Its record has defaults and resolved folders; it serves if the stream no
// longer has the submission.
func submittedAs(d view.Detail) train.Spec {
	if d.Submission == nil {
		return d.Job.Spec
	}
	return *d.Submission
}
