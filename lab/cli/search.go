package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/contest"
	"github.com/switchyard-dl/switchyard/libs/render"
)

// searchOptions are the flags of simulate search.
type searchOptions struct {
	recorded string
	problems []string
	parts    []float64
	seeds    int
	workers  int
}

func (a *app) simulateSearchCommand() *cobra.Command {
	var o searchOptions
	cmd := &cobra.Command{
		Use:   "search",
		Short: "Let the ways to search for hyper-parameters compete: how much each tries until it has one of the best points",
		Long: `Plays the searches of experiments in virtual time on two standard functions (branin, hartmann6), on learning curves (curves; crossing, whose first epochs
mislead) and, with --recorded, on trainings that were recorded once (PipeTune's offline experiments). A search is at its goal when a trial whose
point belongs to the best part of all points has trained to its end. Figures are medians over seeds, with quartiles.`,
		Example: `  switchyard-lab simulate search --recorded pipetune/offline_res --seeds 20
  switchyard-lab simulate search --problem curves,crossing --best 0.05 --workers 4 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			problems, err := o.prepare()
			if err != nil {
				return err
			}
			rows, err := o.compete(cmd.Context(), problems)
			if err != nil {
				return err
			}
			return a.writeSearches(rows)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.recorded, "recorded", "", "folder of recorded trainings, TuneV*Vary_JOB_CORES.csv")
	fs.StringSliceVar(&o.problems, "problem", nil, "only these problems, joined by commas; jobs of recorded trainings go by their names")
	fs.Float64SliceVar(&o.parts, "best", []float64{0.05}, "parts of the points that are good enough, joined by commas")
	fs.IntVar(&o.seeds, "seeds", 20, "how often each search is played")
	fs.IntVar(&o.workers, "workers", 1, "how many trials train at a time")
	return cmd
}

// prepare checks the flags and reads the files.
func (o *searchOptions) prepare() ([]contest.Problem, error) {
	if o.seeds < 1 || o.workers < 1 {
		return nil, exit.Usagef("--seeds %d, --workers %d: want 1 or more", o.seeds, o.workers)
	}
	for _, part := range o.parts {
		if !(part > 0 && part < 1) {
			return nil, exit.Usagef("--best %g: want more than 0 and less than 1", part)
		}
	}
	problems := contest.Functions()
	if o.recorded != "" {
		more, err := contest.LoadRecorded(os.DirFS(o.recorded))
		if err != nil {
			return nil, exit.Errorf(exit.Usage, "--recorded names a folder with files TuneV*Vary_JOB_CORES.csv", "%v", err)
		}
		problems = append(problems, more...)
	}
	if len(o.problems) == 0 {
		return problems, nil
	}
	var names []string
	for _, p := range problems {
		names = append(names, p.Name)
	}
	var chosen []contest.Problem
	for _, name := range o.problems {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, exit.Errorf(exit.Usage, "problems are "+strings.Join(names, ", "), "--problem %q: no such problem", name)
		}
		chosen = append(chosen, problems[i])
	}
	return chosen, nil
}

// compete plays everything. Rows are by problem, part and search.
func (o *searchOptions) compete(ctx context.Context, problems []contest.Problem) ([]contest.Row, error) {
	var matches []contest.Match
	for _, problem := range problems {
		for _, part := range o.parts {
			for _, e := range contest.Entrants(problem) {
				matches = append(matches, contest.Match{Problem: problem, Entrant: e, BestPart: part, Seeds: o.seeds, Workers: o.workers})
			}
		}
	}
	rows := make([]contest.Row, len(matches))
	return rows, each(ctx, len(rows), func(i int) (err error) {
		rows[i], err = matches[i].Compete()
		return err
	})
}

func (a *app) writeSearches(all []contest.Row) error {
	rows := [][]string{{
		"problem", "best_part", "algorithm", "seeds", "reached", "trials", "trials_low", "trials_high", "epochs", "epochs_low", "epochs_high", "time", "time_low",
		"time_high",
	}}
	for _, r := range all {
		row := []string{r.Problem, render.Exactly(r.BestPart), r.Algorithm, strconv.Itoa(r.Seeds), strconv.Itoa(r.Reached)}
		for _, s := range []contest.Spread{r.Trials, r.Epochs, r.Time} {
			row = append(row, render.Exactly(s.Median), render.Exactly(s.Low), render.Exactly(s.High))
		}
		rows = append(rows, row)
	}
	return a.write(result{all, rows, "PROBLEM\tBEST\tSEARCH\tREACHED\tTRIALS\tEPOCHS\tTIME", func(w io.Writer) {
		text := func(s contest.Spread) string { return fmt.Sprintf("%.0f (%.0f to %.0f)", s.Median, s.Low, s.High) }
		for _, r := range all {
			fmt.Fprintf(w, "%s\t%g%%\t%s\t%d of %d\t%s\t%s\t%s\n", r.Problem, 100*r.BestPart, r.Algorithm, r.Reached, r.Seeds, text(r.Trials), text(r.Epochs), text(r.Time))
		}
	}})
}
