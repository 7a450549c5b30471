package cli

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/manual"
)

// manualCommand prints the client's part of docs/cli.md.
func manualCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "manual", Short: "Print the reference of the commands as Markdown", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return manual.Client(a.Stdout, cmd.Root()) },
	}
}
