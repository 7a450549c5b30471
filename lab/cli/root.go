// Package cli is the command line of the laboratory. Data goes to standard output, messages to standard error; `-o
// json` is always parseable.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// The exit codes are those of switchyard.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitInfeasible  = 3
	ExitUnreachable = 4
)

// exitError carries an exit code to main. text is what went wrong, fix what to do about it.
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

// runtime marks the error of a command that was called correctly.
func runtime(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) || errors.Is(err, bus.ErrAway) {
		return err
	}
	return &exitError{code: ExitError, text: err.Error()}
}

// app is what the commands share.
type app struct {
	nats   string
	output string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// Main runs the command line, argv[0] included, and returns the exit code.
func Main(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root := a.root()
	root.SetArgs(argv[1:])
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
	_, _ = fmt.Fprintf(stderr, "switchyard-lab: %v\n", err)
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "switchyard-lab",
		Short: "Plays published measurements and workloads against Switchyard's own code",
		Long: `The laboratory of Switchyard. It replays published traces, measurements and generated workloads in virtual time, against the code that schedules live jobs,
and compares it with published policies. To ask what another policy would have made of your own cluster, use ` + "`switchyard simulate`" + `.

Exit codes: 0 ok, 1 error, 2 usage, 4 the bus cannot be reached.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{"table", "json", "csv"}, a.output) {
				return failure(ExitUsage, "", "-o %q: want table, json or csv", a.output)
			}
			return nil
		},
	}
	root.PersistentFlags().StringVar(&a.nats, "nats", "", "`URL` of the NATS server, for workload submit (default: $SWITCHYARD_NATS, else the one of the last switchyard up, else "+installation.DefaultURL+")")
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "table, json or csv")
	root.AddCommand(a.simulateCommand(), a.workloadCommand(), a.netCommand(), a.predictCommand())
	return root
}
