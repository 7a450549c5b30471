package jobs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// PsOptions narrow the list of jobs.
type PsOptions struct {
	AllUsers bool
	Newest   int
	selector
	// rejected and trials list those, too.
	rejected, trials bool
	// unfold lists the jobs of arrays, too; array is the one that is listed alone.
	unfold bool
	array  train.JobID
}

// FinishedShown is the number of finished jobs that are listed without -n.
const FinishedShown = 20

func psCommand(a *console.Console) *cobra.Command {
	var o PsOptions
	cmd := &cobra.Command{
		Use:     "ps [ARRAY]",
		Aliases: []string{"list"},
		Short:   "List jobs, the newest first",
		Long: fmt.Sprintf(`Lists your jobs: all active jobs and the newest %d finished ones, without rejected submissions and the trials of experiments. AGE is the time since the
submission, RAN the time on devices. ETA is the predicted time to the end or, for a waiting job, to its start; eight of ten times it lies in the interval. An ENERGY with ~ is
modelled, not measured. An array of jobs is one line; --unfold or its name shows its jobs, and so does -o json. While jobs share devices, BATCH is the micro-batch of each job and the number of micro-batches in a step.`, FinishedShown),
		Example: `  switchyard ps -A
  switchyard ps --state running,queued --project thesis
  switchyard ps --name 'resnet*' --label phase=warmup
  switchyard ps -n 100 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if cmd.Flags().Changed("newest") && o.Newest < 1 {
				return exit.Usagef("-n %d: want 1 or more", o.Newest)
			}
			if _, err := o.Query(); err != nil {
				return err
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				for _, ref := range refs {
					detail, err := y.Job(ctx, ref, exit.Failed)
					if err != nil {
						return err
					}
					o.array, o.AllUsers = detail.Job.ID, true
				}
				o.unfold = o.unfold || a.Output == "json"
				return Ps(ctx, a, y, o, time.Now())
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.AllUsers, "all", "A", false, "the jobs of all users")
	o.declare(fs)
	fs.BoolVar(&o.unfold, "unfold", false, "also the jobs of arrays")
	fs.BoolVar(&o.rejected, "rejected", false, "also submissions that were rejected")
	fs.BoolVar(&o.trials, "trials", false, "also the trials of experiments")
	fs.IntVarP(&o.Newest, "newest", "n", 0, fmt.Sprintf("the newest N jobs in any state (default: all active jobs and the newest %d finished ones)", FinishedShown))
	return cmd
}

// Query is what the options ask for.
func (o *PsOptions) Query() (view.Query, error) {
	q, err := o.query(o.AllUsers)
	q.Newest, q.NoRejected, q.NoTrials = o.Newest, !o.rejected, !o.trials
	q.Array, q.NoMembers = string(o.array), !o.unfold
	if o.Newest == 0 && o.array == "" {
		q.Finished = FinishedShown
	}
	return q, err
}

// Ps prints a list of jobs.
func Ps(ctx context.Context, a *console.Console, y console.Yard, o PsOptions, now time.Time) error {
	q, err := o.Query()
	if err != nil {
		return err
	}
	page, err := y.Jobs(ctx, q)
	if err != nil {
		return err
	}
	tell(a.Stderr, page.Left, len(page.Jobs))
	if a.Output == "json" {
		return a.PrintJSON(page.Jobs)
	}
	if len(page.Jobs) == 0 {
		return nil
	}
	more := psColumns(page.Jobs)
	header := []string{"ID\tNAME\tUSER\tSTATE\tREASON\tDEV\tEPOCH\tPROGRESS\tETA\tRAN\tAGE\tENERGY"}
	for _, c := range more {
		header = append(header, c.header)
	}
	return a.Table(strings.Join(header, "\t"), func(w io.Writer) {
		for _, j := range page.Jobs {
			fmt.Fprint(w, psLine(j, now))
			for _, c := range more {
				fmt.Fprint(w, "\t", c.cell(j))
			}
			fmt.Fprintln(w)
		}
	})
}

// tell names the jobs that are not listed, and the flag that lists them.
func tell(w io.Writer, l view.Left, shown int) {
	if l.Older > 0 {
		fmt.Fprintf(w, "%s not shown (-n %d shows all)\n", render.Plural(l.Older, "older job"), shown+l.Older)
	}
	if l.Rejected > 0 {
		fmt.Fprintf(w, "%s not shown (--rejected shows them)\n", render.Plural(l.Rejected, "rejected submission"))
	}
	if l.Trials > 0 {
		fmt.Fprintf(w, "%s not shown (--trials shows them)\n", render.Plural(l.Trials, "trial"))
	}
	if shown > 0 {
		return
	}
	switch {
	case l.Unlike > 0:
		fmt.Fprintf(w, "no job with this name, project and labels; %s without them\n", render.Plural(l.Unlike, "job"))
	case l.OtherStates > 0:
		fmt.Fprintf(w, "no job in such a state; %s in others\n", render.Plural(l.OtherStates, "job"))
	case l.Others > 0:
		fmt.Fprintf(w, "no job of yours; %s of other users (-A shows them)\n", render.Plural(l.Others, "job"))
	case l.Rejected+l.Trials > 0:
	default:
		fmt.Fprintln(w, "no jobs yet: `switchyard submit --help` shows how to submit one, `switchyard demo` shows some")
	}
}

func psLine(j view.Job, now time.Time) string {
	const reasonWidth, nameWidth, userWidth = 28, 24, 12
	reason := j.Reason
	if j.State == train.StateHeld || j.State == train.StatePaused || len(j.Jobs) > 0 {
		reason = j.Message // says by whom, or counts the jobs of an array
	}
	return strings.Join([]string{
		string(j.ID), render.Cell(j.Name, nameWidth), render.Cell(j.User, userWidth), string(j.State), render.Cell(reason, reasonWidth), psDevices(j),
		psEpochs(j), psProgress(j), render.ETA(j.Predicted, now), ran(j.RunSeconds), age(j.SubmittedAt, now),
		render.EnergyOf(train.Account{Energy: j.Energy, Methods: j.EnergyMethods}),
	}, "\t")
}

// ran is the time on devices.
func ran(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return render.Duration(seconds)
}

func age(submitted, now time.Time) string {
	if submitted.IsZero() {
		return "-"
	}
	return render.Duration(now.Sub(submitted).Seconds())
}

// psDevices counts the devices that the job holds or, if it waits, needs, and names their kind.
func psDevices(j view.Job) string {
	switch {
	case len(j.Devices) > 0:
		return fmt.Sprintf("%d %s", len(j.Devices), j.Device)
	case j.State.Terminal():
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("0/%d %s", j.MinDevices, j.Device))
}

func psEpochs(j view.Job) string {
	if j.EpochsDone == 0 && j.State.Terminal() {
		return "-"
	}
	return render.Epochs(j.EpochsDone, j.MaxEpochs)
}

func psProgress(j view.Job) string {
	const width = 5
	if j.Progress == nil {
		return "-"
	}
	return fmt.Sprintf("%s %d%%", render.ProgressBar(*j.Progress, width), render.Percent(*j.Progress))
}

// psColumn is a column that is shown if any of the jobs has something in it.
type psColumn struct {
	header string
	has    func(view.Job) bool
	cell   func(view.Job) string
}

func psColumns(jobs []view.Job) []psColumn {
	const width = 24
	all := []psColumn{
		{"PROJECT", func(j view.Job) bool { return j.Project != "" }, func(j view.Job) string { return render.Cell(j.Project, width) }},
		{"LABELS", func(j view.Job) bool { return len(j.Labels) > 0 }, func(j view.Job) string { return render.Cell(train.JoinLabels(j.Labels), width) }},
		{"BATCH", func(j view.Job) bool { return j.Tuning != nil }, func(j view.Job) string { return explain.Batch(j.Tuning) }},
	}
	return slices.DeleteFunc(all, func(c psColumn) bool { return !slices.ContainsFunc(jobs, c.has) })
}
