package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func waitCommand(a *console.Console) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB..",
		Short: "Wait until jobs have ended; the exit code says how",
		Long: `Waits until all the jobs have ended. A job is named by its id, the beginning of its id, or its name (the newest job with that name).

Exit codes: 0 all succeeded, 100 a job failed or was rejected, 103 a job was cancelled, 101 not all ended in time, 102 a job is unknown. If several
apply, it is the first of 102, 100, 101, 103.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if timeout < 0 {
				return exit.Usagef("--timeout %s: want 0s (no bound) or more", timeout)
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return wait(ctx, a, y, refs, timeout) })
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this long, e.g. 90m (0: never)")
	return cmd
}

// waitRow says how the wait for one job ended.
type waitRow struct {
	ID         train.JobID `json:"id"`
	State      train.State `json:"state"`
	Reason     string      `json:"reason"`
	Message    string      `json:"message"`
	EpochsDone int         `json:"epochs_done"`
	ExitCode   *int        `json:"exit_code,omitempty"`
}

func wait(ctx context.Context, a *console.Console, y console.Yard, refs []string, timeout time.Duration) error {
	jobs, err := console.FindJobs(ctx, y, refs, exit.UnknownJob)
	if err != nil {
		return err
	}
	last, err := watchToEnd(ctx, y, jobs, timeout, func(j train.Job) {
		if a.Output != "json" {
			fmt.Fprintln(a.Stdout, endLine(j))
		}
	})
	if err != nil {
		return err
	}
	if a.Output == "json" {
		rows := make([]waitRow, 0, len(last))
		for _, j := range last {
			rows = append(rows, waitRow{ID: j.ID, State: j.State, Reason: j.Reason, Message: j.Message, EpochsDone: j.EpochsDone, ExitCode: j.ExitCode})
		}
		if err := a.PrintJSON(rows); err != nil {
			return err
		}
	}
	return waitVerdict(last)
}

// endLine says in one line how a job ended.
func endLine(j train.Job) string {
	line := fmt.Sprintf("job %s %s", j.ID, j.State)
	if j.Message != "" {
		line += ": " + render.EscapeText(j.Message)
	}
	return line
}

// waitVerdict turns the last states into the exit code.
func waitVerdict(jobs []train.Job) error {
	var failed, open, cancelled int
	for _, j := range jobs {
		switch j.State {
		case train.StateSucceeded:
		case train.StateFailed, train.StateRejected:
			failed++
		case train.StateCancelled:
			cancelled++
		default:
			open++
		}
	}
	of := fmt.Sprintf("of %s", render.Plural(len(jobs), "job"))
	switch {
	case failed > 0:
		return exit.Errorf(exit.JobFailed, "`switchyard describe JOB` says why", "%d %s failed", failed, of)
	case open > 0:
		return exit.Errorf(exit.Unfinished, "", "%d %s not ended in time", open, of)
	case cancelled > 0:
		return exit.Errorf(exit.JobCancelled, "", "%d %s cancelled", cancelled, of)
	}
	return nil
}

// watchToEnd follows jobs until all have ended, the timeout passes (0: never) or ctx ends. It returns the last state
// of each job, in the given order, and calls ended once for each job that ends.
func watchToEnd(ctx context.Context, y console.Yard, jobs []train.Job, timeout time.Duration, ended func(train.Job)) ([]train.Job, error) {
	last, place, open, whole := make([]train.Job, len(jobs)), map[train.JobID]int{}, len(jobs), ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	note := func(i int, j train.Job) {
		if last[i].State.Terminal() {
			return
		}
		if last[i] = j; j.State.Terminal() {
			ended(j)
			open--
		}
	}
	var waiting []train.JobID
	for i, j := range jobs {
		place[j.ID] = i
		if note(i, j); !j.State.Terminal() {
			waiting = append(waiting, j.ID)
		}
	}
	if open == 0 {
		return last, nil
	}
	err := y.Follow(ctx, waiting, func(j train.Job) bool {
		note(place[j.ID], j)
		return open > 0
	})
	if ctx.Err() != nil && whole.Err() == nil {
		return last, nil // the timeout, whatever it interrupted
	}
	return last, err
}
