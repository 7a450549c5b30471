// Package server is the command line of the process that runs the services: all of them around an embedded bus, the bus
// alone, or the roles of the network's probing that need no bus.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// app is what the commands share.
type app struct {
	output         string
	stdout, stderr io.Writer
}

// Main runs the command line, argv[0] included, and returns the exit code. `switchyard` passes its own name, with which
// messages begin.
func Main(argv []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, stderr: stderr}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	name := filepath.Base(argv[0])
	root := a.root(name)
	root.SetArgs(argv[1:])
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return exit.Code(err)
}

func (a *app) root(name string) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         "Runs the services of Switchyard and an embedded bus",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Flags that `switchyard` takes in front of every command.
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "table or json")
	root.PersistentFlags().String("nats", "", "`URL` of the NATS server")
	_ = root.PersistentFlags().MarkHidden("nats")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"table", "json"}, a.output) {
			return exit.Usagef("-o %q: want table or json", a.output)
		}
		return nil
	}
	net := &cobra.Command{Use: "net", Short: "Run one part of the network's probing, without a bus"}
	net.AddCommand(a.netRoles()...)
	root.AddCommand(a.upCommand(), a.busCommand(), a.influxCommand(), a.referenceCommand(), net)
	return root
}

// printJSON writes v as indented JSON.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return exit.Runtime(e.Encode(v))
}
