// Package server is the command line of the process that runs the services: all of them around an embedded bus, the bus
// alone, or the roles of the network's probing that need no bus.
package server

import (
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/build"
)

// app holds what the commands share.
type app struct{ *console.Console }

// Main runs the command line, argv[0] included, and returns the exit code. `switchyard` passes its own name, with which
// messages begin.
func Main(argv []string, stdout, stderr io.Writer) int {
	a := &app{&console.Console{Stdout: stdout, Stderr: stderr}}
	return a.Run(a.root(argv), argv[1:])
}

func (a *app) root(argv []string) *cobra.Command {
	root := &cobra.Command{Use: filepath.Base(argv[0]), Short: "Runs the services of Switchyard and an embedded bus", Version: build.This().Version}
	net := &cobra.Command{Use: "net", Short: "Run one part of the network's probing, without a bus"}
	net.AddCommand(a.netRoles()...)
	root.AddCommand(a.upCommand(), a.busCommand(), a.backupCommand(), a.restoreCommand(), a.repairCommand(), a.influxCommand(), a.energyCommand(), a.referenceCommand(), a.manualCommand(), net)
	return root
}
