package server

import (
	"io"

	"github.com/spf13/cobra"

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
