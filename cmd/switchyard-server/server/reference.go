package server

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/manual"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

// referenceCommand prints docs/configuration.md from the declarations of the settings.
func (a *app) referenceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "reference", Short: "Print the configuration reference as Markdown", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.Stdout, settings.Reference())
			return err
		},
	}
}

// manualCommand prints the server's part of docs/cli.md.
func (a *app) manualCommand() *cobra.Command {
	return &cobra.Command{
		Use: "manual", Short: "Print the reference of the commands as Markdown", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return manual.Server(a.Stdout, cmd.Root()) },
	}
}
