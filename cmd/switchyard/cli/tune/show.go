package tune

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// experimentLine is an experiment in a list.
type experimentLine struct {
	ID        string                   `json:"id"`
	Name      string                   `json:"name"`
	Mode      string                   `json:"mode"`
	Algorithm string                   `json:"algorithm"`
	State     contract.ExperimentState `json:"state"`
	Message   string                   `json:"message,omitempty"`
	Trials    int                      `json:"trials"`
	Running   int                      `json:"running"`
	// Best is the best objective so far, with the user's sign; left out before the first result.
	Best        *float64  `json:"best,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"`
	Seconds     float64   `json:"seconds"`
}

// lineOf sums up the record of an experiment.
func lineOf(r conduct.Record, now time.Time) experimentLine {
	l := view.NewExperimentLine((*contract.ExperimentRecord)(&r))
	return newExperimentLine(&l, now)
}

func newExperimentLine(e *view.ExperimentLine, now time.Time) experimentLine {
	end := e.EndedAt
	if end.IsZero() {
		end = now
	}
	return experimentLine{
		ID: e.ID, Name: e.Name, Mode: string(e.Mode), Algorithm: string(e.Algorithm), State: e.State, Message: e.Message,
		Trials: e.Trials, Running: e.Running, Best: e.Best, SubmittedAt: e.SubmittedAt, Seconds: end.Sub(e.SubmittedAt).Seconds(),
	}
}

func tunePsCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "ps",
		Short: "List experiments",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				experiments, err := y.Experiments(ctx)
				if err != nil {
					return err
				}
				lines := make([]experimentLine, len(experiments))
				for i := range experiments {
					lines[i] = newExperimentLine(&experiments[i], time.Now())
				}
				slices.SortFunc(lines, func(x, y experimentLine) int { return x.SubmittedAt.Compare(y.SubmittedAt) })
				return a.Show(lines, "EXPERIMENT\tSTATE\tMODE\tSEARCH\tTRIALS\tRUNNING\tBEST\tTIME", func(w io.Writer) {
					for _, l := range lines {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", l.ID, l.State, l.Mode, l.Algorithm, l.Trials, l.Running, render.Known(l.Best, "%.4g"), render.Duration(l.Seconds))
					}
				})
			})
		},
	}
}

func tuneDescribeCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "describe EXPERIMENT",
		Short: "Show an experiment, its decisions and its trials",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withExperiment(a, cmd, args[0], func(_ context.Context, _ console.Yard, r conduct.Record) error {
				if a.Output == "json" {
					return a.PrintJSON(r)
				}
				return describeExperiment(a, r)
			})
		},
	}
}

func describeExperiment(a *console.Console, r conduct.Record) error {
	l, e := lineOf(r, time.Now()), r.Experiment
	goal := "maximise "
	if e.Objective.Minimise {
		goal = "minimise "
	}
	headline(a, r)
	fmt.Fprintf(a.Stdout, "  search     %s of at most %s, %d at a time, seed %d\n", e.Search.Algorithm, render.Plural(e.Search.Trials, "trial"), e.Concurrency, e.Search.Seed)
	fmt.Fprintf(a.Stdout, "  objective  %s%s, mode %s\n", goal, e.Objective, e.Mode)
	fmt.Fprintf(a.Stdout, "  time       %s\n", render.Duration(l.Seconds))
	if r.Recurs != nil {
		fmt.Fprintf(a.Stdout, "  recurs     experiment %s was the same: one trial with its best parameters, and no probes\n", r.Recurs.Of)
	}
	bestLine(a, r)
	fmt.Fprintln(a.Stdout)
	return resultsTable(a, r)
}

// headline says how far an experiment is, and why it has ended.
func headline(a *console.Console, r conduct.Record) {
	fmt.Fprintf(a.Stdout, "experiment %s: %s\n", r.ID, join(string(r.State), render.EscapeText(r.Message)))
}

