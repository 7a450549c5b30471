package tune

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/chart"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// modeSummary summarises the experiments of one mode: medians of runs, or means of arrivals. The three parts of the
// response time add up to it.
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
	// Objective is that of the experiments that have one.
	Objective *float64 `json:"objective,omitempty"`
	Trials    float64  `json:"trials"`
	// SavedRatio is the part of the first mode's response time that this mode saves.
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
			Trials:          typical(own, func(c modeRun) float64 { return float64(c.Trials) }),
			Modelled:        slices.ContainsFunc(own, func(c modeRun) bool { return c.Modelled }),
		}
		known := slices.DeleteFunc(slices.Clone(own), func(c modeRun) bool { return c.Objective == nil })
		if len(known) > 0 {
			rows[i].Objective = new(typical(known, func(c modeRun) float64 { return *c.Objective }))
		}
		rows[i].SavedRatio = 1 - rows[i].ResponseSeconds/rows[0].ResponseSeconds
	}
	return rows
}

// middle returns the one or two values whose mean is the median. The parts of the median response come from these
// runs, so that they add up to it.
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

func printCompared(a *console.Console, all []modeRun, f tuneCompare) error {
	rows := summarise(all, f.modes, f.jobs > 0)
	switch a.Output {
	case "json":
		return a.PrintJSON(map[string]any{"modes": rows, "experiments": all})
	case "csv":
		return a.CSV(comparedRows(all))
	case "html":
		return writeComparedHTML(a.Stdout, all, rows, f)
	}
	return a.Table("MODE\tEXPERIMENTS\tRESPONSE\tP95\tSAVED\tQUEUED\tTUNING\tTRAINING\tENERGY\tOBJECTIVE\tTRIALS", func(w io.Writer) {
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%d\t%.1fs\t%.1fs\t%.1f %%\t%.1fs\t%.1fs\t%.1fs\t%s\t%s\t%.3g\n", r.Mode, r.Experiments, r.ResponseSeconds, r.P95Seconds, 100*r.SavedRatio,
				r.QueueSeconds, r.TuningSeconds, r.TrainingSeconds, r.energy(), render.Known(r.Objective, "%.4g"), r.Trials)
		}
	})
}

func (r modeSummary) energy() string {
	if r.EnergyJoules == 0 {
		return "-"
	}
	text := unit.Joules(r.EnergyJoules)
	if r.Modelled {
		text += " (modelled)"
	}
	return text
}

func comparedRows(all []modeRun) [][]string {
	rows := [][]string{{
		"mode", "name", "id", "response_seconds", "queue_seconds", "tuning_seconds", "training_seconds", "energy_j", "energy_modelled", "objective", "trials", "epochs",
	}}
	number := render.Exactly
	for _, c := range all {
		objective := ""
		if c.Objective != nil {
			objective = number(*c.Objective)
		}
		rows = append(rows, []string{
			c.Mode, c.Name, c.ID, number(c.ResponseSeconds), number(c.QueueSeconds), number(c.TuningSeconds), number(c.TrainingSeconds), number(c.EnergyJoules),
			strconv.FormatBool(c.Modelled), objective, strconv.Itoa(c.Trials), strconv.Itoa(c.Epochs),
		})
	}
	return rows
}

//go:embed tune_compare.html
var comparePage string

func writeComparedHTML(w io.Writer, all []modeRun, rows []modeSummary, f tuneCompare) error {
	page, err := render.ParsePage("compare", comparePage, template.FuncMap{"known": render.Known, "percent": func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }})
	if err != nil {
		return err
	}
	how := fmt.Sprintf("Medians of %s of each experiment in each mode, one after the other, with nothing known before. Queued, tuning and training are those of the run of the median response.", render.Plural(f.runs, "run"))
	if f.jobs > 0 {
		how = fmt.Sprintf("Means of %s that arrive as a Poisson process, at the same moments in each mode, seed %d.", render.Plural(f.jobs, "recurring experiment"), f.seed)
	}
	return page.Execute(w, map[string]any{"Rows": rows, "How": how, "Modes": strings.Join(f.modes, ", "), "Figures": drawCompared(all, rows, f)})
}

// drawCompared draws what the response time of each mode is made of and, if experiments arrive, that of each of them.
func drawCompared(all []modeRun, rows []modeSummary, f tuneCompare) []render.Figure {
	queued, tuning, training := chart.Values{Name: "queued"}, chart.Values{Name: "tuning"}, chart.Values{Name: "training"}
	parts := chart.Bars{Title: "Response time", X: "mode", Y: "response time, s"}
	for _, r := range rows {
		parts.Names = append(parts.Names, r.Mode)
		queued.Values = append(queued.Values, r.QueueSeconds)
		tuning.Values = append(tuning.Values, r.TuningSeconds)
		training.Values = append(training.Values, r.TrainingSeconds)
	}
	parts.Series = []chart.Values{queued, tuning, training}
	what := "From arrival to end, in seconds: trials wait, tune, and train the best. "
	if f.jobs == 0 {
		return []render.Figure{render.Drawing(parts.Title, what+"The run with the median response.", parts.SVG())}
	}
	return []render.Figure{
		render.Drawing(parts.Title, what+"Means of all experiments.", parts.SVG()),
		render.Drawing("Response time by arrival", "Each experiment, in seconds, by its arrival after the first one.", drawArrivals(all, f.modes)),
	}
}

func drawArrivals(all []modeRun, modes []string) string {
	arrivals := chart.Lines{Title: "Response time by arrival", X: "arrival, s after the first", Y: "response time, s", FromZero: true, Legend: true}
	for _, mode := range modes {
		own := slices.DeleteFunc(slices.Clone(all), func(c modeRun) bool { return c.Mode != mode })
		slices.SortFunc(own, func(x, y modeRun) int { return x.ArrivedAt.Compare(y.ArrivedAt) })
		line := chart.Line{Name: mode}
		for _, c := range own {
			line.Points = append(line.Points, chart.Point{X: c.ArrivedAt.Sub(own[0].ArrivedAt).Seconds(), Y: c.ResponseSeconds})
		}
		arrivals.Series = append(arrivals.Series, line)
	}
	return arrivals.SVG()
}
