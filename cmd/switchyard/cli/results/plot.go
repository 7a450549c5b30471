package results

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/chart"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func plotCommand(a *console.Console) *cobra.Command {
	var metric, svg string
	cmd := &cobra.Command{
		Use:   "plot JOB",
		Short: "Draw the loss of a job and its devices over time",
		Long: `Draws the loss that a job has reported, or another metric, and the devices that it held, over the time since its submission: in the terminal, and with
--svg as a file.`,
		Example: `  switchyard plot first
  switchyard plot first --metric accuracy --svg first.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return plot(ctx, a, y, args[0], metric, svg) })
		},
	}
	cmd.Flags().StringVar(&metric, "metric", "", "what to draw over time (default: loss, else what the job reports)")
	cmd.Flags().StringVar(&svg, "svg", "", "`FILE` to write the drawing to, as SVG")
	return cmd
}

func plot(ctx context.Context, a *console.Console, y console.Yard, ref, metric, svg string) error {
	job, err := y.Find(ctx, ref, exit.Failed)
	if err != nil {
		return err
	}
	reported, err := y.Epochs(ctx, job.ID)
	if err != nil {
		return err
	}
	all := reported.Epochs
	if metric == "" {
		metric = mainMetric(all)
	}
	course, devices := courseOf(job, all, metric), devicesOf(job, time.Now())
	switch {
	case len(all) == 0:
		return exit.Errorf(exit.Failed, "the key `progress` of a job file reads metrics from output or files (docs/your-script.md)", "job %s has reported no epochs", job.ID)
	case len(course) == 0:
		return exit.Errorf(exit.Failed, "`switchyard get "+string(job.ID)+" metrics.csv --to -` shows what it has reported", "job %s has reported no %s", job.ID, render.EscapeText(metric))
	case a.Output == "json":
		return a.PrintJSON(map[string]any{"job": job.ID, "metric": metric, "course": course, "devices": devices})
	}
	if svg != "" {
		if err := installation.WriteFile(svg, []byte(draw(job, course, devices, metric))); err != nil {
			return exit.Errorf(exit.Failed, "", "%v", err)
		}
		fmt.Fprintln(a.Stdout, svg)
		return nil
	}
	const rows, usual = 12, 80
	columns, terminal := render.TerminalWidth(a.Stdout)
	if !terminal {
		columns = usual
	}
	last := course[len(course)-1]
	fmt.Fprintf(a.Stdout, "%s of %s over %s\n", render.EscapeText(metric), job.ID, render.Duration(last.X))
	render.Plot(a.Stdout, course, columns, rows)
	fmt.Fprintln(a.Stdout, "devices")
	render.Plot(a.Stdout, stairs(devices, last.X), columns, 1+most(devices))
	return nil
}

// mainMetric returns loss, or if a job reports none, the first of its metrics.
func mainMetric(all []view.Epoch) string {
	for _, e := range all {
		if names := slices.Sorted(maps.Keys(e.Metrics)); e.Loss == nil && len(names) > 0 {
			return names[0]
		}
	}
	return "loss"
}

// courseOf returns a metric by the seconds since the submission.
func courseOf(job train.Job, all []view.Epoch, metric string) []chart.Point {
	points := []chart.Point{}
	for _, e := range all {
		v, told := e.Metrics[metric]
		if metric == "loss" && e.Loss != nil {
			v, told = *e.Loss, true
		}
		if told {
			points = append(points, chart.Point{X: e.At.Sub(job.SubmittedAt).Seconds(), Y: v})
		}
	}
	return points
}

// devicesOf returns the number of devices at each change of a job, by the seconds since the submission.
func devicesOf(job train.Job, now time.Time) []chart.Point {
	points := []chart.Point{}
	for _, c := range job.History {
		points = append(points, chart.Point{X: c.At.Sub(job.SubmittedAt).Seconds(), Y: float64(len(c.Devices))})
	}
	if !job.State.Terminal() {
		points = append(points, chart.Point{X: now.Sub(job.SubmittedAt).Seconds(), Y: float64(len(job.Devices))})
	}
	return points
}

// stairs holds each value until the next, up to end.
func stairs(points []chart.Point, end float64) []chart.Point {
	var all []chart.Point
	for i, p := range points {
		if i > 0 {
			all = append(all, chart.Point{X: p.X, Y: points[i-1].Y})
		}
		if all = append(all, p); p.X >= end {
			break
		}
	}
	return all
}

func most(points []chart.Point) int {
	highest := 0.0
	for _, p := range points {
		highest = max(highest, p.Y)
	}
	const tallest = 7
	return min(int(highest), tallest)
}

func draw(job train.Job, course, devices []chart.Point, metric string) string {
	name := strings.TrimSpace(job.Spec.Name + " " + string(job.ID))
	return chart.Stack(metric+" and devices of "+name,
		chart.Lines{Title: metric + " of " + name, X: "time since the submission, s", Y: metric, Series: []chart.Line{{Name: metric, Points: course}}},
		chart.Lines{Title: "devices of " + name, X: "time since the submission, s", Y: "devices", FromZero: true, Steps: true, Series: []chart.Line{{Name: "devices", Points: devices}}})
}
