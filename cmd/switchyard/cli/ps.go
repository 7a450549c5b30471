package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// psOptions narrow the list of jobs.
type psOptions struct {
	allUsers bool
	states   []string
	newest   int
}

// finishedShown is how many finished jobs are listed unless -n says otherwise.
const finishedShown = 20

func (a *app) psCommand() *cobra.Command {
	var o psOptions
	cmd := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"list"},
		Short:   "List jobs, the newest first",
		Long: fmt.Sprintf(`Lists your jobs: all that have not ended and the newest %d that have. ETA is the time left as predicted now, or when a waiting job is predicted to
start. An ENERGY with ~ is modelled, not measured. While jobs share devices, BATCH is the micro-batch of each and how many of them make a step.`, finishedShown),
		Example: `  switchyard ps -A
  switchyard ps --state running,queued
  switchyard ps -n 100 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed("newest")); err != nil {
				return err
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.ps(ctx, b, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.allUsers, "all", "A", false, "the jobs of all users")
	fs.StringSliceVar(&o.states, "state", nil, "only jobs in these states (repeatable, or joined by commas)")
	fs.IntVarP(&o.newest, "newest", "n", 0, fmt.Sprintf("the newest N jobs, ended or not (default: all that have not ended and the newest %d that have)", finishedShown))
	return cmd
}

func (o *psOptions) validate(bounded bool) error {
	if bounded && o.newest < 1 {
		return failure(ExitUsage, "", "-n %d: want 1 or more", o.newest)
	}
	known := []string{}
	for _, t := range train.Transitions() {
		if t.To != train.Stay && !slices.Contains(known, string(t.To)) {
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
			return failure(ExitUsage, fix, "--state %q: no such state", s)
		}
	}
	return nil
}

func (a *app) ps(ctx context.Context, b *bus.Bus, o psOptions, now time.Time) error {
	jobs, err := listBucket[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return err
	}
	accounts, err := jobAccounts(ctx, b)
	if err != nil {
		return err
	}
	plan, err := lastPlan(ctx, b)
	if err != nil {
		return err
	}
	batches, err := tunings(ctx, b)
	if err != nil {
		return err
	}
	shown, left := o.choose(jobs, currentUser())
	rows := make([]psRow, 0, len(shown))
	for _, j := range shown {
		r := newPSRow(j, accounts[j.ID], plan, now)
		r.Tuning = viewTuning(batches, j.ID, j.Attempt)
		rows = append(rows, r)
	}
	left.tell(a.stderr, len(shown))
	if a.output == "json" {
		return a.printJSON(rows)
	}
	if len(rows) == 0 {
		return nil
	}
	header, tuned := "ID\tNAME\tUSER\tSTATE\tREASON\tDEV\tEPOCH\tPROGRESS\tETA\tENERGY", tuned(rows)
	if tuned {
		header += "\tBATCH"
	}
	return a.table(header, func(w io.Writer) {
		for _, r := range rows {
			line := r.line()
			if tuned {
				line += "\t" + r.Tuning.batch()
			}
			_, _ = fmt.Fprintln(w, line)
		}
	})
}

// jobAccounts reads the energy accounts of all jobs.
func jobAccounts(ctx context.Context, b *bus.Bus) (map[train.JobID]train.Account, error) {
	list, err := listBucket[train.Account](ctx, b, event.BucketLedger, "job.*")
	if err != nil {
		return nil, err
	}
	accounts := make(map[train.JobID]train.Account, len(list))
	for _, account := range list {
		accounts[account.Job] = account
	}
	return accounts, nil
}

// unseen counts the jobs that are not listed.
type unseen struct{ older, others, otherStates int }

// choose picks and orders the jobs to list.
func (o psOptions) choose(jobs []train.Job, me string) ([]train.Job, unseen) {
	var left unseen
	var chosen []train.Job
	for _, j := range jobs {
		switch {
		// A submission that nobody has looked at yet, or that could not be read, has no user.
		case !o.allUsers && j.Spec.User != me && j.Spec.User != "":
			left.others++
		case len(o.states) > 0 && !slices.Contains(o.states, string(j.State)):
			left.otherStates++
		default:
			chosen = append(chosen, j)
		}
	}
	slices.SortFunc(chosen, func(x, y train.Job) int { return newer(y, x) })
	kept, ended := chosen[:0:0], 0
	for i, j := range chosen {
		if j.State.Terminal() {
			ended++
		}
		if o.newest > 0 && i >= o.newest || o.newest == 0 && j.State.Terminal() && ended > finishedShown {
			left.older++
			continue
		}
		kept = append(kept, j)
	}
	return kept, left
}

// tell says what is not listed, and how to see it.
func (l unseen) tell(w io.Writer, shown int) {
	if l.older > 0 {
		_, _ = fmt.Fprintf(w, "%s not shown (-n %d shows all)\n", plural(l.older, "older job"), shown+l.older)
	}
	if shown > 0 {
		return
	}
	switch {
	case l.otherStates > 0:
		_, _ = fmt.Fprintf(w, "no job in such a state; %s in others\n", plural(l.otherStates, "job"))
	case l.others > 0:
		_, _ = fmt.Fprintf(w, "no job of yours; %s of other users (-A shows them)\n", plural(l.others, "job"))
	default:
		_, _ = fmt.Fprintln(w, "no jobs yet: `switchyard submit --help` tells how to submit one, `switchyard demo` shows some")
	}
}

// psRow is one job of the list.
type psRow struct {
	ID         train.JobID      `json:"id"`
	Name       string           `json:"name"`
	User       string           `json:"user"`
	State      train.State      `json:"state"`
	Reason     string           `json:"reason"`
	Message    string           `json:"message"`
	Devices    []train.DeviceID `json:"devices"`
	MinDevices int              `json:"min_devices"`
	EpochsDone int              `json:"epochs_done"`
	MaxEpochs  int              `json:"max_epochs"`
	// RemainingSeconds is the predicted rest of a job that runs, StartInSeconds the predicted wait of one that does not.
	RemainingSeconds *float64    `json:"remaining_seconds,omitempty"`
	StartInSeconds   *float64    `json:"start_in_seconds,omitempty"`
	RunSeconds       float64     `json:"run_seconds"`
	Energy           unit.Energy `json:"energy_uj"`
	EnergyMethods    []string    `json:"energy_methods"`
	Tuning           *tuningView `json:"tuning,omitempty"`
	SubmittedAt      time.Time   `json:"submitted_at"`
	StartedAt        time.Time   `json:"started_at,omitzero"`
	FinishedAt       time.Time   `json:"finished_at,omitzero"`
}

func newPSRow(j train.Job, account train.Account, plan train.Plan, now time.Time) psRow {
	spec := j.Spec.WithDefaults()
	r := psRow{
		ID: j.ID, Name: j.Spec.Name, User: j.Spec.User, State: j.State, Reason: j.Reason, Message: j.Message,
		Devices: []train.DeviceID{}, MinDevices: spec.MinDevices, EpochsDone: j.EpochsDone, MaxEpochs: j.Spec.MaxEpochs,
		RunSeconds: runSeconds(j, now), Energy: account.Energy, EnergyMethods: []string{},
		SubmittedAt: j.SubmittedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt,
	}
	if len(j.Devices) > 0 {
		r.Devices = j.Devices
	}
	if len(account.Methods) > 0 {
		r.EnergyMethods = account.Methods
	}
	switch {
	case j.State.Terminal():
	case j.State.Active():
		if !j.PredictedFinish.IsZero() {
			left := max(j.PredictedFinish.Sub(now).Seconds(), 0)
			r.RemainingSeconds = &left
		}
	default:
		if start, ok := predictedStart(plan, j.ID); ok {
			wait := max(start.Sub(now).Seconds(), 0)
			r.StartInSeconds = &wait
		}
	}
	return r
}

// predictedStart is when the newest plan expects a waiting job to start.
func predictedStart(plan train.Plan, id train.JobID) (time.Time, bool) {
	for _, w := range plan.Waiting {
		if w.Job == id && w.StartInSeconds > 0 {
			return plan.DecidedAt.Add(time.Duration(w.StartInSeconds * float64(time.Second))), true
		}
	}
	return time.Time{}, false
}

// runSeconds is how long the job has run in all, the open attempt included.
func runSeconds(j train.Job, now time.Time) float64 {
	if j.AttemptStartedAt.IsZero() {
		return j.RunSeconds
	}
	return j.RunSeconds + max(now.Sub(j.AttemptStartedAt).Seconds(), 0)
}

func (r psRow) line() string {
	const reasonWidth, nameWidth, userWidth = 28, 24, 12
	return strings.Join([]string{
		string(r.ID), cell(r.Name, nameWidth), cell(r.User, userWidth), string(r.State), cell(r.Reason, reasonWidth), r.devices(), r.epochs(), r.progress(),
		r.eta(), energyOf(train.Account{Energy: r.Energy, Methods: r.EnergyMethods}),
	}, "\t")
}

// devices counts what the job has, or for a waiting one what it needs.
func (r psRow) devices() string {
	switch {
	case len(r.Devices) > 0:
		return fmt.Sprint(len(r.Devices))
	case r.State.Terminal():
		return "-"
	}
	return fmt.Sprintf("0/%d", r.MinDevices)
}

func (r psRow) epochs() string {
	if r.MaxEpochs <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.EpochsDone, r.MaxEpochs)
}

func (r psRow) progress() string {
	if r.MaxEpochs <= 0 {
		return "-"
	}
	const width = 5
	return fmt.Sprintf("%s %d%%", progressBar(r.EpochsDone, r.MaxEpochs, width), min(100*r.EpochsDone/r.MaxEpochs, 100))
}

func (r psRow) eta() string {
	switch {
	case r.RemainingSeconds != nil:
		return duration(*r.RemainingSeconds)
	case r.StartInSeconds != nil && *r.StartInSeconds > 0:
		return "starts in " + duration(*r.StartInSeconds)
	case r.StartInSeconds != nil:
		return "starts soon"
	}
	return "-"
}
