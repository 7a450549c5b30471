// Package tune holds the commands that run and compare experiments.
package tune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Search hyper-parameters and system parameters with experiments",
		Long: `An experiment is a search over the parameters of a training. Each of its trials is an ordinary job, which ` + "`switchyard describe`" + ` and the
other commands show; the system parameters of a trial are tuned while it runs.`,
	}
	cmd.AddCommand(tuneRunCommand(a), tunePsCommand(a), tuneDescribeCommand(a), tuneStopCommand(a), tuneResultsCommand(a), tuneProfilesCommand(a), tuneCompareCommand(a), tuneGroupsCommand(a))
	return cmd
}

// tuneRun are the flags of `tune run`.
type tuneRun struct {
	config, id, mode string
	printEvent, wait bool
}

func tuneRunCommand(a *console.Console) *cobra.Command {
	var f tuneRun
	cmd := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Submit an experiment from a file",
		Long: `Publishes one message to yard.tune.<id>.submitted.v1 and waits until the experiment has begun or is refused. The file is an experiment in YAML or JSON, or
PipeTune's configuration, which names the BigDL file of the job.`,
		Example: `  switchyard tune run experiment.yaml
  switchyard tune run --config pipetune.conf --mode v1
  switchyard tune run experiment.yaml --wait && switchyard tune results mnist-lr`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := f.config
			switch {
			case len(args) == 1 && path != "":
				return exit.Usagef("--config %s and %s: give one file", path, args[0])
			case len(args) == 1:
				path = args[0]
			case path == "":
				return exit.Errorf(exit.Usage, "name it, or use --config", "no experiment file")
			}
			e, err := readExperiment(a, path, f.mode)
			if err != nil {
				return err
			}
			id := f.id
			if id == "" {
				id = string(jobs.NewID(e.Name))
			}
			return runExperiment(a, cmd, f, id, e)
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration of PipeTune, or an experiment")
	cmd.Flags().StringVar(&f.id, "id", "", "id of the experiment (default: its name and random letters)")
	cmd.Flags().StringVar(&f.mode, "mode", "", "v1, v2 or pipetune instead of the mode in the file")
	cmd.Flags().BoolVar(&f.printEvent, "print-event", false, "print the message instead of publishing it")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for the end of the experiment")
	return cmd
}

// readExperiment reads a file of any supported form. Relative folders are relative to the file.
func readExperiment(a *console.Console, path, mode string) (file.Experiment, error) {
	text, err := jobs.ReadJobFile(a, path)
	if err != nil {
		return file.Experiment{}, err
	}
	home, _ := os.UserHomeDir()
	e, err := file.Read(text, file.Source{Home: home, Open: func(name string) ([]byte, error) { return openNamed(name, filepath.Dir(path)) }})
	if err != nil {
		return e, exit.Usagef("%s:\n%v", path, err)
	}
	if mode != "" {
		if e.Mode = contract.ExperimentMode(mode); !slices.Contains(file.Modes(), e.Mode) {
			return e, exit.Usagef("--mode %q: want v1, v2 or pipetune", mode)
		}
	}
	for _, dir := range e.Job.Folders() {
		if *dir != "" && !filepath.IsAbs(*dir) && path != "-" {
			if *dir, err = filepath.Abs(filepath.Join(filepath.Dir(path), *dir)); err != nil {
				return e, err
			}
		}
	}
	return e, nil
}

// openNamed reads a file that a configuration names: by its path, relative to the configuration's folder, or by its
// base name in that folder, since configurations are copied between machines.
func openNamed(name, folder string) ([]byte, error) {
	for _, place := range []string{name, filepath.Join(folder, name), filepath.Join(folder, filepath.Base(name))} {
		text, err := os.ReadFile(place)
		if !errors.Is(err, os.ErrNotExist) {
			return text, err
		}
	}
	return nil, fmt.Errorf("%s is neither there nor beside the configuration, in %s", name, folder)
}

func runExperiment(a *console.Console, cmd *cobra.Command, f tuneRun, id string, e file.Experiment) error {
	fact, err := submission(id, e)
	if err != nil {
		return err
	}
	if f.printEvent {
		return a.PrintJSON(map[string]any{"subject": fact.Subject.String(), "body": fact.Body})
	}
	var repeat bool
	err = a.WithYard(cmd, func(ctx context.Context, y console.Yard) (err error) {
		repeat, err = y.Publish(ctx, fact)
		return err
	})
	if err != nil {
		return err
	}
	if !a.HasBus(cmd.Context()) { // the records of experiments are read there
		fmt.Fprintf(a.Stderr, "experiment %s is submitted; its trials are the jobs %s-t0, %s-t1, ..\n", id, id, id)
		return nil
	}
	return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		r, err := begun(ctx, b, id)
		if err != nil {
			return err
		}
		if a.Output != "json" {
			word := "begins"
			if repeat {
				word = "was submitted before; nothing changes"
			}
			fmt.Fprintf(a.Stdout, "experiment %s %s (%s)\n  next  switchyard tune describe %s | switchyard tune results %s\n", id, word, r.State, id, id)
		}
		if f.wait {
			if r, err = awaitExperiment(ctx, b, id); err != nil {
				return err
			}
		}
		if a.Output == "json" {
			return a.PrintJSON(r)
		}
		return nil
	})
}

