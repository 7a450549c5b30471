package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// demoReport is the closing report.
type demoReport struct {
	Jobs            []demoRow `json:"jobs"`
	MakespanSeconds float64   `json:"makespan_seconds"`
	Policy          string    `json:"policy"`
}

// demoRow is one job of it. JCT is the job completion time: submission to end.
type demoRow struct {
	ID           train.JobID `json:"id"`
	State        train.State `json:"state"`
	EpochsDone   int         `json:"epochs_done"`
	Restarts     int         `json:"restarts"`
	Rescales     int         `json:"rescales"`
	Preemptions  int         `json:"preemptions"`
	WaitSeconds  float64     `json:"wait_seconds"`
	RunSeconds   float64     `json:"run_seconds"`
	JCTSeconds   float64     `json:"jct_seconds"`
	EnergyJoules float64     `json:"energy_joules"`
	EnergyMethod string      `json:"energy_method"`
	// PredictedJCTSeconds is the JCT by the first prediction, after the job's first epoch; 0 without a prediction.
	PredictedJCTSeconds float64 `json:"predicted_jct_seconds"`
	// PredictedLowSeconds and PredictedHighSeconds are its interval.
	PredictedLowSeconds  float64 `json:"predicted_low_seconds,omitempty"`
	PredictedHighSeconds float64 `json:"predicted_high_seconds,omitempty"`
}

func (s *stage) report(policy string) demoReport {
	p := s.picture()
	r := demoReport{Policy: policy}
	var first, last time.Time
	for _, j := range p.jobs {
		account := p.accounts[j.ID]
		row := demoRow{
			ID: j.ID, State: j.State, EpochsDone: j.EpochsDone, Restarts: j.Restarts, Rescales: j.Rescales, Preemptions: j.Preemptions,
			RunSeconds: j.RunSeconds, JCTSeconds: j.FinishedAt.Sub(j.SubmittedAt).Seconds(),
			EnergyJoules: account.Energy.Joules(), EnergyMethod: strings.Join(account.Methods, "+"),
		}
		row.WaitSeconds = max(row.JCTSeconds-row.RunSeconds, 0)
		if !j.FirstPredictedFinish.IsZero() {
			row.PredictedJCTSeconds = j.FirstPredictedFinish.Sub(j.SubmittedAt).Seconds()
		}
		if !j.FirstPredictedHigh.IsZero() {
			row.PredictedLowSeconds, row.PredictedHighSeconds = j.FirstPredictedLow.Sub(j.SubmittedAt).Seconds(), j.FirstPredictedHigh.Sub(j.SubmittedAt).Seconds()
		}
		if first.IsZero() || j.SubmittedAt.Before(first) {
			first = j.SubmittedAt
		}
		if j.FinishedAt.After(last) {
			last = j.FinishedAt
		}
		r.Jobs = append(r.Jobs, row)
	}
	r.MakespanSeconds = last.Sub(first).Seconds()
	return r
}

// verdict returns an error if the demo did not show what it promises.
func (r demoReport) verdict() error {
	rescales, preemptions := 0, 0
	for _, row := range r.Jobs {
		if row.State != train.StateSucceeded {
			return exit.Errorf(exit.Failed, "run it again with --keep and look at the job's output.log", "job %s ended %s", row.ID, row.State)
		}
		rescales += row.Rescales
		preemptions += row.Preemptions
	}
	resizing := r.Policy == plan.DefaultPolicy || r.Policy == plan.Optimus{}.Name()
	if resizing && (rescales == 0 || preemptions == 0) {
		return exit.Errorf(exit.Failed, "", "%d rescales and %d preemptions: the demo shows at least one of each", rescales, preemptions)
	}
	return nil
}

