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
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
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
PipeTune's configuration, which names the BigDL file of the job.

Exit codes with --wait: 0 a trial has a result, 100 none has, 103 the experiment was stopped.`,
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
			} else if _, err := train.ParseJobID(id); err != nil {
				return exit.Usagef("--id: %v", err)
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
	return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
		repeat, err := y.Publish(ctx, fact)
		if err != nil {
			return err
		}
		r, err := begun(ctx, y, id)
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
			return waitExperiment(ctx, a, y, id)
		}
		if a.Output == "json" {
			return a.PrintJSON(r)
		}
		return nil
	})
}

// waitExperiment waits for the end of an experiment, and says what came of it.
func waitExperiment(ctx context.Context, a *console.Console, y console.Yard, id string) error {
	r, err := awaitExperiment(ctx, y, id, (*conduct.Record).Over)
	if err != nil {
		return err
	}
	if a.Output != "json" {
		headline(a, r)
		bestLine(a, r)
	} else if err := a.PrintJSON(r); err != nil {
		return err
	}
	return verdict(r)
}

// verdict returns nil if a trial has a result. Otherwise the error has the exit code of `switchyard wait` for a job
// that ended like the experiment.
func verdict(r conduct.Record) error {
	_, _, found := r.Best()
	switch {
	case r.State == conduct.Stopped:
		return exit.Errorf(exit.JobCancelled, "", "experiment %s was stopped", r.ID)
	case !found:
		return exit.Errorf(exit.JobFailed, "`switchyard tune describe "+r.ID+"` says how each ended", "no trial of experiment %s has a result", r.ID)
	}
	return nil
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
func begun(ctx context.Context, y console.Yard, id string) (conduct.Record, error) {
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := awaitExperiment(wait, y, id, func(*conduct.Record) bool { return true })
	if wait.Err() != nil && ctx.Err() == nil {
		err = exit.Errorf(exit.Unreachable, "the submission is stored; is the experiments service running?", "experiment %s: no answer in 10 s", id)
	}
	return r, err
}

// awaitExperiment reads the record of an experiment until it is as wanted, or the experiment was refused.
func awaitExperiment(ctx context.Context, y console.Yard, id string, wanted func(*conduct.Record) bool) (conduct.Record, error) {
	for range tick.Every(ctx, 200*time.Millisecond) {
		record, err := y.Experiment(ctx, id, exit.UnknownJob)
		r := conduct.Record(record)
		switch {
		case ctx.Err() != nil || exit.Code(err) == exit.UnknownJob: // the service has not taken it up yet
		case err != nil || wanted(&r):
			return r, err
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
			return withExperiment(a, cmd, args[0], func(ctx context.Context, y console.Yard, r conduct.Record) (err error) {
				if !r.Over() {
					body := event.ExperimentStopRequested{By: installation.CurrentUser(), Reason: reason}
					if _, err := y.Publish(ctx, event.TuneFact(r.ID, event.FactStopRequested, "stop", body)); err != nil {
						return err
					}
					if r, err = awaitExperiment(ctx, y, r.ID, (*conduct.Record).Over); err != nil {
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
func withExperiment(a *console.Console, cmd *cobra.Command, id string, f func(context.Context, console.Yard, conduct.Record) error) error {
	if _, err := train.ParseJobID(id); err != nil {
		return exit.Usagef("experiment: %v", err)
	}
	return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
		r, err := y.Experiment(ctx, id, exit.Failed)
		if err != nil {
			return err
		}
		return f(ctx, y, conduct.Record(r))
	})
}
