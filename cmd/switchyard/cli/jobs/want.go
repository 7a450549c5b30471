package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// verb is a command that changes what people want of jobs.
type verb struct {
	name, short, long string
	want              event.Wanted
	// leaves reports that an attempt that runs has to leave.
	leaves bool
	// refuses says why the verb makes no sense for a job; empty if it does.
	refuses func(j train.Job) string
}

func verbs() []verb {
	ended := func(j train.Job) string {
		if j.State.Terminal() {
			return "has ended: " + string(j.State)
		}
		return ""
	}
	withheld := func(j train.Job) string {
		if j.Withheld().Code == "" {
			return "is neither held nor paused: " + string(j.State)
		}
		return ""
	}
	return []verb{
		{
			"pause", "Make jobs leave by their checkpoint and wait until they are resumed",
			`Makes the jobs leave at their next checkpoint. They keep their place and hold no device until ` + "`switchyard resume`" + `. A job that cannot be asked to
leave, because its code neither calls the job API nor gets a signal, is refused; --force ends its processes, and it goes on from its last checkpoint.`,
			event.Wanted{State: train.WantPaused},
			true, ended,
		},
		{
			"resume", "Continue jobs that are paused, failed or cancelled, from their checkpoints",
			`Continues the jobs from their checkpoints, under the same id: what is paused or held, and what has failed or was cancelled.`,
			event.Wanted{State: train.WantRun},
			false, func(j train.Job) string {
				if j.Spec.Array != "" && j.State.Terminal() {
					return "is an array that has ended: name those of its jobs that are to go on, as " + string(j.ID) + "/0"
				}
				if j.State == train.StateFailed || j.State == train.StateCancelled {
					return ""
				}
				return cmp.Or(ended(j), withheld(j))
			},
		},
		{
			"hold", "Keep jobs from being started",
			`Keeps the jobs from being started until ` + "`switchyard release`" + `. A job that runs goes on, but does not start again once it has left.`,
			event.Wanted{State: train.WantHeld},
			false, ended,
		},
		{
			"release", "Let held jobs start",
			`Lets jobs that are held or paused start again.`,
			event.Wanted{State: train.WantRun},
			false, func(j train.Job) string { return cmp.Or(ended(j), withheld(j)) },
		},
		{
			"requeue", "Make jobs leave by their checkpoint and wait at the end of the queue",
			`Makes the jobs leave at their next checkpoint and puts them at the end of the queue of their priority. --force ends the processes of a job that
cannot be asked to leave.`,
			event.Wanted{State: train.WantRun, Requeue: true},
			true, ended,
		},
	}
}

