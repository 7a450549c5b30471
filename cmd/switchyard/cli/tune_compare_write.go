package cli

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// modeSummary is what the experiments of one mode came to: medians of runs, or means of arrivals. The three parts of the response add up to it.
type modeSummary struct {
	Mode            string  `json:"mode"`
	Experiments     int     `json:"experiments"`
	ResponseSeconds float64 `json:"response_seconds"`
	P95Seconds      float64 `json:"p95_response_seconds"`
	QueueSeconds    float64 `json:"queue_seconds"`
	TuningSeconds   float64 `json:"tuning_seconds"`
	TrainingSeconds float64 `json:"training_seconds"`
	EnergyJoules    float64 `json:"energy_j"`
	Modelled        bool    `json:"energy_modelled,omitempty"`
	Objective       float64 `json:"objective"`
	Trials          float64 `json:"trials"`
	// SavedRatio is the part of the first mode's response time that is saved.
	SavedRatio float64 `json:"saved_ratio"`
}

func summarise(all []modeRun, modes []string, online bool) []modeSummary {
	rows := make([]modeSummary, len(modes))
	for i, mode := range modes {
		own := slices.DeleteFunc(slices.Clone(all), func(c modeRun) bool { return c.Mode != mode })
		slices.SortStableFunc(own, func(x, y modeRun) int { return cmp.Compare(x.ResponseSeconds, y.ResponseSeconds) })
		times, typical := middle(own), median
		if online {
			times, typical = own, mean
		}
		rows[i] = modeSummary{
			Mode: mode, Experiments: len(own),
			ResponseSeconds: mean(times, func(c modeRun) float64 { return c.ResponseSeconds }),
			P95Seconds:      stat.Quantile(0.95, stat.Empirical, valuesOf(own, func(c modeRun) float64 { return c.ResponseSeconds }), nil),
			QueueSeconds:    mean(times, func(c modeRun) float64 { return c.QueueSeconds }),
			TuningSeconds:   mean(times, func(c modeRun) float64 { return c.TuningSeconds }),
			TrainingSeconds: mean(times, func(c modeRun) float64 { return c.TrainingSeconds }),
			EnergyJoules:    typical(own, func(c modeRun) float64 { return c.EnergyJoules }),
			Objective:       typical(own, func(c modeRun) float64 { return c.Objective }),
			Trials:          typical(own, func(c modeRun) float64 { return float64(c.Trials) }),
			Modelled:        slices.ContainsFunc(own, func(c modeRun) bool { return c.Modelled }),
		}
		rows[i].SavedRatio = 1 - rows[i].ResponseSeconds/rows[0].ResponseSeconds
	}
	return rows
}

// middle is what a median is the mean of: the one in the middle, or two. The parts of the median response are those of these runs, so they add up to it.
func middle[T any](sorted []T) []T { return sorted[(len(sorted)-1)/2 : len(sorted)/2+1] }

func valuesOf(runs []modeRun, of func(modeRun) float64) []float64 {
	values := make([]float64, len(runs))
	for k, c := range runs {
		values[k] = of(c)
	}
	return values
}

func mean(runs []modeRun, of func(modeRun) float64) float64 {
	return stat.Mean(valuesOf(runs, of), nil)
}

func median(runs []modeRun, of func(modeRun) float64) float64 {
	return stat.Mean(middle(slices.Sorted(slices.Values(valuesOf(runs, of)))), nil)
}

func (a *app) printCompared(all []modeRun, f tuneCompare) error {
	rows := summarise(all, f.modes, f.jobs > 0)
	switch a.output {
	case "json":
		return a.printJSON(map[string]any{"modes": rows, "experiments": all})
	case "csv":
		return writeComparedCSV(a.stdout, all)
	case "html":
		return writeComparedHTML(a.stdout, all, rows, f)
	}
	return a.table("MODE\tEXPERIMENTS\tRESPONSE\tP95\tSAVED\tQUEUED\tTUNING\tTRAINING\tENERGY\tOBJECTIVE\tTRIALS", func(w io.Writer) {
		for _, r := range rows {
			_, _ = fmt.Fprintf(w, "%s\t%d\t%.1fs\t%.1fs\t%.1f %%\t%.1fs\t%.1fs\t%.1fs\t%s\t%.4g\t%.3g\n", r.Mode, r.Experiments, r.ResponseSeconds, r.P95Seconds, 100*r.SavedRatio,
				r.QueueSeconds, r.TuningSeconds, r.TrainingSeconds, r.energy(), r.Objective, r.Trials)
		}
	})
}