// bestLine names the best trial, once one has a result.
func bestLine(a *console.Console, r conduct.Record) {
	if best, score, ok := r.Best(); ok {
		fmt.Fprintf(a.Stdout, "  best       trial %d: %.5g with %s\n", best.ID, r.Own(score), render.EscapeText(conduct.Words(best.Params)))
	}
}

func join(state, message string) string {
	if message == "" {
		return state
	}
	return state + ", " + message
}

func tuneResultsCommand(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "results EXPERIMENT",
		Short: "Show the results of an experiment's trials, as table, json, csv or html",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withExperiment(a, cmd, args[0], func(_ context.Context, _ console.Yard, r conduct.Record) error {
				switch a.Output {
				case "json":
					return a.PrintJSON(r.Rows())
				case "csv":
					return a.CSV(trialRows(r))
				case "html":
					return writeResultsHTML(a.Stdout, r, time.Now())
				}
				return resultsTable(a, r)
			})
		},
	}
	cmd.PersistentPreRunE = a.Accept("table", "json", "csv", "html")
	return cmd
}

func resultsTable(a *console.Console, r conduct.Record) error {
	return a.Table("TRIAL\tSTATE\tEPOCHS\t"+objectiveTitle(r)+"\tQUEUED\tTRAINED\tENERGY\tPARAMETERS\tSETTING\tREASON", func(w io.Writer) {
		for _, row := range r.Rows() {
			mark := ""
			if row.Best {
				mark = "*"
			}
			fmt.Fprintf(w, "%d%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Trial, mark, row.State, row.Epochs, render.Known(row.Objective, "%.5g"),
				render.Duration(row.QueueSeconds), render.Duration(row.TrainSeconds), joulesCell(row), render.Cell(conduct.Words(row.Params), 60), render.Cell(conduct.Words(row.Setting), 40), render.Cell(row.Reason, 60))
		}
	})
}

func objectiveTitle(r conduct.Record) string {
	return render.ClipText(render.EscapeText(r.Experiment.Objective.String()), 24)
}

func joulesCell(row conduct.Row) string {
	if row.EnergyJoules == 0 {
		return "-"
	}
	mark := ""
	if row.Modelled {
		mark = " (modelled)"
	}
	return fmt.Sprintf("%.4g J%s", row.EnergyJoules, mark)
}

// trialRows has a column for each parameter and system parameter.
func trialRows(r conduct.Record) [][]string {
	rows := r.Rows()
	params, settings := map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		for name := range row.Params {
			params[name] = true
		}
		for name := range row.Setting {
			settings[name] = true
		}
	}
	names, factors := slices.Sorted(maps.Keys(params)), slices.Sorted(maps.Keys(settings))
	header := []string{"trial", "job", "state", "best", "epochs_done", "objective", "queue_seconds", "train_seconds", "energy_j", "energy_modelled", "setting_changes", "reason"}
	for _, name := range names {
		header = append(header, "param."+name)
	}
	for _, name := range factors {
		header = append(header, "setting."+name)
	}
	lines := [][]string{header}
	for _, row := range rows {
		objective, joules := "", ""
		if row.Objective != nil {
			objective = render.Exactly(*row.Objective)
		}
		if row.EnergyJoules != 0 {
			joules = render.Exactly(row.EnergyJoules)
		}
		line := []string{
			strconv.Itoa(row.Trial), string(row.Job), string(row.State), strconv.FormatBool(row.Best), strconv.Itoa(row.Epochs), objective,
			render.Exactly(row.QueueSeconds), render.Exactly(row.TrainSeconds), joules, strconv.FormatBool(row.Modelled), strconv.Itoa(row.Changes), row.Reason,
		}
		for _, name := range names {
			text := ""
			if v, ok := row.Params[name]; ok {
				text = v.String()
			}
			line = append(line, text)
		}
		for _, name := range factors {
			text := ""
			if x, ok := row.Setting[name]; ok {
				text = render.Exactly(x)
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	return lines
}
