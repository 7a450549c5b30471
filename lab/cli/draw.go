package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/switchyard-dl/switchyard/services/planner/simrun"
)

// drawComparison draws the runs on one workload: the distribution of completion times, and devices in use and active
// jobs over time.
func drawComparison(dir, workload string, runs []simrun.Run) error {
	name := strings.NewReplacer("/", "-", "+", "-and-").Replace(workload)
	cdf := newPicture("Completion times, "+workload, "completion time, s", "share of jobs")
	cdf.X.Scale, cdf.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	cdf.Y.Min, cdf.Y.Max = 0, 1
	cdf.Legend.Left = true
	busy := newPicture("Devices in use, "+workload, "time, h", "devices")
	waiting := newPicture("Jobs submitted and not completed, "+workload, "time, h", "jobs")
	for i, r := range runs {
		for p, points := range map[*plot.Plot]plotter.XYs{cdf: distribution(r), busy: devicesInUse(r), waiting: activeJobs(r)} {
			line, err := plotter.NewLine(points)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Policy, err)
			}
			line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i/len(plotutil.DefaultColors)), vg.Points(1.2)
			p.Add(line)
			p.Legend.Add(r.Policy, line)
		}
	}
	for prefix, p := range map[string]*plot.Plot{"jct-": cdf, "devices-": busy, "jobs-": waiting} {
		for _, format := range []string{".svg", ".png"} {
			if err := p.Save(18*vg.Centimeter, 11*vg.Centimeter, filepath.Join(dir, prefix+name+format)); err != nil {
				return err
			}
		}
	}
	return nil
}

func newPicture(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

// distribution is the share of jobs that took at most so long.
func distribution(r simrun.Run) plotter.XYs {
	var times []float64
	for _, jct := range r.JCTs {
		times = append(times, math.Max(jct, 1))
	}
	slices.Sort(times)
	points := make(plotter.XYs, len(times))
	for i, t := range times {
		points[i] = plotter.XY{X: t, Y: float64(i+1) / float64(max(r.Jobs, 1))}
	}
	if len(points) == 0 {
		points = plotter.XYs{{X: 1, Y: 0}}
	}
	return points
}

func devicesInUse(r simrun.Run) plotter.XYs {
	return overTime(r, func(i int) float64 { return float64(r.Ticks[i].BusyDevices) })
}

func activeJobs(r simrun.Run) plotter.XYs {
	return overTime(r, func(i int) float64 { return float64(r.Ticks[i].Active) })
}

// overTime thins a series out to what a picture can show: means of stretches.
func overTime(r simrun.Run, value func(i int) float64) plotter.XYs {
	const most = 400
	stretch := (len(r.Ticks) + most - 1) / most
	var points plotter.XYs
	for from := 0; from < len(r.Ticks); from += stretch {
		to, sum := min(from+stretch, len(r.Ticks)), 0.0
		for i := from; i < to; i++ {
			sum += value(i)
		}
		points = append(points, plotter.XY{X: r.Ticks[from].Seconds / 3600, Y: sum / float64(to-from)})
	}
	if len(points) == 0 {
		points = plotter.XYs{{}}
	}
	return points
}
