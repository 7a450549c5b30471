package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// cancelOptions say how jobs are cancelled.
type cancelOptions struct {
	reason  string
	noWait  bool
	timeout time.Duration
}

// cancelTimeout is how long the end of a cancelled job is waited for: its processes get some seconds to leave.
const cancelTimeout = 30 * time.Second

func (a *app) cancelCommand() *cobra.Command {
	var o cancelOptions
	cmd := &cobra.Command{
		Use:   "cancel JOB..",
		Short: "End jobs for good",
		Long: `Asks for the end of the jobs and waits until they have ended. Processes get SIGTERM and a few seconds to leave, then SIGKILL. A job is named by its id,
the beginning of its id, or its name (the newest one of that name). Where one is unknown nothing is cancelled.

Exit codes: 0 all are cancelled, 1 a job had ended otherwise, is unknown, or did not end in time.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if o.timeout <= 0 {
				return failure(ExitUsage, "", "--timeout %s: want more than 0s", o.timeout)
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.cancel(ctx, b, refs, o) })
		},
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for whoever looks at the job later")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "return when the request is stored")
	cmd.Flags().DurationVar(&o.timeout, "timeout", cancelTimeout, "how long to wait for the end of the jobs")
	return cmd
}

// cancelRow is what became of one job.
type cancelRow struct {
	ID    train.JobID `json:"id"`
	State train.State `json:"state"`
	// Result: cancelled, requested (not waited for), ended (otherwise, before or meanwhile) or pending (not ended in time).
	Result  string `json:"result"`
	Message string `json:"message"`
}

func (a *app) cancel(ctx context.Context, b *bus.Bus, refs []string, o cancelOptions) error {
	jobs, err := findJobs(ctx, b, refs, ExitError)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.State.Terminal() {
			continue
		}
		request := event.JobFact(j.ID, event.FactCancelRequested, "cancel", event.CancelRequested{By: currentUser(), Reason: o.reason})
		if err := storeRequest(ctx, b, request); err != nil {
			return err
		}
	}
	last := jobs
	if !o.noWait {
		if last, err = watchToEnd(ctx, b, jobs, o.timeout, func(train.Job) {}); err != nil {
			return err
		}
	}
	rows := make([]cancelRow, len(last))
	for i, j := range last {
		rows[i] = newCancelRow(jobs[i], j, o)
	}
	return a.printCancels(rows)
}

// storeRequest publishes, and does not try for ever.
func storeRequest(ctx context.Context, b *bus.Bus, f event.Fact) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return b.Publish(ctx, f)
}

func newCancelRow(before, after train.Job, o cancelOptions) cancelRow {
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
		r.Result, r.Message = "pending", fmt.Sprintf("has not ended after %s: still %s", o.timeout, after.State)
	}
	return r
}

func (a *app) printCancels(rows []cancelRow) error {
	var trouble []string
	pending := false
	for _, r := range rows {
		line := fmt.Sprintf("job %s %s", r.ID, r.Message)
		pending = pending || r.Result == "pending"
		switch {
		case r.Result == "ended" || r.Result == "pending":
			trouble = append(trouble, line)
		case a.output != "json":
			_, _ = fmt.Fprintln(a.stdout, line)
		}
	}
	if a.output == "json" {
		if err := a.printJSON(rows); err != nil {
			return err
		}
	}
	if len(trouble) == 0 {
		return nil
	}
	fix := ""
	if pending {
		fix = "the request is stored and will be followed; is the executor running? `switchyard describe JOB` tells where the job stands"
	}
	return failure(ExitError, fix, "%s", strings.Join(trouble, "\n"))
}
