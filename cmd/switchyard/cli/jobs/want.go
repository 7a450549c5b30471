package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// verb is a command that changes what people want of jobs.
type verb struct {
	name, short, long string
	want              event.Wanted
	// states are those of the jobs on which the verb acts if a filter chooses jobs.
	states []train.State
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
	stopped := []train.State{train.StateHeld, train.StatePaused}
	live := slices.DeleteFunc(train.LiveStates(), func(s train.State) bool { return slices.Contains(stopped, s) })
	return []verb{
		{
			"pause", "Make jobs leave by their checkpoint and wait until they are resumed",
			`Makes the jobs leave at their next checkpoint. They keep their place and hold no device until ` + "`switchyard resume`" + `. A job that cannot be asked to
leave, because its code neither calls the job API nor gets a signal, is refused; --force ends its processes, and it goes on from its last checkpoint.`,
			event.Wanted{State: train.WantPaused},
			append(slices.Clone(live), train.StateHeld),
			true, ended,
		},
		{
			"resume", "Continue jobs that are paused, failed or cancelled, from their checkpoints",
			`Continues the jobs from their checkpoints, under the same id: what is paused or held, and what has failed or was cancelled.`,
			event.Wanted{State: train.WantRun},
			stopped,
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
			live,
			false, ended,
		},
		{
			"release", "Let held jobs start",
			`Lets jobs that are held or paused start again.`,
			event.Wanted{State: train.WantRun},
			stopped,
			false, func(j train.Job) string { return cmp.Or(ended(j), withheld(j)) },
		},
		{
			"requeue", "Make jobs leave by their checkpoint and wait at the end of the queue",
			`Makes the jobs leave at their next checkpoint and puts them at the end of the queue of their priority. Jobs that are held or paused stay so.
--force ends the processes of a job that cannot be asked to leave.`,
			event.Wanted{State: train.WantRun, Requeue: true},
			train.LiveStates(),
			true, ended,
		},
	}
}

// request is what a person asks of jobs by a verb.
type request struct {
	choice
	event.Wanted
	wait    bool
	timeout time.Duration
}

func (v verb) command(a *console.Console) *cobra.Command {
	o := request{Wanted: v.want}
	cmd := &cobra.Command{
		Use:   v.name + " JOB.. | --all | FILTER..",
		Short: v.short,
		Long: v.long + " " + choiceHelp + `

Exit codes: 0 the requests are followed, 1 a job is unknown or refuses it, or nobody follows it.`,
		RunE: func(cmd *cobra.Command, refs []string) error {
			if o.timeout <= 0 {
				return exit.Usagef("--timeout %s: want more than 0s", o.timeout)
			}
			if err := o.check(refs); err != nil {
				return err
			}
			o.By = installation.CurrentUser()
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return v.ask(ctx, a, y, refs, o) })
		},
	}
	o.declare(cmd.Flags())
	cmd.Flags().StringVar(&o.Reason, "reason", "", "reason, shown with the job")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Hour, "with --wait, how long to wait")
	if v.leaves {
		cmd.Flags().BoolVar(&o.Force, "force", false, "end the processes of a job that cannot be asked to leave")
		cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the jobs have left")
	}
	return cmd
}

// ask publishes what is wanted of each job, and waits until the register shows it. Jobs that are named are checked
// first: if one refuses, nothing is asked of any. Each job that a filter chooses stands for itself.
func (v verb) ask(ctx context.Context, a *console.Console, y console.Yard, refs []string, o request) error {
	jobs, err := o.find(ctx, a, y, refs, v.name, v.states...)
	if err != nil {
		return err
	}
	all := outcomes[train.Job]{}
	for _, j := range jobs {
		err := v.check(ctx, y, j, o.Force)
		if err != nil && !o.chosen() {
			return err
		}
		all.add(j, err)
	}
	asked := outcomes[train.Job]{errs: all.errs}
	for _, j := range all.done {
		_, err := y.Publish(ctx, event.JobFact(j.ID, event.FactWanted, fmt.Sprintf("wanted/%d", time.Now().UnixNano()), o.of(j)))
		asked.add(j, err)
	}
	rows := outcomes[wantRow]{errs: asked.errs}
	for _, before := range asked.done {
		row, err := o.await(ctx, y, before)
		rows.add(row, err)
	}
	return rows.print(a, func(r wantRow) string { return fmt.Sprintf("job %s %s: %s", r.ID, r.State, r.Message) })
}

