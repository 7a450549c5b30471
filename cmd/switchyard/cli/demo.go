package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	json    bool
	keep    bool
	policy  string
	trainer string
	timeout time.Duration
}

func (a *app) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch real training jobs being scheduled on this machine, in a temporary folder",
		Long: `Starts the bus and the seven services on free ports in a temporary folder, submits real training jobs of different size and kind over NATS, and shows them being
admitted, profiled, planned, started, rescaled, preempted at an epoch's end and resumed from their checkpoints. Closes with a report. Nothing is left behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runtime(a.demo(cmd.Context(), o))
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.json, "json", false, "print the closing report as one JSON object (the same as -o json)")
	fs.BoolVar(&o.keep, "keep", false, "keep the temporary folder")
	fs.StringVar(&o.policy, "with-policy", plan.DefaultPolicy, "policy of the planner: "+strings.Join(plan.PolicyNames(), ", "))
	fs.StringVar(&o.trainer, "trainer", "", "the Go trainer (default: switchyard-trainer beside this binary, or on PATH)")
	fs.DurationVar(&o.timeout, "timeout", 3*time.Minute, "give up after so long")
	return cmd
}

// demo runs the whole show: services in the background, the play in front.
func (a *app) demo(ctx context.Context, o demoOptions) error {
	o.json = o.json || a.output == "json"
	if err := o.findTrainer(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "switchyard-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	if o.keep {
		_, _ = fmt.Fprintf(a.stderr, "everything of this run stays in %s\n", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	s, err := busserver.Start(busserver.Options{Dir: filepath.Join(dir, "bus")})
	if err != nil {
		return err
	}
	defer s.Stop()
	log, err := os.Create(filepath.Join(dir, "services.log"))
	if err != nil {
		return fmt.Errorf("make the demo's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	services, stop := context.WithCancel(ctx)
	running := pool.New().WithErrors()
	running.Go(func() error { return demoServices(services, s.URL(), dir, o.policy, log) })
	err = a.play(ctx, s.URL(), dir, o)
	stop()
	failed := running.Wait()
	if err = errors.Join(err, failed); err != nil {
		o.keep = true
		return fmt.Errorf("demo: %w\nthe end of the services' log:\n%s", err, tail(log.Name(), 30))
	}
	return nil
}

// demoServices runs the services on two CPU slots, so that the jobs must share whatever the machine is.
func demoServices(ctx context.Context, url, dir, policy string, log *os.File) error {
	var common run.Common
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	common.Flags(fs)
	all := services()
	for _, s := range all {
		s.Flags(fs)
	}
	settings := map[string]string{
		"nats": url, "data-dir": dir, "policy": policy, "device-kind": "cpu", "cpu-slots": "2",
		"python-path": filepath.Join(dir, "python"),
	}
	for name, value := range settings {
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("set --%s: %w", name, err)
		}
	}
	if err := validate(common, all); err != nil {
		return err
	}
	return run.Together(ctx, common, log, func(net.Addr) {}, all...)
}

// play submits the jobs, shows them, and reports.
func (a *app) play(ctx context.Context, url, dir string, o demoOptions) error {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "cli"})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Ensure(ctx); err != nil {
		return err
	}
	cast, err := demoCast(dir, o.trainer)
	if err != nil {
		return err
	}
	house := newStage(b, cast)
	screen := a.newScreen(o)
	began := time.Now()
	if err := house.run(ctx, func(picture stagePicture) { screen.show(picture, time.Since(began)) }); err != nil {
		return err
	}
	report := house.report(o.policy)
	if o.json {
		if err := a.printJSON(report); err != nil {
			return err
		}
	} else if err := a.printReport(report); err != nil {
		return err
	}
	return report.verdict()
}

// newScreen draws on a terminal, and prints plain lines elsewhere; with --json messages keep off standard output.
func (a *app) newScreen(o demoOptions) *screen {
	out := a.stdout
	if o.json {
		out = a.stderr
	}
	shown := &screen{out: out, seen: map[string]string{}}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		shown.width = func() int {
			const narrow = 80
			if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 1 {
				return columns
			}
			return narrow
		}
	}
	return shown
}

// findTrainer looks for the Go trainer that `make build` puts beside the binary.
func (o *demoOptions) findTrainer() error {
	const name = "switchyard-trainer"
	if o.trainer == "" {
		if self, err := os.Executable(); err == nil {
			o.trainer = filepath.Join(filepath.Dir(self), name)
		}
		if _, err := os.Stat(o.trainer); err != nil {
			o.trainer, _ = exec.LookPath(name)
		}
	}
	if info, err := os.Stat(o.trainer); o.trainer == "" || err != nil || info.IsDir() {
		return failure(ExitError, "run `make demo`, or build it (`go build -o switchyard-trainer ./examples/gotrainer`) and name it with --trainer", "the demo's trainer %s is not there", name)
	}
	absolute, err := filepath.Abs(o.trainer)
	if err != nil {
		return fmt.Errorf("find the trainer: %w", err)
	}
	o.trainer = absolute
	return nil
}

func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	at := len(data)
	for ; at > 0 && lines >= 0; at-- {
		if data[at-1] == '\n' {
			lines--
		}
	}
	return string(data[at:])
}
