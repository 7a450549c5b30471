// Package cli is the command line of Switchyard. Data goes to standard output, messages to standard error; `-o json` is
// always parseable.
package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/cluster"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/compat"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/configuration"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/describe"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/energy"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/image"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/install"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/measure"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/network"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/people"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/results"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/tune"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/whatif"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/demo"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/doctor"
	"github.com/switchyard-dl/switchyard/libs/build"
)

// Main runs the command line, argv[0] included, and returns the exit code. Under the name of a compatible command it is
// that command.
func Main(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a, args := &console.Console{Stdin: stdin, Stdout: stdout, Stderr: stderr}, compat.Args(argv)
	return a.Run(newRoot(a, args), args)
}

// newRoot makes the tree of commands, or as much of it as a command line needs.
func newRoot(a *console.Console, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "switchyard",
		Short: "Runs a team's training jobs on its GPUs, and accounts for every joule",
		Long: `Switchyard runs training jobs. A job is an event; services admit it, learn how it behaves, decide which job runs on
which devices, and account for its energy. ` + "`switchyard demo`" + ` shows it; ` + "`switchyard up`" + ` runs it on this machine.

Exit codes: 0 ok, 1 error, 2 usage, 3 the job can never run here, 4 the bus cannot be reached; wait: 100 the job failed,
101 not finished in time, 102 unknown job, 103 cancelled.`,
	}
	root.Version = build.This().Version
	root.AddCommand(serverCommands()...)
	for _, commands := range [][]console.Command{jobs.Commands(), otherCommands()} {
		if a.Add(root, commands...); len(args) > 0 && slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] }) {
			break // making the others takes longer than some commands run
		}
	}
	group(root)
	return root
}

// group puts the commands into the groups that --help shows.
func group(root *cobra.Command) {
	groups := []struct{ title, names string }{
		{"Run jobs and follow them:", "run submit build shell attach ps top describe logs wait"},
		{"Change jobs:", "cancel pause resume hold release requeue rerun set"},
		{"Results and energy:", "get plot report tensorboard energy purge"},
		{"Searches, measurements and what-if:", "tune measure render simulate replay bundle"},
		{"This installation:", "up down install open doctor node user tenant net events config compat bus backup restore repair influx"},
		{"About Switchyard:", "demo version completion help"},
	}
	of := map[string]string{}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for name := range strings.FieldsSeq(g.names) {
			of[name] = g.title
		}
	}
	for _, cmd := range root.Commands() {
		cmd.GroupID = of[cmd.Name()]
	}
	root.SetHelpCommandGroupID(of["help"])
	root.SetCompletionCommandGroupID(of["completion"])
}

// Commands returns all commands.
func Commands() []console.Command { return append(jobs.Commands(), otherCommands()...) }

// otherCommands returns the commands that people use less often than those of jobs.
func otherCommands() []console.Command {
	single := []console.Command{
		manualCommand, install.Command, demo.Command, doctor.Command, describe.Command, energy.Command, image.Command, measure.Command, tune.Command, network.Command, configuration.Command, compat.Command,
		func(*console.Console) *cobra.Command { return console.MovedToLab("workload") },
	}
	return slices.Concat(results.Commands(), cluster.Commands(), whatif.Commands(), people.Commands(), single)
}
