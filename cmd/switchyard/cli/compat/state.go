package compat

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// stateOptions are the flags of scheduler-state.
type stateOptions struct {
	allUsers, extended bool
	newest             int
}

func compatStateCommand(a *console.Console) *cobra.Command {
	var o stateOptions
	cmd := &cobra.Command{
		Use:    nameState,
		Short:  "Show the jobs that were submitted last, as scheduler-state does",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.newest < 1 {
				return exit.Usagef("--nlast %d: want 1 or more", o.newest)
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return compatState(ctx, a, y, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.allUsers, "all_users", false, "the jobs of all users")
	fs.IntVar(&o.newest, "nlast", jobs.FinishedShown, "number of jobs, the newest first")
	fs.BoolVar(&o.extended, "extended", false, "all the options of the jobs")
	return cmd
}

func compatState(ctx context.Context, a *console.Console, y console.Yard, o stateOptions, now time.Time) error {
	q := view.Query{Newest: o.newest}
	if !o.allUsers {
		q.User = installation.CurrentUser()
	}
	page, err := y.Jobs(ctx, q)
	if err != nil {
		return err
	}
	ids := make([]train.JobID, len(page.Jobs))
	for i, j := range page.Jobs {
		ids[i] = j.ID
	}
	shown, err := y.Records(ctx, ids)
	if err != nil {
		return err
	}
	left := page.Left
	if left.Older > 0 {
		fmt.Fprintf(a.Stderr, "%s not shown (--nlast %d shows all)\n", render.Plural(left.Older, "older job"), len(shown)+left.Older)
	}
	if len(shown) == 0 && left.Others > 0 {
		fmt.Fprintf(a.Stderr, "no job of yours; %s of other users (--all_users shows them)\n", render.Plural(left.Others, "job"))
	}
	if a.Output == "json" {
		return a.PrintJSON(shown)
	}
	header := []string{"JOBID", "JOB_NAME", "USER", "STATUS", "EPOCHS", "GPUS", "SUBMITTED"}
	if o.extended {
		header = append(header, "IMAGE_NAME", "SCRIPT_PATH", "CUSTOM_DIR", "SNAPSHOTS_DIR", "BATCH_SIZE", "TRAINING_SET_SIZE", "MAX_EPOCHS", "IS_SINGLE_GPU",
			"DISABLE_GPU_SHARING", "ESTIMATED_MEMORY", "PORT_MAPPING", "EST_NHOURS", "DESCRIPTION")
	}
	return a.Table(strings.Join(header, "\t"), func(w io.Writer) {
		for _, j := range shown {
			fmt.Fprintln(w, strings.Join(stateCells(j, o.extended, now), "\t"))
		}
	})
}

// stateCells are the columns of one job.
func stateCells(j *train.Job, extended bool, now time.Time) []string {
	const width = 60
	s := j.Spec
	cells := []string{
		string(j.ID), render.Cell(s.Name, width), render.Cell(s.User, width), string(j.State), fmt.Sprintf("%d/%d", j.EpochsDone, s.MaxEpochs), fmt.Sprint(len(j.Devices)),
		render.Clock(j.SubmittedAt, now),
	}
	if !extended {
		return cells
	}
	word := map[bool]string{true: "True", false: "False"}
	number := func(n float64) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprintf("%g", n)
	}
	return append(cells, render.Cell(s.Image, width), render.Cell(s.ScriptPath, width), render.Cell(s.CustomDir, width), render.Cell(s.SnapshotsDir, width), fmt.Sprint(s.BatchSize),
		fmt.Sprint(s.TrainingSetSize), fmt.Sprint(s.MaxEpochs), word[s.SingleDevice], word[s.DisableSharing], number(float64(s.EstimatedMemoryMiB)),
		render.Dash(render.PortMapping(s.Ports)), number(s.EstimatedHours), render.Cell(j.Message, width))
}

func compatCancelCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:    nameCancel + " JOBID",
		Short:  "Cancel a job, as scheduler-cancel-job does",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				return jobs.Cancel(ctx, a, y, refs, jobs.CancelOptions{Timeout: jobs.CancelTimeout})
			})
		},
	}
}

func compatLogsCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:    nameLogs + " JOBID",
		Short:  "Show the output of a job, as scheduler-get-logs does",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				return jobs.Logs(ctx, a, y, args[0], jobs.LogOptions{Tail: -1})
			})
		},
	}
}
