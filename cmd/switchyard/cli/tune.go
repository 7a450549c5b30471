package cli

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

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

func (a *app) tuneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Search hyper-parameters and system parameters with experiments",
		Long: `An experiment is a search over the parameters of a training. Each of its trials is an ordinary job, which ` + "`switchyard describe`" + ` and the
other commands show; the system parameters of a trial are tuned while it runs.`,
	}
	cmd.AddCommand(a.tuneRunCommand(), a.tunePsCommand(), a.tuneDescribeCommand(), a.tuneStopCommand(), a.tuneResultsCommand(), a.tuneProfilesCommand(), a.tuneCompareCommand(), a.tuneGroupsCommand())
	return cmd
}

// tuneRun is what `tune run` is asked for.
type tuneRun struct {
	config, id, mode string
	printEvent, wait bool
}

func (a *app) tuneRunCommand() *cobra.Command {
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
				return failure(ExitUsage, "", "--config %s and %s: give one file", path, args[0])
			case len(args) == 1:
				path = args[0]
			case path == "":
				return failure(ExitUsage, "name it, or use --config", "no experiment file")
			}
			e, err := a.readExperiment(path, f.mode)
			if err != nil {
				return err
			}
			id := f.id
			if id == "" {
				id = string(newID(e.Name))
			}
			return a.runExperiment(cmd, f, id, e)
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration of PipeTune, or an experiment")
	cmd.Flags().StringVar(&f.id, "id", "", "id of the experiment (default: its name and random letters)")
	cmd.Flags().StringVar(&f.mode, "mode", "", "v1, v2 or pipetune instead of what the file says")
	cmd.Flags().BoolVar(&f.printEvent, "print-event", false, "print the message instead of publishing it")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for the end of the experiment")
	return cmd
}

// readExperiment reads a file in whichever form it has. Folders are meant as seen from the file.
func (a *app) readExperiment(path, mode string) (file.Experiment, error) {
	text, err := a.readJobFile(path)
	if err != nil {
		return file.Experiment{}, err
	}
	home, _ := os.UserHomeDir()
	e, err := file.Read(text, file.Source{Home: home, Open: func(name string) ([]byte, error) { return openNamed(name, filepath.Dir(path)) }})
	if err != nil {
		return e, failure(ExitUsage, "", "%s:\n%v", path, err)
	}
	if mode != "" {
		if e.Mode = file.Mode(mode); !slices.Contains(file.Modes(), e.Mode) {
			return e, failure(ExitUsage, "", "--mode %q: want v1, v2 or pipetune", mode)
		}
	}
	for _, dir := range e.Job.Folders() {
		if *dir != "" && !filepath.IsAbs(*dir) && path != "-" {
			if *dir, err = filepath.Abs(filepath.Join(filepath.Dir(path), *dir)); err != nil {
				return e, runtime(err)
			}
		}
	}
	return e, nil
}

// openNamed reads a file that a configuration in a folder names: where it says, from that folder, or, since configurations are copied from other machines,
// beside it.
func openNamed(name, folder string) ([]byte, error) {
	for _, place := range []string{name, filepath.Join(folder, name), filepath.Join(folder, filepath.Base(name))} {
		text, err := os.ReadFile(place)
		if !errors.Is(err, os.ErrNotExist) {
			return text, err
		}
	}
	return nil, fmt.Errorf("%s is neither there nor beside the configuration, in %s", name, folder)
}

func (a *app) runExperiment(cmd *cobra.Command, f tuneRun, id string, e file.Experiment) error {
	if err := conduct.Check(id, e); err != nil {
		return failure(ExitUsage, "", "%v", err)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return runtime(err)
	}
	fact := event.TuneOnceFact(id, event.FactSubmitted, event.ExperimentSubmitted{Experiment: body})
	if f.printEvent {
		return a.printJSON(map[string]any{"subject": fact.Subject.String(), "body": fact.Body})
	}
	return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		repeat, err := publishSubmission(ctx, b, event.StreamTune, fact)
		if err != nil {
			return err
		}
		r, err := a.begun(ctx, b, id)
		if err != nil {
			return err
		}
		a.announcePower(ctx, b, e.Power)
		if a.output != "json" {
			word := "begins"
			if repeat {
				word = "was submitted before, nothing changes"
			}
			_, _ = fmt.Fprintf(a.stdout, "experiment %s %s (%s)\n  next  switchyard tune describe %s | switchyard tune results %s\n", id, word, r.State, id, id)
		}
		if f.wait {
			if r, err = a.awaitExperiment(ctx, b, id); err != nil {
				return err
			}
		}
		if a.output == "json" {
			return a.printJSON(r)
		}
		return nil
	})
}

