package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/services/experiments/contest"
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
		Example: `  switchyard simulate search --recorded pipetune/offline_res --seeds 20
  switchyard simulate search --problem curves,crossing --best 0.05 --workers 4 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			problems, err := o.prepare()
			if err != nil {
				return err
			}
			rows, err := o.compete(cmd.Context(), problems)
			if err != nil {
				return runtime(err)
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
		return nil, failure(ExitUsage, "", "--seeds %d, --workers %d: want 1 or more", o.seeds, o.workers)
	}
	for _, part := range o.parts {
		if !(part > 0 && part < 1) {
			return nil, failure(ExitUsage, "", "--best %g: want more than 0 and less than 1", part)
		}
	}
	problems := contest.Functions()
	if o.recorded != "" {
		more, err := contest.LoadRecorded(os.DirFS(o.recorded))
		if err != nil {
			return nil, failure(ExitUsage, "--recorded names a folder with files TuneV*Vary_JOB_CORES.csv", "%v", err)
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
			return nil, failure(ExitUsage, "problems are "+strings.Join(names, ", "), "--problem %q: no such problem", name)
		}
		chosen = append(chosen, problems[i])
	}
	return chosen, nil
}

// compete plays everything, as many at once as there are processors. Rows are by problem, part and search.
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
	p := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(goruntime.GOMAXPROCS(0))
	for i, m := range matches {
		p.Go(func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			var err error
			rows[i], err = m.Compete()
			return err
		})
	}
	return rows, p.Wait()
}

func (a *app) writeSearches(rows []contest.Row) error {
	switch a.output {
	case "json":
		return a.printJSON(rows)
	case "csv":
		lines := [][]string{{
			"problem", "best_part", "algorithm", "seeds", "reached", "trials", "trials_low", "trials_high", "epochs", "epochs_low", "epochs_high", "time", "time_low",
			"time_high",
		}}
		number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
		for _, r := range rows {
			line := []string{r.Problem, number(r.BestPart), r.Algorithm, strconv.Itoa(r.Seeds), strconv.Itoa(r.Reached)}
			for _, s := range []contest.Spread{r.Trials, r.Epochs, r.Time} {
				line = append(line, number(s.Median), number(s.Low), number(s.High))
			}
			lines = append(lines, line)
		}
		return runtime(csv.NewWriter(a.stdout).WriteAll(lines))
	}
	return a.table("PROBLEM\tBEST\tSEARCH\tREACHED\tTRIALS\tEPOCHS\tTIME", func(w io.Writer) {
		text := func(s contest.Spread) string { return fmt.Sprintf("%.0f (%.0f to %.0f)", s.Median, s.Low, s.High) }
		for _, r := range rows {
			_, _ = fmt.Fprintf(w, "%s\t%g%%\t%s\t%d of %d\t%s\t%s\t%s\n", r.Problem, 100*r.BestPart, r.Algorithm, r.Reached, r.Seeds, text(r.Trials), text(r.Epochs), text(r.Time))
		}
	})
}
