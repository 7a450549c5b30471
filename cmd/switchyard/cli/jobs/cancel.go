package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// CancelOptions are the flags of cancel.
type CancelOptions struct {
	choice
	reason  string
	noWait  bool
	Timeout time.Duration
}

// CancelTimeout bounds the wait for the end of a cancelled job, whose processes get some seconds to exit.
const CancelTimeout = 30 * time.Second

func cancelCommand(a *console.Console) *cobra.Command {
	var o CancelOptions
	cmd := &cobra.Command{
		Use:   "cancel JOB.. | --all | FILTER..",
		Short: "Cancel jobs",
		Long: `Cancels the jobs and waits until they have ended. Processes get SIGTERM and a few seconds to exit, then SIGKILL. ` + choiceHelp + `

Exit codes: 0 all jobs are cancelled, 1 a job had ended in another state, is unknown, or did not end in time.`,
		Example: `  switchyard cancel resnet-4f2a
  switchyard cancel --state queued --name 'sweep-*'
  switchyard cancel --all --yes`,
		RunE: func(cmd *cobra.Command, refs []string) error {
			if err := o.check(refs); err != nil {
				return err
			}
			if o.Timeout <= 0 {
				return exit.Usagef("--timeout %s: want more than 0s", o.Timeout)
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return Cancel(ctx, a, y, refs, o) })
		},
	}
	o.declare(cmd.Flags())
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown in the job's history")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "return when the request is stored")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", CancelTimeout, "how long to wait for the end of the jobs")
	return cmd
}

// cancelRow is the outcome for one job.
type cancelRow struct {
	ID    train.JobID `json:"id"`
	State train.State `json:"state"`
	// Result is cancelled, requested (with --no-wait), ended (in another state, before or meanwhile) or pending (not
	// ended in time).
	Result  string `json:"result"`
	Message string `json:"message"`
}

func Cancel(ctx context.Context, a *console.Console, y console.Yard, refs []string, o CancelOptions) error {
	jobs, err := o.find(ctx, a, y, refs, "cancel", train.LiveStates()...)
	if err != nil {
		return err
	}
	var asked []train.Job
	var errs []error
	for _, j := range jobs {
		if j.State.Terminal() {
			asked = append(asked, j)
			continue
		}
		life := fmt.Sprintf("cancel/%d", j.Resumed) // a repeated request counts once in each life of a job
		request := event.JobFact(j.ID, event.FactCancelRequested, life, event.CancelRequested{By: installation.CurrentUser(), Reason: o.reason})
		if _, err := y.Publish(ctx, request); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", j.ID, err))
			continue
		}
		asked = append(asked, j)
	}
	last := asked
	if !o.noWait && len(asked) > 0 {
		if last, err = watchToEnd(ctx, y, asked, o.Timeout, func(train.Job) {}); err != nil {
			return err
		}
	}
	rows := make([]cancelRow, len(last))
	for i, j := range last {
		rows[i] = newCancelRow(asked[i], j, o)
	}
	return errors.Join(append(errs, printCancels(a, rows))...)
}

func newCancelRow(before, after train.Job, o CancelOptions) cancelRow {
	r := cancelRow{ID: after.ID, State: after.State}
	switch {
	case after.State == train.StateCancelled && before.State.Terminal():
		r.Result, r.Message = "cancelled", "was cancelled before"
	case after.State == train.StateCancelled:
		r.Result, r.Message = "cancelled", "cancelled"
	case before.State.Terminal():
		r.Result, r.Message = "ended", fmt.Sprintf("had ended before: %s", after.State)
	case after.State.Terminal():
		r.Result, r.Message = "ended", fmt.Sprintf("ended before it could be cancelled: %s", after.State)
	case o.noWait:
		r.Result, r.Message = "requested", "will be cancelled"
	default:
		r.Result, r.Message = "pending", fmt.Sprintf("has not ended after %s: still %s", o.Timeout, after.State)
	}
	return r
}

func printCancels(a *console.Console, rows []cancelRow) error {
	var trouble []string
	pending := false
	for _, r := range rows {
		line := fmt.Sprintf("job %s %s", r.ID, r.Message)
		pending = pending || r.Result == "pending"
		switch {
		case r.Result == "ended" || r.Result == "pending":
			trouble = append(trouble, line)
		case a.Output != "json":
			fmt.Fprintln(a.Stdout, line)
		}
	}
	if a.Output == "json" {
		if err := a.PrintJSON(rows); err != nil {
			return err
		}
	}
	if len(trouble) == 0 {
		return nil
	}
	fix := ""
	if pending {
		fix = "the request is stored and will be followed; is the executor running? `switchyard describe JOB` shows its state"
	}
	return exit.Errorf(exit.Failed, fix, "%s", strings.Join(trouble, "\n"))
}
