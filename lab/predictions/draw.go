package predictions

import (
	"fmt"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// curveOf is one line of a picture.
type curveOf struct {
	name   string
	points plotter.XYs
}

// Draw writes the pictures of the held-out half into a folder.
func (r *Report) Draw(dir string) error {
	for name, p := range map[string]struct {
		title string
		all   []outcome
	}{
		"predictions-epochs.svg": {"Epochs until the loss stands still, held-out trainings", r.epochs},
		"predictions-time.svg":   {"Time to the declared end, held-out trainings", r.seconds},
	} {
		lines := []curveOf{{name: "predicted"}, {name: "predicted, 90th percentile"}, {name: "as declared"}, {name: "as the last epoch"}}
		for tenth := 1; tenth <= tenths; tenth++ {
			q := measure(p.all, func(o outcome) bool { return o.heldOut && o.tenth == tenth })
			for i, y := range []float64{q.median, q.p90, q.declared, q.last} {
				lines[i].points = append(lines[i].points, percent(float64(10*tenth), y))
			}
		}
		if err := drawLines(filepath.Join(dir, name), p.title, "life of the job, %", "median error of what is left, %", lines); err != nil {
			return err
		}
	}
	return r.drawSpeeds(filepath.Join(dir, "predictions-speed.svg"))
}

func (r *Report) drawSpeeds(file string) error {
	lines := []curveOf{{name: "T4"}, {name: "T4, 90th percentile"}, {name: "four other types"}, {name: "four other types, 90th percentile"}}
	for _, n := range observedConfigurations() {
		a, b := r.speedOf(n, false), r.speedOf(n, true)
		for i, y := range []float64{a.median, a.p90, b.median, b.p90} {
			lines[i].points = append(lines[i].points, percent(float64(n), y))
		}
	}
	return drawLines(file, "Step time on configurations that have not run", "configurations that have run", "error, %", lines)
}

// percent is a point of a picture with a logarithmic axis, which has no zero.
func percent(x, y float64) plotter.XY { return plotter.XY{X: x, Y: math.Max(100*y, 0.5)} }

func drawLines(file, title, x, y string, lines []curveOf) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, one := range lines {
		line, err := plotter.NewLine(one.points)
		if err != nil {
			return fmt.Errorf("draw %s: %w", one.name, err)
		}
		line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i), vg.Points(1.4)
		p.Add(line)
		p.Legend.Add(one.name, line)
	}
	if err := p.Save(18*vg.Centimeter, 10*vg.Centimeter, file); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return nil
}