// of returns what is wanted of a job. Another place in the queue ends neither a hold nor a pause.
func (o request) of(j train.Job) event.Wanted {
	wish := o.Wanted
	if wish.Requeue && j.Withheld().Code != "" {
		wish.State, wish.Force = j.Wanted.State, wish.Force || j.Wanted.Force
	}
	return wish
}

// await waits until the register shows what is wanted of a job.
func (o request) await(ctx context.Context, y console.Yard, before train.Job) (wantRow, error) {
	j, err := awaitJob(ctx, y, before.ID, 10*time.Second, func(j train.Job) bool {
		return j.State.Terminal() != before.State.Terminal() || follows(before, j, o.of(before))
	})
	if err != nil {
		return wantRow{}, exit.Errorf(exit.Failed, "the request is stored and will be followed; is the admission service running?", "job %s: %v", before.ID, err)
	}
	if o.wait {
		if j, err = awaitJob(ctx, y, before.ID, o.timeout, func(j train.Job) bool { return !j.State.Active() }); err != nil {
			return wantRow{}, exit.Errorf(exit.Failed, "the request is stored and will be followed", "job %s has not left after %s: still %s", before.ID, o.timeout, j.State)
		}
	}
	return wantRow{ID: j.ID, State: j.State, Message: j.Message}, nil
}

// outcomes are what became of each job.
type outcomes[T any] struct {
	done []T
	errs []error
}

func (o *outcomes[T]) add(done T, err error) {
	if err != nil {
		o.errs = append(o.errs, err)
		return
	}
	o.done = append(o.done, done)
}

// print shows what was done, and returns what was not.
func (o *outcomes[T]) print(a *console.Console, line func(T) string) error {
	if a.Output == "json" {
		return errors.Join(append(o.errs, a.PrintJSON(append([]T{}, o.done...)))...)
	}
	for _, d := range o.done {
		fmt.Fprintln(a.Stdout, line(d))
	}
	return errors.Join(o.errs...)
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
func (v verb) check(ctx context.Context, y console.Yard, j train.Job, force bool) error {
	if why := v.refuses(j); why != "" {
		return exit.Errorf(exit.Failed, "", "job %s %s", j.ID, why)
	}
	d, err := y.Job(ctx, string(j.ID), exit.Failed)
	if err != nil {
		return err
	}
	if d.Experiment != "" {
		return exit.Errorf(exit.Failed, "`switchyard tune stop "+d.Experiment+"` ends the experiment", "job %s is a trial: experiment %s decides when it runs", j.ID, d.Experiment)
	}
	if !v.leaves || force || !j.State.Active() || d.Attempt == nil || !d.Attempt.Live() {
		return nil
	}
	if can, err := askable(ctx, y, d); err != nil || can {
		return err
	}
	return exit.Errorf(exit.Failed, "--force ends its processes; `switchyard hold "+string(j.ID)+"` only keeps it from starting again",
		"job %s cannot be asked to leave: it has not called the job API, and gets no signal", j.ID)
}

// askable reports whether an attempt can be asked to leave. A young one gets some time: its program first imports its
// libraries, and the supervisor looks once a second whether it catches a signal.
func askable(ctx context.Context, y console.Yard, d view.Detail) (can bool, err error) {
	const young = 10 * time.Second
	left := young
	if !d.Attempt.StartedAt.IsZero() {
		left -= time.Since(d.Attempt.StartedAt)
	}
	wait, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	for {
		can = d.Report != nil && d.Report.Askable()
		if can || err != nil || !tick.Pause(wait, LogPoll) {
			return can, err
		}
		d, err = y.Job(ctx, string(d.Job.ID), exit.Failed)
	}
}

var errNotSeen = errors.New("the register does not show it")

// awaitJob follows the record of a job until a condition holds. It also returns the last record that it has seen.
func awaitJob(ctx context.Context, y console.Yard, id train.JobID, timeout time.Duration, holds func(train.Job) bool) (train.Job, error) {
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last train.Job
	seen := false
	err := y.Follow(wait, []train.JobID{id}, func(j train.Job) bool {
		last, seen = j, holds(j)
		return !seen
	})
	if !seen && err == nil {
		err = cmp.Or(ctx.Err(), errNotSeen)
	}
	return last, err
}
