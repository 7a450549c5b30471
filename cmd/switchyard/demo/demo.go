// Package demo runs a few real jobs on this machine and shows how they are scheduled.
package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	json    bool
	keep    bool
	stay    bool
	policy  string
	trainer string
	timeout time.Duration
}

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run real training jobs on this machine, in a temporary folder, and show their scheduling",
		Long: `Starts the bus and the eight services on free ports in a temporary folder, submits real training jobs of different size and kind over NATS, and shows them being
admitted, profiled, planned, started, rescaled, preempted at an epoch's end and resumed from their checkpoints. Closes with a report. Nothing is left behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), a, o)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.json, "json", false, "print the closing report as one JSON object (the same as -o json)")
	fs.BoolVar(&o.keep, "keep", false, "keep the temporary folder")
	fs.BoolVar(&o.stay, "stay", false, "keep the services and the page open after the report, until an interrupt")
	fs.StringVar(&o.policy, "with-policy", plan.DefaultPolicy, "policy of the planner: "+strings.Join(plan.PolicyNames(), ", "))
	fs.StringVar(&o.trainer, "trainer", "", "the Go trainer (default: switchyard-trainer beside this program, or in PATH)")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time after which the demo gives up: it takes about a minute, longer on a busy machine")
	return cmd
}

// demo runs the server in the background and plays the script.
func demo(ctx context.Context, a *console.Console, o demoOptions) error {
	o.json = o.json || a.Output == "json"
	if err := o.findTrainer(); err != nil {
		return err
	}
	server, err := sibling.FindServer()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "switchyard-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	if o.keep {
		fmt.Fprintf(a.Stderr, "the files of this run stay in %s\n", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	data := filepath.Join(dir, "data") // jobs do not see it, so their programs lie beside it
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("make the demo's data folder: %w", err)
	}
	services := demoServices{server: server, dir: data, policy: o.policy}
	err = services.during(ctx, o.timeout, func(ctx context.Context, url string) error {
		showPage(ctx, a, data)
		timed, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		if err := play(timed, a, bus.Config{URL: url, Keys: string(identity.KeysOf(data)), Name: "cli"}, dir, o); err != nil || !o.stay {
			return err
		}
		showPage(ctx, a, data)
		fmt.Fprintln(a.Stderr, "the page stays open until an interrupt (Ctrl-C)")
		<-ctx.Done()
		return nil
	})
	if err != nil {
		return fmt.Errorf("demo: %w\nthe end of the services' log:\n%s", err, tail(services.logPath(), 30))
	}
	return nil
}

// showPage prints a link to the page of the demo's services, once it is served.
func showPage(ctx context.Context, a *console.Console, data string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range tick.Every(ctx, 50*time.Millisecond) {
		if link, err := console.LinkAt(ctx, filepath.Join(data, api.SocketName)); err == nil {
			fmt.Fprintf(a.Stderr, "the page of this run: %s\n", link.URL)
			return
		}
	}
}

// play submits the jobs, whose programs it puts into a folder, shows them, and reports.
func play(ctx context.Context, a *console.Console, at bus.Config, dir string, o demoOptions) error {
	b, err := bus.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer b.Close()
	cast, err := demoCast(dir, o.trainer)
	if err != nil {
		return err
	}
	house := newStage(b, cast)
	screen := newScreen(a, o)
	began := time.Now()
	if err := house.run(ctx, func(picture stagePicture) { screen.show(picture, time.Since(began)) }); err != nil {
		return err
	}
	report := house.report(o.policy)
	if o.json {
		if err := a.PrintJSON(report); err != nil {
			return err
		}
	} else if err := printReport(a, report); err != nil {
		return err
	}
	return report.verdict()
}

// newScreen draws on a terminal and prints plain lines elsewhere. With --json it uses standard error.
func newScreen(a *console.Console, o demoOptions) *screen {
	out := render.Raw(a.Stdout) // which draws by itself
	if o.json {
		out = render.Raw(a.Stderr)
	}
	shown := &screen{out: out, seen: map[string]string{}}
	if render.IsTerminal(out) {
		shown.width = func() int {
			columns, _ := render.TerminalWidth(out)
			return columns
		}
	}
	return shown
}

// findTrainer looks for the Go trainer that `make build` puts beside this program.
func (o *demoOptions) findTrainer() error {
	const name = "switchyard-trainer"
	if o.trainer == "" {
		o.trainer, _ = sibling.Find(name)
	}
	if info, err := os.Stat(o.trainer); o.trainer == "" || err != nil || info.IsDir() {
		return exit.Errorf(exit.Failed, "run `make demo`, or build it (`go build -o switchyard-trainer ./examples/gotrainer`) and name it with --trainer", "the demo's trainer %s is not there", name)
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
