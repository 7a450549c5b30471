// Package console is what all commands share: the streams of the terminal, the format of the output, the connection
// to the bus, and reading records.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// Console is the terminal, the output format and the bus of a command.
type Console struct {
	Nats    string
	Output  string
	Context string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Run runs a command line below root and returns the exit code. Unless root checks -o itself, it is table or json.
func (a *Console) Run(root *cobra.Command, args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.PersistentFlags().StringVar(&a.Nats, "nats", a.Nats, "`URL` of the NATS server (default: $SWITCHYARD_NATS, else what switchyard up wrote down, else "+installation.DefaultURL+")")
	root.PersistentFlags().StringVarP(&a.Output, "output", "o", "table", "table or json; some commands: csv or html too")
	if root.PersistentPreRunE == nil {
		root.PersistentPreRunE = a.Accept("table", "json")
	}
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(a.Stderr, "%s: %v\n", root.Name(), err)
	}
	return exit.Code(err)
}

// Connect opens the bus for one command.
func (a *Console) Connect(ctx context.Context) (*bus.Bus, error) {
	url := a.URL()
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b, err := bus.Connect(wait, bus.Config{URL: url, Name: "cli"})
	if err != nil {
		return nil, exit.Errorf(exit.Unreachable, "start it with `switchyard up`, or name it with --nats URL or SWITCHYARD_NATS", "no bus at %s", url)
	}
	return b, nil
}

// URL finds the bus: flag, environment, what `switchyard up` wrote down, default.
func (a *Console) URL() string {
	if a.Nats != "" {
		return a.Nats
	}
	if v := os.Getenv("SWITCHYARD_NATS"); v != "" {
		return v
	}
	if c, err := installation.ReadContext(a.ContextPath()); err == nil {
		return c.NATS
	}
	return installation.DefaultURL
}

// PrintJSON writes v as indented JSON.
func (a *Console) PrintJSON(v any) error {
	e := json.NewEncoder(a.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return exit.Runtime(e.Encode(v))
}

// Table writes rows under a header, aligned.
func (a *Console) Table(header string, rows func(w io.Writer)) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	rows(w)
	return exit.Runtime(w.Flush())
}

// ContextPath returns the path of the context file.
func (a *Console) ContextPath() string {
	if a.Context != "" {
		return a.Context
	}
	return installation.ContextPath()
}

// Say prints a message with the time.
func (a *Console) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), render.EscapeText(fmt.Sprintf(format, args...)))
}

// Accept returns the check of a command line that -o is one of the formats.
func (a *Console) Accept(formats ...string) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		if slices.Contains(formats, a.Output) {
			return nil
		}
		last := len(formats) - 1
		return exit.Usagef("-o %q: want %s or %s", a.Output, strings.Join(formats[:last], ", "), formats[last])
	}
}
