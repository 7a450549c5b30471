package people

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

func openCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "open",
		Short: "Print a link to the page, which logs you in once",
		Long: `Prints a link to the page of this installation, or of the machine's. The first person who opens it in a browser is logged in as you: do not share it. It works once, within ten
minutes; the session that it begins lasts a week. The page of another machine comes to you by ssh -L 7470:127.0.0.1:7470 MACHINE.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, err := a.PageLink(cmd.Context())
			if err != nil {
				return err
			}
			if a.Output == "json" {
				return a.PrintJSON(link)
			}
			fmt.Fprintln(a.Stdout, link.URL)
			return nil
		},
	}
}
