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
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/describe"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/jobref"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
)

// PsOptions narrow the list of jobs.
type PsOptions struct {
	AllUsers bool
	states   []string
	Newest   int
	// rejected and trials list those, too.
	rejected, trials bool
}

// FinishedShown is the number of finished jobs that are listed without -n.
const FinishedShown = 20

func psCommand(a *console.Console) *cobra.Command {
	var o PsOptions
	cmd := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"list"},
		Short:   "List jobs, the newest first",
		Long: fmt.Sprintf(`Lists your jobs: all active jobs and the newest %d finished ones, without rejected submissions and the trials of experiments. AGE is the time since the
submission, RAN the time on devices. ETA is the predicted time to the end or, for a waiting job, to its start; eight of ten times it lies in the interval. An ENERGY with ~ is
modelled, not measured. While jobs share devices, BATCH is the micro-batch of each job and the number of micro-batches in a step.`, FinishedShown),
		Example: `  switchyard ps -A
  switchyard ps --state running,queued
  switchyard ps -n 100 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed("newest")); err != nil {
				return err
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return Ps(ctx, a, b, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.AllUsers, "all", "A", false, "the jobs of all users")
	fs.StringSliceVar(&o.states, "state", nil, "only jobs in these states (repeatable, or joined by commas)")
	fs.BoolVar(&o.rejected, "rejected", false, "also submissions that were rejected")
	fs.BoolVar(&o.trials, "trials", false, "also the trials of experiments")
	fs.IntVarP(&o.Newest, "newest", "n", 0, fmt.Sprintf("the newest N jobs in any state (default: all active jobs and the newest %d finished ones)", FinishedShown))
	return cmd
}

func (o *PsOptions) validate(bounded bool) error {
	if bounded && o.Newest < 1 {
		return exit.Usagef("-n %d: want 1 or more", o.Newest)
	}
	known := []string{}
	for _, t := range train.Transitions() {
		if t.To != train.SameState && !slices.Contains(known, string(t.To)) {
			known = append(known, string(t.To))
		}
	}
	for i, s := range o.states {
		o.states[i] = strings.ToLower(strings.TrimSpace(s))
		if !slices.Contains(known, o.states[i]) {
			fix := "states are " + strings.Join(known, ", ")
			if near := train.NearMiss(o.states[i], known); near != "" {
				fix = "did you mean " + near + "?"
			}
			return exit.Errorf(exit.Usage, fix, "--state %q: no such state", s)
		}
	}
	return nil
}

func Ps(ctx context.Context, a *console.Console, b *bus.Bus, o PsOptions, now time.Time) error {
	jobs, err := console.ListBucket(ctx, b, contract.Jobs)
	if err != nil {
		return err
	}
	accounts, err := console.JobAccounts(ctx, b)
	if err != nil {
		return err
	}
	plan, err := console.LastPlan(ctx, b)
	if err != nil {
		return err
	}
	batches, err := describe.Tunings(ctx, b)
	if err != nil {
		return err
	}
	silent, err := silentJobs(ctx, b, now)
	if err != nil {
		return err
	}
	jobs, left, err := o.relevant(ctx, b, jobs)
	if err != nil {
		return err
	}
	shown, older := o.Choose(jobs, console.CurrentUser())
	left.Older, left.Others, left.otherStates = older.Older, older.Others, older.otherStates
	rows := make([]PsRow, 0, len(shown))
	for _, j := range shown {
		r := newPSRow(j, accounts[j.ID], plan, now)
		r.Tuning = describe.ViewTuning(batches, j.ID, j.Attempt)
		if reason, is := silent[j.ID]; is && j.State.Active() {
			r.Reason, r.Message = reason.Code, reason.Message
		}
		rows = append(rows, r)
	}
	left.tell(a.Stderr, len(shown))
	if a.Output == "json" {
		return a.PrintJSON(rows)
	}
	if len(rows) == 0 {
		return nil
	}
	header, tuned := "ID\tNAME\tUSER\tSTATE\tREASON\tDEV\tEPOCH\tPROGRESS\tETA\tRAN\tAGE\tENERGY", tuned(rows)
	if tuned {
		header += "\tBATCH"
	}
	return a.Table(header, func(w io.Writer) {
		for _, r := range rows {
			line := r.line(now)
			if tuned {
				line += "\t" + r.Tuning.Batch()
			}
			fmt.Fprintln(w, line)
		}
	})
}

// silentJobs returns the reasons of running jobs whose code has gone silent.
func silentJobs(ctx context.Context, b *bus.Bus, now time.Time) (map[train.JobID]train.Reason, error) {
	attempts, err := console.ListBucket(ctx, b, contract.Attempts)
	if err != nil {
		return nil, err
	}
	reports, err := console.MapBucket(ctx, b, contract.Reports)
	silent := map[train.JobID]train.Reason{}
	for _, a := range attempts {
		if r, is := train.Silent(a, reports[contract.ReportKey(a.Job, a.Number)], now); is {
			silent[a.Job] = r
		}
	}
	return silent, err
}

// relevant leaves out what a person has seen elsewhere: submissions whose rejection was the answer of submit, and the
// trials of experiments.
func (o PsOptions) relevant(ctx context.Context, b *bus.Bus, jobs []train.Job) ([]train.Job, unseen, error) {
	var left unseen
	experiments := map[string]bool{}
	kept := jobs[:0:0]
	for _, j := range jobs {
		experiment, _, ofExperiment := conduct.SplitJobID(string(j.ID))
		if _, asked := experiments[experiment]; ofExperiment && !asked && !o.trials {
			_, found, err := console.GetIfThere(ctx, b, contract.Experiments, experiment)
			if err != nil {
				return nil, left, err
			}
			experiments[experiment] = found
		}
		switch {
		case j.State == train.StateRejected && !o.rejected && !slices.Contains(o.states, string(train.StateRejected)):
			left.rejected++
		case ofExperiment && experiments[experiment]:
			left.trials++
		default:
			kept = append(kept, j)
		}
	}
	return kept, left, nil
}

// unseen counts the jobs that are not listed.
type unseen struct{ Older, Others, otherStates, rejected, trials int }

// Choose picks and orders the jobs to list.
func (o PsOptions) Choose(jobs []train.Job, me string) ([]train.Job, unseen) {
	var left unseen
	var chosen []train.Job
	for _, j := range jobs {
		switch {
		// A submission that admission has not read, or could not read, has no user.
		case !o.AllUsers && j.Spec.User != me && j.Spec.User != "":
			left.Others++
		case len(o.states) > 0 && !slices.Contains(o.states, string(j.State)):
			left.otherStates++
		default:
			chosen = append(chosen, j)
		}
	}
	slices.SortFunc(chosen, func(x, y train.Job) int { return jobref.CompareAge(y, x) })
	kept, ended := chosen[:0:0], 0
	for i, j := range chosen {
		if j.State.Terminal() {
			ended++
		}
		if o.Newest > 0 && i >= o.Newest || o.Newest == 0 && j.State.Terminal() && ended > FinishedShown {
			left.Older++
			continue
		}
		kept = append(kept, j)
	}
	return kept, left
}

// tell names the jobs that are not listed, and the flag that lists them.
func (l unseen) tell(w io.Writer, shown int) {
	if l.Older > 0 {
		fmt.Fprintf(w, "%s not shown (-n %d shows all)\n", render.Plural(l.Older, "older job"), shown+l.Older)
	}
	if l.rejected > 0 {
		fmt.Fprintf(w, "%s not shown (--rejected shows them)\n", render.Plural(l.rejected, "rejected submission"))
	}
	if l.trials > 0 {
		fmt.Fprintf(w, "%s not shown (--trials shows them)\n", render.Plural(l.trials, "trial"))
	}
	if shown > 0 {
		return
	}
	switch {
	case l.otherStates > 0:
		fmt.Fprintf(w, "no job in such a state; %s in others\n", render.Plural(l.otherStates, "job"))
	case l.Others > 0:
		fmt.Fprintf(w, "no job of yours; %s of other users (-A shows them)\n", render.Plural(l.Others, "job"))
	case l.rejected+l.trials > 0:
	default:
		fmt.Fprintln(w, "no jobs yet: `switchyard submit --help` shows how to submit one, `switchyard demo` shows some")
	}
}

// PsRow is one job of the list.
type PsRow struct {
	ID         train.JobID      `json:"id"`
	Name       string           `json:"name"`
	User       string           `json:"user"`
	State      train.State      `json:"state"`
	Reason     string           `json:"reason"`
	Message    string           `json:"message"`
	Devices    []train.DeviceID `json:"devices"`
	MinDevices int              `json:"min_devices"`
	// Device is the kind of the devices that it holds or, if it waits, asks for.
	Device     train.DeviceKind `json:"device,omitempty"`
	EpochsDone int              `json:"epochs_done"`
	MaxEpochs  int              `json:"max_epochs"`
	// RemainingSeconds is the predicted rest of a running job, StartInSeconds the predicted wait of a waiting job.
	RemainingSeconds *float64 `json:"remaining_seconds,omitempty"`
	StartInSeconds   *float64 `json:"start_in_seconds,omitempty"`
	// Predicted is when it starts and ends, with intervals, by the newest plan; eta is that in words.
	Predicted     train.Predicted `json:"predicted,omitzero"`
	eta           string
	RunSeconds    float64              `json:"run_seconds"`
	Energy        unit.Energy          `json:"energy_uj"`
	EnergyMethods []string             `json:"energy_methods"`
	Tuning        *describe.TuningView `json:"tuning,omitempty"`
	SubmittedAt   time.Time            `json:"submitted_at"`
	StartedAt     time.Time            `json:"started_at,omitzero"`
	FinishedAt    time.Time            `json:"finished_at,omitzero"`
}

func newPSRow(j train.Job, account train.Account, plan train.Plan, now time.Time) PsRow {
	spec := j.Spec.WithDefaults()
	r := PsRow{
		ID: j.ID, Name: j.Spec.Name, User: j.Spec.User, State: j.State, Reason: j.Reason, Message: j.Message,
		Devices: []train.DeviceID{}, MinDevices: spec.MinDevices, Device: spec.Device, EpochsDone: j.EpochsDone, MaxEpochs: j.Spec.MaxEpochs,
		RunSeconds: j.RunSecondsAt(now), Energy: account.Energy, EnergyMethods: []string{},
		SubmittedAt: j.SubmittedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt,
	}
	if len(j.Devices) > 0 {
		r.Devices, r.Device = j.Devices, j.Devices[0].Kind()
	}
	if len(account.Methods) > 0 {
		r.EnergyMethods = account.Methods
	}
	if !j.State.Terminal() {
		r.Predicted = plan.Predicted(j.ID)
	}
	r.eta = render.ETA(r.Predicted, now)
	in := func(m *train.Moment) *float64 {
		if m == nil {
			return nil
		}
		return new(max(m.Expected.Sub(now).Seconds(), 0))
	}
	if r.StartInSeconds = in(r.Predicted.Start); r.StartInSeconds == nil {
		r.RemainingSeconds = in(r.Predicted.Finish)
	}
	return r
}

func (r PsRow) line(now time.Time) string {
	const reasonWidth, nameWidth, userWidth = 28, 24, 12
	return strings.Join([]string{
		string(r.ID), render.Cell(r.Name, nameWidth), render.Cell(r.User, userWidth), string(r.State), render.Cell(r.Reason, reasonWidth), r.devices(), r.epochs(), r.progress(),
		r.eta, ran(r.RunSeconds), age(r.SubmittedAt, now), render.EnergyOf(train.Account{Energy: r.Energy, Methods: r.EnergyMethods}),
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

// devices counts the devices that the job holds or, if it waits, needs, and names their kind.
func (r PsRow) devices() string {
	switch {
	case len(r.Devices) > 0:
		return fmt.Sprintf("%d %s", len(r.Devices), r.Device)
	case r.State.Terminal():
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("0/%d %s", r.MinDevices, r.Device))
}

func (r PsRow) epochs() string {
	if r.EpochsDone == 0 && r.State.Terminal() {
		return "-"
	}
	return render.Epochs(r.EpochsDone, r.MaxEpochs)
}

func (r PsRow) progress() string {
	const width = 5
	switch {
	case r.EpochsDone == 0 && r.State == train.StateSucceeded: // its code reports no epochs
		return render.ProgressBar(1, 1, width) + " 100%"
	case r.MaxEpochs <= 0:
		return "-"
	}
	return fmt.Sprintf("%s %d%%", render.ProgressBar(r.EpochsDone, r.MaxEpochs, width), min(100*r.EpochsDone/r.MaxEpochs, 100))
}

// tuned says whether any of the rows has a micro-batch to show.
func tuned(rows []PsRow) bool {
	return slices.ContainsFunc(rows, func(r PsRow) bool { return r.Tuning != nil })
}
