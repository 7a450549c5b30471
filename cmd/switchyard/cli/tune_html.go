package cli

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
)

//go:embed tune.html
var tunePage string

// writeResultsHTML writes a page that needs nothing else, and reads well on paper.
func writeResultsHTML(w io.Writer, r conduct.Record, now time.Time) error {
	figures, err := drawResults(r)
	if err != nil {
		return err
	}
	page, err := parsePage("tune", tunePage, template.FuncMap{
		"objective": func(row conduct.Row) string { return known(row.Objective, "%.5g") },
		"seconds":   duration, "energy": joulesCell,
		"params":  func(row conduct.Row) string { return conduct.Words(row.Params) },
		"setting": func(row conduct.Row) string { return conduct.Words(row.Setting) },
	})
	if err != nil {
		return err
	}
	line, best := newExperimentLine(r, now), ""
	if t, score, ok := r.Best(); ok {
		best = fmt.Sprintf("trial %d: %.5g with %s", t.ID, r.Own(score), conduct.Words(t.Params))
	}
	return page.Execute(w, map[string]any{
		"Line": line, "Experiment": r.Experiment, "Rows": r.Rows(), "Figures": figures, "Time": duration(line.Seconds), "Best": best,
	})
}

// drawResults draws the best objective over time, and that of each trial over its epochs.
func drawResults(r conduct.Record) ([]reportFigure, error) {
	curves := plot.New()
	curves.X.Label.Text, curves.Y.Label.Text = "epoch", r.Experiment.Objective.String()
	curves.Add(plotter.NewGrid())
	drawn := 0
	for i := range r.Trials {
		results, _ := r.Results(&r.Trials[i])
		if len(results) == 0 {
			continue
		}
		points := make(plotter.XYs, len(results))
		for k, one := range results {
			points[k] = plotter.XY{X: float64(one.Epoch), Y: r.Own(one.Score)}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("draw trial %d: %w", i, err)
		}
		line.Color, dots.Color, dots.Radius = plotutil.Color(i), plotutil.Color(i), vg.Points(1.5)
		curves.Add(line, dots)
		drawn++
	}
	if drawn == 0 {
		return nil, nil
	}
	progress, err := drawProgress(r)
	if err != nil {
		return nil, err
	}
	first, err := drawSVG(progress)
	if err != nil {
		return nil, err
	}
	second, err := drawSVG(curves)
	if err != nil {
		return nil, err
	}
	return []reportFigure{
		{Title: "Best objective over time", Caption: "The best that any trial had reached, since the submission.", SVG: first},
		{Title: "Trials", Caption: "The objective of each trial at the end of its epochs.", SVG: second},
	}, nil
}

func drawProgress(r conduct.Record) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "seconds since the submission", r.Experiment.Objective.String()
	p.Add(plotter.NewGrid())
	line, err := plotter.NewLine(progressOf(r))
	if err != nil {
		return nil, fmt.Errorf("draw progress: %w", err)
	}
	line.StepStyle, line.Width, line.Color = plotter.PostStep, vg.Points(1.5), plotutil.Color(0)
	p.Add(line)
	return p, nil
}

// progressOf is the best objective at each time at which it became better, and at the end.
func progressOf(r conduct.Record) plotter.XYs {
	var points plotter.XYs
	for _, one := range r.Progress() {
		points = append(points, plotter.XY{X: one.At.Sub(r.SubmittedAt).Seconds(), Y: r.Own(one.Score)})
	}
	if r.Over() && len(points) > 0 {
		points = append(points, plotter.XY{X: r.EndedAt.Sub(r.SubmittedAt).Seconds(), Y: points[len(points)-1].Y})
	}
	return points
}