func (v verb) command(a *console.Console) *cobra.Command {
	wish, wait, timeout := v.want, false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   v.name + " JOB..",
		Short: v.short,
		Long: v.long + `

A job is named by its id, the beginning of its id, or its name (the newest job with that name). Where one is unknown or refused nothing is asked for.
Exit codes: 0 the request is followed, 1 a job is unknown or refuses it, or nobody follows it.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if timeout <= 0 {
				return exit.Usagef("--timeout %s: want more than 0s", timeout)
			}
			wish.By = console.CurrentUser()
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return v.ask(ctx, a, b, refs, wish, wait, timeout) })
		},
	}
	cmd.Flags().StringVar(&wish.Reason, "reason", "", "reason, shown with the job")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Hour, "with --wait, how long to wait")
	if v.leaves {
		cmd.Flags().BoolVar(&wish.Force, "force", false, "end the processes of a job that cannot be asked to leave")
		cmd.Flags().BoolVar(&wait, "wait", false, "wait until the jobs have left")
	}
	return cmd
}

// ask checks all jobs, then publishes what is wanted of each and waits until the register shows it.
func (v verb) ask(ctx context.Context, a *console.Console, b *bus.Bus, refs []string, wish event.Wanted, wait bool, timeout time.Duration) error {
	jobs, err := console.FindJobs(ctx, b, refs, exit.Failed)
	if err != nil {
		return err
	}
	experiments, err := console.ListBucket(ctx, b, contract.Experiments)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if err := v.check(ctx, b, j, experiments, wish.Force); err != nil {
			return err
		}
	}
	kv, err := console.OpenBucket(ctx, b, contract.Jobs)
	if err != nil {
		return err
	}
	rows := make([]wantRow, len(jobs))
	for i, before := range jobs {
		key := fmt.Sprintf("wanted/%d", time.Now().UnixNano())
		if err := StoreRequest(ctx, b, event.JobFact(before.ID, event.FactWanted, key, wish)); err != nil {
			return err
		}
		j, err := awaitJob(ctx, kv, before.ID, 10*time.Second, func(j train.Job) bool {
			return j.State.Terminal() != before.State.Terminal() || follows(before, j, wish)
		})
		if err != nil {
			return exit.Errorf(exit.Failed, "the request is stored and will be followed; is the admission service running?", "job %s: %v", before.ID, err)
		}
		if wait {
			j, err = awaitJob(ctx, kv, before.ID, timeout, func(j train.Job) bool { return !j.State.Active() })
			if err != nil {
				return exit.Errorf(exit.Failed, "the request is stored and will be followed", "job %s has not left after %s: still %s", before.ID, timeout, j.State)
			}
		}
		rows[i] = wantRow{ID: j.ID, State: j.State, Message: j.Message}
	}
	if a.Output == "json" {
		return a.PrintJSON(rows)
	}
	for _, r := range rows {
		fmt.Fprintf(a.Stdout, "job %s %s: %s\n", r.ID, r.State, r.Message)
	}
	return nil
}

// follows reports whether the register shows what is wanted.
func follows(before, j train.Job, wish event.Wanted) bool {
	return !j.State.Terminal() && j.Wants() == wish.State && j.Wanted.Force == wish.Force && (!wish.Requeue || j.RequeuedAt.After(before.RequeuedAt))
}

// wantRow says what became of a wish.
type wantRow struct {
	ID      train.JobID `json:"id"`
	State   train.State `json:"state"`
	Message string      `json:"message"`
}

// check returns why a job refuses the verb.
func (v verb) check(ctx context.Context, b *bus.Bus, j train.Job, experiments []contract.ExperimentRecord, force bool) error {
	if why := v.refuses(j); why != "" {
		return exit.Errorf(exit.Failed, "", "job %s %s", j.ID, why)
	}
	for _, e := range experiments {
		for i := range e.Trials {
			if t := &e.Trials[i]; t.Job == j.ID && !t.Foreign {
				return exit.Errorf(exit.Failed, "`switchyard tune stop "+e.ID+"` ends the experiment", "job %s is a trial: experiment %s decides when it runs", j.ID, e.ID)
			}
		}
	}
	if !v.leaves || force || !j.State.Active() {
		return nil
	}
	attempt, found, err := console.GetIfThere(ctx, b, contract.Attempts, string(j.ID))
	if err != nil || !found || !attempt.Live() {
		return err
	}
	if can, err := askable(ctx, b, attempt); err != nil || can {
		return err
	}
	return exit.Errorf(exit.Failed, "--force ends its processes; `switchyard hold "+string(j.ID)+"` only keeps it from starting again",
		"job %s cannot be asked to leave: it has not called the job API, and gets no signal", j.ID)
}

// askable reports whether an attempt can be asked to leave. A young one gets some time: its program first imports its
// libraries, and the supervisor looks once a second whether it catches a signal.
func askable(ctx context.Context, b *bus.Bus, a train.Attempt) (bool, error) {
	const young = 10 * time.Second
	left := young
	if !a.StartedAt.IsZero() {
		left -= time.Since(a.StartedAt)
	}
	wait, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	for {
		report, _, err := console.GetIfThere(ctx, b, contract.Reports, contract.ReportKey(a.Job, a.Number))
		if err != nil || report.Askable() || !tick.Pause(wait, LogPoll) {
			return report.Askable(), err
		}
	}
}

var errNotSeen = errors.New("the register does not show it")

// awaitJob polls the record of a job until a condition holds. It also returns the last record that it has read.
func awaitJob(ctx context.Context, kv *bus.KV[train.Job], id train.JobID, timeout time.Duration, holds func(train.Job) bool) (train.Job, error) {
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last train.Job
	for range tick.Every(wait, 20*time.Millisecond) {
		e, err := kv.Get(wait, string(id))
		if err != nil {
			continue
		}
		if last = e.Value; holds(last) {
			return last, nil
		}
	}
	if ctx.Err() != nil {
		return last, ctx.Err()
	}
	return last, errNotSeen
}