func printReport(a *console.Console, r demoReport) error {
	total := 0.0
	fmt.Fprintln(a.Stdout)
	err := a.Table("JOB\tSTATE\tEPOCHS\tWAIT\tRUN\tJCT\tPREDICTED\tRESTARTS\tRESCALES\tPREEMPTIONS\tENERGY\tMETHOD", func(w io.Writer) {
		for _, j := range r.Jobs {
			total += j.EnergyJoules
			predicted := "-"
			if j.PredictedJCTSeconds > 0 {
				predicted = fmt.Sprintf("%.1fs (%+.0f%%)", j.PredictedJCTSeconds, 100*(j.PredictedJCTSeconds/j.JCTSeconds-1))
			}
			if j.PredictedHighSeconds > 0 {
				predicted = fmt.Sprintf("%.1fs, %.1f to %.1f (%+.0f%%)", j.PredictedJCTSeconds, j.PredictedLowSeconds, j.PredictedHighSeconds, 100*(j.PredictedJCTSeconds/j.JCTSeconds-1))
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.1fs\t%.1fs\t%.1fs\t%s\t%d\t%d\t%d\t%.1f J\t%s\n",
				j.ID, j.State, j.EpochsDone, j.WaitSeconds, j.RunSeconds, j.JCTSeconds, predicted, j.Restarts, j.Rescales, j.Preemptions, j.EnergyJoules, j.EnergyMethod)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "\npolicy %s, makespan %.1f s, %.1f J attributed to jobs\nPREDICTED is the completion time predicted after the job's first epoch, with an interval for eight of ten jobs that no later job overtakes.\n", r.Policy, r.MakespanSeconds, total)
	return err
}

// screen shows the jobs: redrawn on a terminal, a line per change elsewhere.
type screen struct {
	out io.Writer
	// width returns the columns of the terminal. It is nil without a terminal.
	width func() int
	lines int
	seen  map[string]string
}

func (s *screen) show(p stagePicture, since time.Duration) {
	if s.width != nil {
		s.redraw(p, since)
		return
	}
	for _, j := range p.jobs {
		now := fmt.Sprintf("%s on %s", j.State, devicesOrDash(j))
		if s.seen[string(j.ID)] == now {
			continue
		}
		s.seen[string(j.ID)] = now
		fmt.Fprintf(s.out, "%6.1fs  %-8s %-11s %-12s epoch %d/%d%s\n", since.Seconds(), j.ID, j.State, devicesOrDash(j), j.EpochsDone, j.Spec.MaxEpochs, because(j))
	}
}

// redraw writes over the last drawing. It cuts lines at the edge: a wrapped line would break the count of lines.
func (s *screen) redraw(p stagePicture, since time.Duration) {
	lines := []string{
		fmt.Sprintf("switchyard demo, %.0f s", since.Seconds()),
		fmt.Sprintf("%-8s %-11s %-12s %-24s %-7s %10s", "JOB", "STATE", "DEVICES", "EPOCHS", "FINISH", "ENERGY"),
	}
	for _, j := range p.jobs {
		lines = append(lines, fmt.Sprintf("%-8s %-11s %-12s %s %3d/%-3d %-7s %8.1f J%s",
			j.ID, j.State, devicesOrDash(j), render.ProgressBar(float64(j.EpochsDone)/float64(max(j.Spec.MaxEpochs, 1)), 16), j.EpochsDone, j.Spec.MaxEpochs, finishIn(j), p.accounts[j.ID].Energy.Joules(), because(j)))
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	for _, line := range lines {
		runes := []rune(line)
		fmt.Fprintf(&b, "%s\x1b[K\n", string(runes[:min(len(runes), s.width()-1)]))
	}
	s.lines = len(lines)
	_, _ = io.WriteString(s.out, b.String())
}

func devicesOrDash(j train.Job) string {
	if !j.State.Active() || len(j.Devices) == 0 {
		return "-"
	}
	return train.JoinDevices(j.Devices)
}

func finishIn(j train.Job) string {
	if j.State.Terminal() || j.PredictedFinish.IsZero() {
		return ""
	}
	return fmt.Sprintf("~%.0f s", max(time.Until(j.PredictedFinish).Seconds(), 0))
}

func because(j train.Job) string {
	if j.Message == "" || j.State == train.StateRunning || j.State.Terminal() {
		return ""
	}
	const width = 90
	message := render.EscapeText(j.Message)
	if runes := []rune(message); len(runes) > width {
		message = string(runes[:width]) + ".."
	}
	return "  " + message
}