// submission checks an experiment and makes the fact that submits it.
func submission(id string, e file.Experiment) (event.Fact, error) {
	if err := conduct.Check(id, e); err != nil {
		return event.Fact{}, exit.Usagef("%v", err)
	}
	body, err := json.Marshal(e)
	return event.TuneOnceFact(id, event.FactSubmitted, event.ExperimentSubmitted{Experiment: body}), err
}

// begun waits until the experiment has begun, or was refused.
func begun(ctx context.Context, b *bus.Bus, id string) (conduct.Record, error) {
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := pollExperiment(wait, b, id, func(conduct.Record) bool { return true })
	if wait.Err() != nil && ctx.Err() == nil {
		err = exit.Errorf(exit.Unreachable, "the submission is stored; is the experiments service running?", "experiment %s: no answer in 10 s", id)
	}
	return r, err
}

func awaitExperiment(ctx context.Context, b *bus.Bus, id string) (conduct.Record, error) {
	return pollExperiment(ctx, b, id, func(r conduct.Record) bool { return r.Over() })
}

// pollExperiment reads the record until wanted accepts it, or the experiment was refused.
func pollExperiment(ctx context.Context, b *bus.Bus, id string, wanted func(conduct.Record) bool) (conduct.Record, error) {
	records, err := console.OpenBucket(ctx, b, contract.Experiments)
	if err != nil {
		return conduct.Record{}, err
	}
	for range tick.Every(ctx, 100*time.Millisecond) {
		e, err := records.Get(ctx, id)
		if err == nil && wanted(conduct.Record(e.Value)) {
			return conduct.Record(e.Value), nil
		}
		if errors.Is(err, bus.ErrNotFound) {
			var refused event.Rejected
			var found bool
			if refused, found, err = console.LastIfThere[event.Rejected](ctx, b, event.StreamTune, event.TuneSubject(id, event.FactRejected)); found {
				return conduct.Record{}, exit.Usagef("experiment %s rejected:\n  %s", id, refused.Message)
			}
		}
		if err != nil && ctx.Err() == nil {
			return conduct.Record{}, err
		}
	}
	return conduct.Record{}, ctx.Err()
}

func tuneStopCommand(a *console.Console) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "stop EXPERIMENT",
		Short: "Stop an experiment: its trials are cancelled, their results stay",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withExperiment(a, cmd, args[0], func(ctx context.Context, b *bus.Bus, r conduct.Record) (err error) {
				if !r.Over() {
					body := event.ExperimentStopRequested{By: console.CurrentUser(), Reason: reason}
					if _, err := console.OnBus(b, time.Now).Publish(ctx, event.TuneFact(r.ID, event.FactStopRequested, "stop", body)); err != nil {
						return err
					}
					if r, err = awaitExperiment(ctx, b, r.ID); err != nil {
						return err
					}
				}
				if a.Output == "json" {
					return a.PrintJSON(r)
				}
				_, err = fmt.Fprintf(a.Stdout, "experiment %s %s\n", r.ID, r.State)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown in the experiment's record")
	return cmd
}

// withExperiment runs f with the record of an experiment.
func withExperiment(a *console.Console, cmd *cobra.Command, id string, f func(context.Context, *bus.Bus, conduct.Record) error) error {
	return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		r, err := findExperiment(ctx, b, id)
		if err != nil {
			return err
		}
		return f(ctx, b, r)
	})
}

// findExperiment reads the record of an experiment.
func findExperiment(ctx context.Context, b *bus.Bus, id string) (conduct.Record, error) {
	records, err := console.OpenBucket(ctx, b, contract.Experiments)
	if err != nil {
		return conduct.Record{}, err
	}
	if _, err := train.ParseJobID(id); err != nil {
		return conduct.Record{}, exit.Usagef("experiment: %v", err)
	}
	e, err := records.Get(ctx, id)
	if errors.Is(err, bus.ErrNotFound) {
		return conduct.Record{}, exit.Errorf(exit.Failed, "`switchyard tune ps` lists them", "there is no experiment %s", id)
	}
	return conduct.Record(e.Value), err
}