func (r modeSummary) energy() string {
	if r.EnergyJoules == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.4g J", r.EnergyJoules)
	if r.Modelled {
		text += " (modelled)"
	}
	return text
}

func writeComparedCSV(w io.Writer, all []modeRun) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"mode", "name", "id", "response_seconds", "queue_seconds", "tuning_seconds", "training_seconds", "energy_j", "energy_modelled", "objective", "trials", "epochs"})
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, c := range all {
		_ = out.Write([]string{
			c.Mode, c.Name, c.ID, number(c.ResponseSeconds), number(c.QueueSeconds), number(c.TuningSeconds), number(c.TrainingSeconds), number(c.EnergyJoules),
			strconv.FormatBool(c.Modelled), number(c.Objective), strconv.Itoa(c.Trials), strconv.Itoa(c.Epochs),
		})
	}
	out.Flush()
	return runtime(out.Error())
}

//go:embed tune_compare.html
var comparePage string

func writeComparedHTML(w io.Writer, all []modeRun, rows []modeSummary, f tuneCompare) error {
	figures, err := drawCompared(all, rows, f)
	if err != nil {
		return err
	}
	page, err := parsePage("compare", comparePage, template.FuncMap{"percent": func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }})
	if err != nil {
		return err
	}
	how := fmt.Sprintf("Medians of %s of each experiment in each mode, one after the other, with nothing known before. Queued, tuning and training are those of the run of the median response.", plural(f.runs, "run"))
	if f.jobs > 0 {
		how = fmt.Sprintf("Means of %s that arrive as a Poisson process, at the same moments in each mode, seed %d.", plural(f.jobs, "recurring experiment"), f.seed)
	}
	return page.Execute(w, map[string]any{"Rows": rows, "How": how, "Modes": strings.Join(f.modes, ", "), "Figures": figures})
}

// drawCompared draws what the response time of each mode is made of and, where experiments arrive, that of each of them.
func drawCompared(all []modeRun, rows []modeSummary, f tuneCompare) ([]reportFigure, error) {
	parts := bars{unit: "response time, s", title: "mode", order: []string{"queued", "tuning", "training"}, series: map[string]plotter.Values{}}
	for _, r := range rows {
		parts.names = append(parts.names, r.Mode)
		for name, v := range map[string]float64{"queued": r.QueueSeconds, "tuning": r.TuningSeconds, "training": r.TrainingSeconds} {
			parts.series[name] = append(parts.series[name], v)
		}
	}
	picture, err := parts.draw()
	if err != nil {
		return nil, err
	}
	whose := "Of the run of the median response."
	if f.jobs > 0 {
		whose = "Means of all experiments."
	}
	figures := []reportFigure{{Title: "Response time", Caption: "From arrival to end, in seconds: in which trials waited, tuned, and trained the best. " + whose, SVG: picture}}
	if f.jobs == 0 {
		return figures, nil
	}
	arrivals, err := drawArrivals(all, f.modes)
	if err != nil {
		return nil, err
	}
	if picture, err = drawSVG(arrivals); err != nil {
		return nil, err
	}
	return append(figures, reportFigure{Title: "Response time by arrival", Caption: "Of each experiment, in seconds, by when it arrived after the first one.", SVG: picture}), nil
}

func drawArrivals(all []modeRun, modes []string) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "arrival, s after the first", "response time, s", 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, mode := range modes {
		own := slices.DeleteFunc(slices.Clone(all), func(c modeRun) bool { return c.Mode != mode })
		slices.SortFunc(own, func(x, y modeRun) int { return x.ArrivedAt.Compare(y.ArrivedAt) })
		points := make(plotter.XYs, len(own))
		for k, c := range own {
			points[k] = plotter.XY{X: c.ArrivedAt.Sub(own[0].ArrivedAt).Seconds(), Y: c.ResponseSeconds}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("draw mode %s: %w", mode, err)
		}
		line.Color, dots.Color, dots.Radius = plotutil.Color(i), plotutil.Color(i), vg.Points(1.5)
		p.Add(line, dots)
		p.Legend.Add(mode, line, dots)
	}
	p.Y.Max *= legendRoom(len(modes))
	return p, nil
}
