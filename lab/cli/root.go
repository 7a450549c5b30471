// Package cli is the command line of the laboratory, on the same console as switchyard's.
package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

// app holds what the commands share.
type app struct{ *console.Console }

// Main runs the command line, argv[0] included, and returns the exit code.
func Main(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{&console.Console{Stdin: stdin, Stdout: stdout, Stderr: stderr}}
	return a.Run(a.root(), argv[1:])
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "switchyard-lab",
		Short: "Plays published measurements and workloads against Switchyard's own code",
		Long: `The laboratory of Switchyard. It replays published traces, measurements and generated workloads in virtual time, against the code that schedules live jobs,
and compares it with published policies. To ask what another policy would have made of your own cluster, use ` + "`switchyard simulate`" + `.

Exit codes: 0 ok, 1 error, 2 usage, 4 the bus cannot be reached.`,
		PersistentPreRunE: a.Accept("table", "json", "csv"),
	}
	root.AddCommand(a.simulateCommand(), a.workloadCommand(), a.netCommand(), a.predictCommand())
	return root
}
