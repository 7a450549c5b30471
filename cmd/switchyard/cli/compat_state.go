package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// stateOptions are the flags of scheduler-state.
type stateOptions struct {
	allUsers, extended bool
	newest             int
}

func (a *app) compatStateCommand() *cobra.Command {
	var o stateOptions
	cmd := &cobra.Command{
		Use:    compatState,
		Short:  "Show the jobs that were submitted last, as scheduler-state does",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.newest < 1 {
				return failure(ExitUsage, "", "--nlast %d: want 1 or more", o.newest)
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.compatState(ctx, b, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.allUsers, "all_users", false, "the jobs of all users, not yours alone")
	fs.IntVar(&o.newest, "nlast", finishedShown, "how many jobs, from the newest on")
	fs.BoolVar(&o.extended, "extended", false, "all the options of the jobs")
	return cmd
}

func (a *app) compatState(ctx context.Context, b *bus.Bus, o stateOptions, now time.Time) error {
	jobs, err := listBucket[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return err
	}
	shown, left := psOptions{allUsers: o.allUsers, newest: o.newest}.choose(jobs, currentUser())
	if left.older > 0 {
		_, _ = fmt.Fprintf(a.stderr, "%s not shown (--nlast %d shows all)\n", plural(left.older, "older job"), len(shown)+left.older)
	}
	if len(shown) == 0 && left.others > 0 {
		_, _ = fmt.Fprintf(a.stderr, "no job of yours; %s of other users (--all_users shows them)\n", plural(left.others, "job"))
	}
	if a.output == "json" {
		if shown == nil {
			shown = []train.Job{}
		}
		return a.printJSON(shown)
	}
	header := []string{"JOBID", "JOB_NAME", "USER", "STATUS", "EPOCHS", "GPUS", "SUBMITTED"}
	if o.extended {
		header = append(header, "IMAGE_NAME", "SCRIPT_PATH", "CUSTOM_DIR", "SNAPSHOTS_DIR", "BATCH_SIZE", "TRAINING_SET_SIZE", "MAX_EPOCHS", "IS_SINGLE_GPU",
			"DISABLE_GPU_SHARING", "ESTIMATED_MEMORY", "PORT_MAPPING", "EST_NHOURS", "DESCRIPTION")
	}
	return a.table(strings.Join(header, "\t"), func(w io.Writer) {
		for _, j := range shown {
			_, _ = fmt.Fprintln(w, strings.Join(stateCells(j, o.extended, now), "\t"))
		}
	})
}

// stateCells are the columns of one job.
func stateCells(j train.Job, extended bool, now time.Time) []string {
	const width = 60
	s := j.Spec
	cells := []string{
		string(j.ID), cell(s.Name, width), cell(s.User, width), string(j.State), fmt.Sprintf("%d/%d", j.EpochsDone, s.MaxEpochs), fmt.Sprint(len(j.Devices)),
		clock(j.SubmittedAt, now),
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
	return append(cells, cell(s.Image, width), cell(s.ScriptPath, width), cell(s.CustomDir, width), cell(s.SnapshotsDir, width), fmt.Sprint(s.BatchSize),
		fmt.Sprint(s.TrainingSetSize), fmt.Sprint(s.MaxEpochs), word[s.SingleDevice], word[s.DisableSharing], number(float64(s.EstimatedMemoryMiB)),
		dash(portMapping(s.Ports)), number(s.EstimatedHours), cell(j.Message, width))
}

func (a *app) compatCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:    compatCancel + " JOBID",
		Short:  "End a job for good, as scheduler-cancel-job does",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				return a.cancel(ctx, b, refs, cancelOptions{timeout: cancelTimeout})
			})
		},
	}
}

func (a *app) compatLogsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    compatLogs + " JOBID",
		Short:  "Show the output of a job, as scheduler-get-logs does",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.logs(ctx, b, args[0], logOptions{tail: -1}) })
		},
	}
}
