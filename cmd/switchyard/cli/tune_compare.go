package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
)

// tuneCompare is what `tune compare` is asked for.
type tuneCompare struct {
	modes   []string
	runs    int
	jobs    int
	load    float64
	meanGap time.Duration
	seed    uint64
	prefix  string
}

func (a *app) tuneCompareCommand() *cobra.Command {
	var f tuneCompare
	cmd := &cobra.Command{
		Use:   "compare FILE..",
		Short: "Run the same experiments in several modes and compare time, energy and objective",
		Long: `Without --jobs each file is run --runs times in each mode, one after the other, with nothing known before: the figures are medians, and
the parts of the response those of the run of the median response.

With --jobs that many experiments arrive as a Poisson process, each of one of the files and recurring; every mode gets the same arrivals, at a --load: 1 is where they would keep
the machine busy with their files run alone in mode v1, which is measured first unless --mean-gap is given. The figures are means. The response is the time from arrival to
end: queued, while a trial waited for its first process and none trained; the training of the trial that was best; and tuning, which is the rest.

What is known of workloads does not count, and what these experiments learn is forgotten. Nothing else should run.`,
		Example: `  switchyard tune compare examples/experiments/digits.yaml --runs 5
  switchyard tune compare a.yaml b.yaml --jobs 20 --load 0.75 --modes v1,pipetune -o html > online.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.compareModes(ctx, b, args, f) })
		},
	}
	cmd.PersistentPreRunE = a.wantsPages
	fs := cmd.Flags()
	fs.StringSliceVar(&f.modes, "modes", []string{"v1", "v2", "pipetune"}, "modes to compare; the first is what the others are held against")
	fs.IntVar(&f.runs, "runs", 1, "runs of each file in each mode")
	fs.IntVar(&f.jobs, "jobs", 0, "number of experiments that arrive")
	fs.Float64Var(&f.load, "load", 0.75, "load at which they arrive")
	fs.DurationVar(&f.meanGap, "mean-gap", 0, "mean time between arrivals instead of a load")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of the arrivals")
	fs.StringVar(&f.prefix, "prefix", "", "what the ids of the experiments begin with (default: cmp and random letters)")
	return cmd
}

func (f *tuneCompare) check() error {
	for _, m := range f.modes {
		if !slices.Contains(file.Modes(), file.Mode(m)) {
			return failure(ExitUsage, "", "--modes %q: want v1, v2 or pipetune", m)
		}
	}
	if f.runs < 1 || f.jobs < 0 || !(f.load > 0) || f.meanGap < 0 {
		return failure(ExitUsage, "", "--runs %d, --jobs %d, --load %g, --mean-gap %s: want more than 0", f.runs, f.jobs, f.load, f.meanGap)
	}
	if f.prefix == "" {
		f.prefix = string(newID("cmp"))
	}
	return nil
}

// modeRun is one experiment of a comparison.
type modeRun struct {
	Mode string `json:"mode"`
	Name string `json:"name"`
	ID   string `json:"id"`
	// ArrivedAt is when it was submitted. ResponseSeconds is from then to the end: QueueSeconds in which a trial waited and none trained, TrainingSeconds of the best
	// trial, the rest is tuning.
	ArrivedAt       time.Time `json:"arrived_at"`
	ResponseSeconds float64   `json:"response_seconds"`
	QueueSeconds    float64   `json:"queue_seconds"`
	TuningSeconds   float64   `json:"tuning_seconds"`
	TrainingSeconds float64   `json:"training_seconds"`
	EnergyJoules    float64   `json:"energy_j"`
	Modelled        bool      `json:"energy_modelled,omitempty"`
	Objective       float64   `json:"objective"`
	Trials          int       `json:"trials"`
	Epochs          int       `json:"epochs"`
}

func newModeRun(mode string, r conduct.Record) modeRun {
	c := modeRun{Mode: mode, Name: r.Experiment.Name, ID: r.ID, ArrivedAt: r.SubmittedAt, ResponseSeconds: r.EndedAt.Sub(r.SubmittedAt).Seconds(), Trials: len(r.Trials)}
	c.QueueSeconds = r.QueueSeconds()
	for _, row := range r.Rows() {
		c.EnergyJoules += row.EnergyJoules
		c.Modelled = c.Modelled || row.Modelled
		c.Epochs += row.Epochs
		if row.Best {
			c.TrainingSeconds = row.TrainSeconds
		}
	}
	if _, score, ok := r.Best(); ok {
		c.Objective = r.Own(score)
	}
	c.TuningSeconds = max(c.ResponseSeconds-c.QueueSeconds-c.TrainingSeconds, 0)
	return c
}

// compareModes runs everything in every mode.
func (a *app) compareModes(ctx context.Context, b *bus.Bus, paths []string, f tuneCompare) (err error) {
	experiments := make([]file.Experiment, len(paths))
	for i, path := range paths {
		if experiments[i], err = a.readExperiment(path, ""); err != nil {
			return err
		}
	}
	run := func(mode, id string, e file.Experiment) (modeRun, error) { return a.runCompared(ctx, b, mode, id, e) }
	var all []modeRun
	if f.jobs > 0 {
		all, err = a.compareOnline(ctx, b, experiments, f, run)
	} else {
		all, err = a.compareRuns(experiments, f, run)
	}
	if err != nil {
		return err
	}
	return a.printCompared(all, f)
}

type runExperiment func(mode, id string, e file.Experiment) (modeRun, error)

// compareRuns runs one experiment after the other, the modes by turns: what else the machine does hits all alike.
func (a *app) compareRuns(experiments []file.Experiment, f tuneCompare, run runExperiment) ([]modeRun, error) {
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
				_, _ = fmt.Fprintf(a.stderr, "run %d of %d, %s in mode %s: %s\n", n+1, f.runs, e.Name, mode, duration(one.ResponseSeconds))
			}
		}
	}
	return all, nil
}

// compareOnline lets experiments arrive, at the same moments in every mode.
func (a *app) compareOnline(ctx context.Context, b *bus.Bus, experiments []file.Experiment, f tuneCompare, run runExperiment) ([]modeRun, error) {
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
		_, _ = fmt.Fprintf(a.stderr, "an arrival every %s on average, for a load of %g\n", duration(gap), f.load)
	}
	var all []modeRun
	for _, mode := range f.modes {
		group := f.prefix + "-" + mode
		draws := rand.New(rand.NewPCG(f.seed, 0)) //nolint:gosec // arrivals are no secret
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
				if err := until(ctx, at); err != nil {
					return modeRun{}, err
				}
				return run(mode, fmt.Sprintf("%s-%s-%d", f.prefix, mode, n), e)
			})
		}
		done, err := arriving.Wait()
		if err = errors.Join(err, dropProfiles(ctx, b, group)); err != nil {
			return nil, err
		}
		all = append(all, done...)
		_, _ = fmt.Fprintf(a.stderr, "%s in mode %s: %s\n", plural(f.jobs, "experiment"), mode, duration(time.Since(begun).Seconds()))
	}
	return all, nil
}

func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// runCompared runs one experiment to its end, and until the ledger has closed the accounts of its trials. Where it shares no ground truth it has one of its own.
func (a *app) runCompared(ctx context.Context, b *bus.Bus, mode, id string, e file.Experiment) (done modeRun, err error) {
	e.Mode = file.Mode(mode)
	if e.Profiles == "" {
		e.Profiles = id
		defer func() { err = errors.Join(err, dropProfiles(ctx, b, id)) }()
	}
	if err := conduct.Check(id, e); err != nil {
		return modeRun{}, failure(ExitUsage, "", "%v", err)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return modeRun{}, err
	}
	if _, err := publishSubmission(ctx, b, event.StreamTune, event.TuneOnceFact(id, event.FactSubmitted, event.ExperimentSubmitted{Experiment: body})); err != nil {
		return modeRun{}, err
	}
	r, err := pollExperiment(ctx, b, id, func(r conduct.Record) bool { return r.Settled() })
	if err != nil {
		return modeRun{}, err
	}
	return newModeRun(mode, r), nil
}

// dropProfiles removes the ground truth of a comparison.
func dropProfiles(ctx context.Context, b *bus.Bus, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	kv, err := openBucket[profile.Store](ctx, b, event.BucketProfiles)
	if err != nil {
		return err
	}
	there, err := kv.Get(ctx, name)
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = kv.Delete(ctx, name, there.Revision)
	}
	return err
}