// announcePower says what becomes of the meter and nodes that a file of PipeTune's names: the agents of nodes measure, and jobs run where they are planned.
func (a *app) announcePower(ctx context.Context, b *bus.Bus, p *file.Power) {
	if p == nil {
		return
	}
	if len(p.Nodes) > 0 {
		_, _ = fmt.Fprintln(a.stderr, "nodes are not read from the file: trials run where there is room, and energy is measured there")
	}
	nodes, err := openBucket[train.Node](ctx, b, event.BucketNodes)
	if err != nil || p.Meter == "" {
		return
	}
	entries, err := nodes.List(ctx)
	if err != nil || slices.ContainsFunc(entries, func(e bus.Entry[train.Node]) bool { return slices.Contains(e.Value.Meters, p.Meter) }) {
		return
	}
	_, _ = fmt.Fprintf(a.stderr, "no node measures with %s: energy is what the meters of the nodes tell (`switchyard doctor`)\n", p.Meter)
}

// begun waits for the answer to a submission.
func (a *app) begun(ctx context.Context, b *bus.Bus, id string) (conduct.Record, error) {
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := pollExperiment(wait, b, id, func(conduct.Record) bool { return true })
	if wait.Err() != nil && ctx.Err() == nil {
		err = failure(ExitUnreachable, "the submission is stored and will be taken up; does the service experiments run?", "experiment %s: no answer in 10 s", id)
	}
	return r, err
}

func (a *app) awaitExperiment(ctx context.Context, b *bus.Bus, id string) (conduct.Record, error) {
	return pollExperiment(ctx, b, id, func(r conduct.Record) bool { return r.Over() })
}

// pollExperiment reads the record until it is as wanted, or the experiment was refused.
func pollExperiment(ctx context.Context, b *bus.Bus, id string, wanted func(conduct.Record) bool) (conduct.Record, error) {
	records, err := openBucket[conduct.Record](ctx, b, event.BucketExperiments)
	if err != nil {
		return conduct.Record{}, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := records.Get(ctx, id)
		if err == nil && wanted(e.Value) {
			return e.Value, nil
		}
		if errors.Is(err, bus.ErrNotFound) {
			var refused event.Rejected
			var found bool
			if refused, found, err = lastIfThere[event.Rejected](ctx, b, event.StreamTune, event.TuneSubject(id, event.FactRejected)); found {
				return conduct.Record{}, failure(ExitUsage, "", "experiment %s rejected:\n  %s", id, refused.Message)
			}
		}
		if err != nil && ctx.Err() == nil {
			return conduct.Record{}, err
		}
		select {
		case <-ctx.Done():
			return conduct.Record{}, ctx.Err()
		case <-tick.C:
		}
	}
}

func (a *app) tuneStopCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "stop EXPERIMENT",
		Short: "Stop an experiment: its trials are cancelled, their results stay",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withExperiment(cmd, args[0], func(ctx context.Context, b *bus.Bus, r conduct.Record) (err error) {
				if !r.Over() {
					body := event.ExperimentStopRequested{By: currentUser(), Reason: reason}
					if err := storeRequest(ctx, b, event.TuneFact(r.ID, event.FactStopRequested, "stop", body)); err != nil {
						return err
					}
					if r, err = a.awaitExperiment(ctx, b, r.ID); err != nil {
						return err
					}
				}
				if a.output == "json" {
					return a.printJSON(r)
				}
				_, err = fmt.Fprintf(a.stdout, "experiment %s %s\n", r.ID, r.State)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who ask later")
	return cmd
}

// withExperiment runs f with the record of an experiment.
func (a *app) withExperiment(cmd *cobra.Command, id string, f func(context.Context, *bus.Bus, conduct.Record) error) error {
	return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		r, err := findExperiment(ctx, b, id)
		if err != nil {
			return err
		}
		return f(ctx, b, r)
	})
}

// findExperiment reads the record of an experiment.
func findExperiment(ctx context.Context, b *bus.Bus, id string) (conduct.Record, error) {
	records, err := openBucket[conduct.Record](ctx, b, event.BucketExperiments)
	if err != nil {
		return conduct.Record{}, err
	}
	if _, err := train.ParseJobID(id); err != nil {
		return conduct.Record{}, failure(ExitUsage, "", "experiment: %v", err)
	}
	e, err := records.Get(ctx, id)
	if errors.Is(err, bus.ErrNotFound) {
		return e.Value, failure(ExitError, "`switchyard tune ps` lists them", "there is no experiment %s", id)
	}
	return e.Value, err
}
