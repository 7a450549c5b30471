package tune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

// tuneCompare are the flags of `tune compare`.
type tuneCompare struct {
	modes   []string
	runs    int
	jobs    int
	load    float64
	meanGap time.Duration
	seed    uint64
	prefix  string
}

func tuneCompareCommand(a *console.Console) *cobra.Command {
	var f tuneCompare
	cmd := &cobra.Command{
		Use:   "compare FILE..",
		Short: "Run the same experiments in several modes and compare time, energy and objective",
		Long: `Without --jobs each file is run --runs times in each mode, one after the other, without earlier knowledge. The figures are medians, and
the parts of the response those of the run of the median response.

With --jobs that many experiments arrive as a Poisson process, each of one of the files and recurring; every mode gets the same arrivals, at a --load: 1 is where they would keep
the machine busy with their files run alone in mode v1, which is measured first unless --mean-gap is given. The figures are means. The response is the time from arrival to
end: queued, while a trial waited for its first process and none trained; the training of the trial that was best; and tuning, which is the rest.

The experiments do not use what was learned before, and what they learn is forgotten a day later. Run nothing else on the cluster.`,
		Example: `  switchyard tune compare examples/experiments/digits.yaml --runs 5
  switchyard tune compare a.yaml b.yaml --jobs 20 --load 0.75 --modes v1,pipetune -o html > online.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return compareModes(ctx, a, y, args, f) })
		},
	}
	cmd.PersistentPreRunE = a.Accept("table", "json", "csv", "html")
	fs := cmd.Flags()
	fs.StringSliceVar(&f.modes, "modes", []string{"v1", "v2", "pipetune"}, "modes to compare; the first is the baseline")
	fs.IntVar(&f.runs, "runs", 1, "runs of each file in each mode")
	fs.IntVar(&f.jobs, "jobs", 0, "number of experiments that arrive, instead of --runs")
	fs.Float64Var(&f.load, "load", 0.75, "offered load of the arrivals")
	fs.DurationVar(&f.meanGap, "mean-gap", 0, "mean time between arrivals instead of a load")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of the arrivals")
	fs.StringVar(&f.prefix, "prefix", "", "prefix of the experiments' ids (default: cmp and random letters)")
	return cmd
}

func (f *tuneCompare) check() error {
	for _, m := range f.modes {
		if !slices.Contains(file.Modes(), contract.ExperimentMode(m)) {
			return exit.Usagef("--modes %q: want v1, v2 or pipetune", m)
		}
	}
	if f.runs < 1 || f.jobs < 0 || !(f.load > 0) || f.meanGap < 0 {
		return exit.Usagef("--runs %d, --jobs %d, --load %g, --mean-gap %s: want more than 0", f.runs, f.jobs, f.load, f.meanGap)
	}
	if f.prefix == "" {
		f.prefix = string(jobs.NewID("cmp"))
	}
	return nil
}

// modeRun is one experiment of a comparison.
type modeRun struct {
	Mode string `json:"mode"`
	Name string `json:"name"`
	ID   string `json:"id"`
	// ArrivedAt is the time of submission. ResponseSeconds runs from then to the end. It is the sum of QueueSeconds,
	// in which a trial waited and none trained, TrainingSeconds of the best trial, and TuningSeconds.
	ArrivedAt       time.Time `json:"arrived_at"`
	ResponseSeconds float64   `json:"response_seconds"`
	QueueSeconds    float64   `json:"queue_seconds"`
	TuningSeconds   float64   `json:"tuning_seconds"`
	TrainingSeconds float64   `json:"training_seconds"`
	EnergyJoules    float64   `json:"energy_j"`
	Modelled        bool      `json:"energy_modelled,omitempty"`
	Objective       *float64  `json:"objective,omitempty"`
	Trials          int       `json:"trials"`
	Epochs          int       `json:"epochs"`
}

func newModeRun(mode string, r conduct.Record) modeRun {
	o := r.Outcome()
	return modeRun{
		Mode: mode, Name: r.Experiment.Name, ID: r.ID, ArrivedAt: r.SubmittedAt, Trials: len(r.Trials), Epochs: o.Epochs,
		ResponseSeconds: o.ResponseSeconds, QueueSeconds: o.QueueSeconds, TuningSeconds: o.TuningSeconds, TrainingSeconds: o.TrainingSeconds,
		EnergyJoules: o.EnergyJoules, Modelled: o.Modelled, Objective: o.Objective,
	}
}

// compareModes runs everything in every mode.
func compareModes(ctx context.Context, a *console.Console, y console.Yard, paths []string, f tuneCompare) (err error) {
	experiments := make([]file.Experiment, len(paths))
	for i, path := range paths {
		if experiments[i], err = readExperiment(a, path, ""); err != nil {
			return err
		}
	}
	run := func(mode, id string, e file.Experiment) (modeRun, error) { return runCompared(ctx, y, mode, id, e) }
	var all []modeRun
	if f.jobs > 0 {
		all, err = compareOnline(ctx, a, experiments, f, run)
	} else {
		all, err = compareRuns(a, experiments, f, run)
	}
	if err != nil {
		return err
	}
	return printCompared(a, all, f)
}

type runner func(mode, id string, e file.Experiment) (modeRun, error)

// compareRuns runs one experiment after the other and takes the modes in turn, so that other load on the machine
// affects all modes alike.
func compareRuns(a *console.Console, experiments []file.Experiment, f tuneCompare, run runner) ([]modeRun, error) {
	var all []modeRun
	for n := range f.runs {
		for i, e := range experiments {
			for _, mode := range f.modes {
				e.Group = "" // each run is the first of its kind
				one, err := run(mode, fmt.Sprintf("%s-%s-%d-%d", f.prefix, mode, i, n), e)
				if err != nil {
					return nil, err
				}
				all = append(all, one)
				fmt.Fprintf(a.Stderr, "run %d of %d, %s in mode %s: %s\n", n+1, f.runs, e.Name, mode, render.Duration(one.ResponseSeconds))
			}
		}
	}
	return all, nil
}

// compareOnline submits experiments at the same moments in every mode.
func compareOnline(ctx context.Context, a *console.Console, experiments []file.Experiment, f tuneCompare, run runner) ([]modeRun, error) {
	gap := f.meanGap.Seconds()
	if gap == 0 {
		for i, e := range experiments {
			e.Group = ""
			alone, err := run(string(file.V1), fmt.Sprintf("%s-alone-%d", f.prefix, i), e)
			if err != nil {
				return nil, err
			}
			gap += alone.ResponseSeconds / float64(len(experiments)) / f.load
		}
		fmt.Fprintf(a.Stderr, "an arrival every %s on average, for a load of %g\n", render.Duration(gap), f.load)
	}
	var all []modeRun
	for _, mode := range f.modes {
		group := f.prefix + "-" + mode
		draws := rand.New(rand.NewPCG(f.seed, 0))
		arriving := pool.NewWithResults[modeRun]().WithContext(ctx).WithCancelOnError()
		begun, arrival := time.Now(), 0.0
		for n := range f.jobs {
			e := experiments[draws.IntN(len(experiments))]
			e.Group, e.Profiles = group, group
			arrival += gap * draws.ExpFloat64()
			if n == 0 {
				arrival = 0
			}
			at := begun.Add(time.Duration(arrival * float64(time.Second)))
			arriving.Go(func(ctx context.Context) (modeRun, error) {
				if !tick.Pause(ctx, time.Until(at)) {
					return modeRun{}, ctx.Err()
				}
				return run(mode, fmt.Sprintf("%s-%s-%d", f.prefix, mode, n), e)
			})
		}
		done, err := arriving.Wait()
		if err != nil {
			return nil, err
		}
		all = append(all, done...)
		fmt.Fprintf(a.Stderr, "%s in mode %s: %s\n", render.Plural(f.jobs, "experiment"), mode, render.Duration(time.Since(begun).Seconds()))
	}
	return all, nil
}

// runCompared runs one experiment to its end, and waits until the ledger has closed the accounts of its trials.
// Without a shared ground truth the experiment has its own, which the experiments service forgets after it.
func runCompared(ctx context.Context, y console.Yard, mode, id string, e file.Experiment) (modeRun, error) {
	e.Mode = contract.ExperimentMode(mode)
	if e.Profiles == "" {
		e.Profiles = id
	}
	fact, err := submission(id, e)
	if err != nil {
		return modeRun{}, err
	}
	if _, err := y.Publish(ctx, fact); err != nil {
		return modeRun{}, err
	}
	r, err := awaitExperiment(ctx, y, id, (*conduct.Record).Settled)
	if err != nil {
		return modeRun{}, err
	}
	return newModeRun(mode, r), nil
}
