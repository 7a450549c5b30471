package measure

import (
	"fmt"
	"io"
	"strconv"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/progress"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// measurement is the result of all scales.
type measurement struct {
	Runs []measuredRun `json:"runs"`
	// Speed is fitted to the step times; nil if none is known.
	Speed *train.Speed `json:"speed,omitempty"`
}

// measuredRun is one scale. Speeds leave out the first epoch, unless it is the only one.
type measuredRun struct {
	scale
	Job              train.JobID `json:"job"`
	State            train.State `json:"state"`
	Reason           string      `json:"reason,omitempty"`
	Epochs           int         `json:"epochs"`
	SamplesPerSecond float64     `json:"samples_per_second"`
	StepsPerSecond   float64     `json:"steps_per_second"`
	// CPUCores is the mean number of processors in use; -1 if nothing was measured.
	CPUCores float64 `json:"cpu_cores"`
	// StepSeconds is the profiler's step time, FittedSeconds the prediction of the fitted model; 0 if unknown.
	StepSeconds   float64 `json:"step_seconds"`
	FittedSeconds float64 `json:"fitted_step_seconds"`

	config train.Config
}

func newMeasuredRun(s scale, c *progress.Run) measuredRun {
	r := measuredRun{scale: s, Job: c.ID, State: c.State, Reason: c.Reason, Epochs: len(c.Epochs), CPUCores: c.Cores()}
	if s.Servers > 0 && c.Devices > 0 {
		r.Servers = c.Servers // a plan may give fewer
	}
	r.SamplesPerSecond, r.StepsPerSecond = progress.Speed(c.Steady())
	return r
}

// fit fits the speed model of the job's kind to the runs.
func (m *measurement) fit(spec train.Spec, seen []curve.StepSample) {
	if len(seen) == 0 {
		return
	}
	speed := curve.Refit(curve.History{Kind: spec.SpeedKind(), Steps: seen}).Speed
	m.Speed = &speed
	for i := range m.Runs {
		if r := &m.Runs[i]; r.StepSeconds > 0 {
			r.FittedSeconds = speed.FittedSeconds(r.config)
		}
	}
}

// verdict returns an error if a run failed.
func (m *measurement) verdict() error {
	for _, r := range m.Runs {
		if r.State != train.StateSucceeded {
			return exit.Errorf(exit.Failed, "`switchyard describe "+string(r.Job)+"` shows more", "with %s: %s: %s", r.scale, r.State, r.Reason)
		}
	}
	return nil
}

func printMeasurement(a *console.Console, m measurement) error {
	switch a.Output {
	case "json":
		return a.PrintJSON(m)
	case "csv":
		return a.CSV(measurementRows(m))
	}
	err := a.Table("PS\tWORKERS\tSTATE\tEPOCHS\tSAMPLES/S\tSTEPS/S\tSTEP\tFITTED\tPROCESSORS", func(w io.Writer) {
		for _, r := range m.Runs {
			cores, step, fitted := "-", "-", "-"
			if r.CPUCores >= 0 {
				cores = fmt.Sprintf("%.2f", r.CPUCores)
			}
			if r.StepSeconds > 0 {
				step, fitted = render.StepTime(r.StepSeconds), render.StepTime(r.FittedSeconds)
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Servers, r.Workers, r.State, r.Epochs, figure(r.SamplesPerSecond), figure(r.StepsPerSecond), step, fitted, cores)
		}
	})
	if err != nil || m.Speed == nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "\nmodel %s: %s\nfitted to %s, residual %.1f %%; the profiler has learned the same speeds\n", m.Speed.Kind, formula(*m.Speed), render.Plural(len(m.Speed.Measured), "configuration"), 100*m.Speed.FitError)
	return err
}

// formula is the fitted step time in words: w workers, p servers, m samples per worker.
func formula(s train.Speed) string {
	if s.Kind == train.SpeedAllReduce {
		x := s.AllReduce
		return fmt.Sprintf("step = %.3g s + %.3g s*m, and from 2 workers %.3g s + %.3g s*(w-2) for the exchange", x.ComputeFixed, x.ComputePerSample, x.LocalBase, x.LocalPerWorker)
	}
	x, words := s.Servers, "step"
	if s.Kind == train.SpeedServersAsync {
		words = "step*w"
	}
	return fmt.Sprintf("%s = %.3g s*m + %.3g s + %.3g s*w/p + %.3g s*w + %.3g s*p", words, x.PerSample, x.Fixed, x.PerShare, x.PerWorker, x.PerServer)
}

func measurementRows(m measurement) [][]string {
	rows := [][]string{{"servers", "workers", "job", "state", "epochs", "samples_per_second", "steps_per_second", "step_seconds", "fitted_step_seconds", "cpu_cores"}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for _, r := range m.Runs {
		rows = append(rows, []string{
			strconv.Itoa(r.Servers), strconv.Itoa(r.Workers), string(r.Job), string(r.State), strconv.Itoa(r.Epochs),
			number(r.SamplesPerSecond), number(r.StepsPerSecond), number(r.StepSeconds), number(r.FittedSeconds), number(r.CPUCores),
		})
	}
	return rows
}
