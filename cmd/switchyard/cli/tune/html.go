package tune

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/switchyard-dl/switchyard/libs/chart"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
)

//go:embed tune.html
var tunePage string

// writeResultsHTML writes a page that loads nothing else and can be printed.
func writeResultsHTML(w io.Writer, r conduct.Record, now time.Time) error {
	page, err := render.ParsePage("tune", tunePage, template.FuncMap{
		"objective": func(row conduct.Row) string { return render.Known(row.Objective, "%.5g") },
		"seconds":   render.Duration, "energy": joulesCell,
		"params":  func(row conduct.Row) string { return conduct.Words(row.Params) },
		"setting": func(row conduct.Row) string { return conduct.Words(row.Setting) },
	})
	if err != nil {
		return err
	}
	line, best := lineOf(r, now), ""
	if t, score, ok := r.Best(); ok {
		best = fmt.Sprintf("trial %d: %.5g with %s", t.ID, r.Own(score), conduct.Words(t.Params))
	}
	return page.Execute(w, map[string]any{
		"Line": line, "Experiment": r.Experiment, "Rows": r.Rows(), "Figures": drawResults(r), "Time": render.Duration(line.Seconds), "Best": best,
	})
}

// drawResults draws the best objective over time, and that of each trial over its epochs.
func drawResults(r conduct.Record) []render.Figure {
	curves := chart.Lines{Title: "Trials", X: "epoch", Y: r.Experiment.Objective.String()}
	for i := range r.Trials {
		results, _ := r.Results(&r.Trials[i])
		line := chart.Line{Name: fmt.Sprintf("trial %d, epoch", r.Trials[i].ID)}
		for _, one := range results {
			line.Points = append(line.Points, chart.Point{X: float64(one.Epoch), Y: r.Own(one.Score)})
		}
		if len(results) > 0 {
			curves.Series = append(curves.Series, line)
		}
	}
	if len(curves.Series) == 0 {
		return nil
	}
	progress := chart.Lines{
		Title: "Best objective over time", X: "seconds since the submission", Y: r.Experiment.Objective.String(), Steps: true,
		Series: []chart.Line{{Points: progressOf(r)}},
	}
	return []render.Figure{
		render.Drawing(progress.Title, "The best that any trial had reached, since the submission.", progress.SVG()),
		render.Drawing(curves.Title, "The objective of each trial at the end of its epochs.", curves.SVG()),
	}
}

// progressOf returns the best objective at each improvement, and at the end.
func progressOf(r conduct.Record) []chart.Point {
	var points []chart.Point
	for _, one := range r.Progress() {
		points = append(points, chart.Point{X: one.At.Sub(r.SubmittedAt).Seconds(), Y: one.Value})
	}
	if r.Over() && len(points) > 0 {
		points = append(points, chart.Point{X: r.EndedAt.Sub(r.SubmittedAt).Seconds(), Y: points[len(points)-1].Y})
	}
	return points
}
