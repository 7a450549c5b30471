// Package cli is the command line of Switchyard. Data goes to standard output, messages to standard error; `-o json` is always parseable.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/run"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitInfeasible  = 3
	ExitUnreachable = 4
	// wait
	ExitJobFailed    = 100
	ExitUnfinished   = 101
	ExitUnknownJob   = 102
	ExitJobCancelled = 103
)

// exitError carries an exit code to main. Text is what went wrong, Fix what to do about it.
type exitError struct {
	code int
	text string
	fix  string
}

func (e *exitError) Error() string {
	if e.fix == "" {
		return e.text
	}
	return e.text + "\n  fix: " + e.fix
}

func failure(code int, fix, format string, args ...any) error {
	return &exitError{code: code, text: fmt.Sprintf(format, args...), fix: fix}
}

// app is what the commands share.
type app struct {
	nats    string
	output  string
	context string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
}

// Main runs the command line, argv[0] included, and gives the exit code. Called by one of the names of the compatible commands it is that command.
func Main(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root := a.root()
	root.SetArgs(compatArgs(argv))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitUsage // cobra's own errors are about usage
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case errors.Is(err, bus.ErrAway):
		code = ExitUnreachable
	}
	_, _ = fmt.Fprintf(stderr, "switchyard: %v\n", err)
	return code
}

// runtime marks the error of a command that was called rightly.
func runtime(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) || errors.Is(err, bus.ErrAway) {
		return err
	}
	return &exitError{code: ExitError, text: err.Error()}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "switchyard",
		Short: "Runs a team's training jobs on the GPUs that it has, and accounts for every joule",
		Long: `Switchyard runs training jobs: a job is an event, services admit it, learn how it behaves, decide each moment which job runs on which devices, and
account for its energy. ` + "`switchyard demo`" + ` shows it; ` + "`switchyard up`" + ` runs it on this machine.

Exit codes: 0 ok, 1 error, 2 usage, 3 the job can never run here, 4 the bus cannot be reached; wait: 100 the job failed, 101 not finished in time, 102 unknown job, 103 cancelled.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&a.nats, "nats", "", "`URL` of the NATS server (default: $SWITCHYARD_NATS, else the one that switchyard up wrote down, else "+run.DefaultURL+")")
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "table or json; report and tune results: csv or html too")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"table", "json"}, a.output) {
			return failure(ExitUsage, "", "-o %q: want table or json", a.output)
		}
		return nil
	}
	root.AddCommand(
		a.upCommand(), a.busCommand(), a.demoCommand(), a.submitCommand(), a.eventsCommand(),
		a.psCommand(), a.describeCommand(), a.logsCommand(), a.cancelCommand(), a.waitCommand(), a.topCommand(), a.doctorCommand(), a.compatCommand(), a.referenceCommand(), a.simulateCommand(),
		a.replayCommand(), a.bundleCommand(), a.renderCommand(), a.measureCommand(), a.purgeCommand(), a.reportCommand(), a.influxCommand(), a.workloadCommand(), a.netCommand(),
		a.tuneCommand(),
	)
	return root
}

// connect opens the bus for one command.
func (a *app) connect(ctx context.Context) (*bus.Bus, error) {
	url := a.url()
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b, err := bus.Connect(wait, bus.Config{URL: url, Name: "cli"})
	if err != nil {
		return nil, failure(ExitUnreachable, "start it with `switchyard up`, or name it with --nats URL or SWITCHYARD_NATS", "no bus at %s", url)
	}
	return b, nil
}

// url finds the bus: flag, environment, what `switchyard up` wrote down, default.
func (a *app) url() string {
	if a.nats != "" {
		return a.nats
	}
	if v := os.Getenv("SWITCHYARD_NATS"); v != "" {
		return v
	}
	if c, err := readContext(a.contextPath()); err == nil {
		return c.NATS
	}
	return run.DefaultURL
}

// printJSON writes v as indented JSON.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return runtime(e.Encode(v))
}

// table writes rows under a header, aligned.
func (a *app) table(header string, rows func(w io.Writer)) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	rows(w)
	return runtime(w.Flush())
}
