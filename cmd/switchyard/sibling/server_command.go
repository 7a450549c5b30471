package sibling

import (
	"slices"

	"github.com/spf13/cobra"
)

// Command makes a command of which the server has the flags and the help. The server takes the place of this
// process, so that signals, output and the exit code are its own.
func Command(short string, path ...string) *cobra.Command {
	cmd := &cobra.Command{
		Use: path[len(path)-1], Short: short, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return becomeServer(path, args) },
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if err := becomeServer(path, []string{"--help"}); err != nil {
			cmd.PrintErrln("switchyard:", err)
		}
	})
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, last string) ([]string, cobra.ShellCompDirective) {
		words := slices.Concat([]string{cobra.ShellCompRequestCmd}, path, args, []string{last})
		if err := BecomeServer("switchyard", words); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	return cmd
}

func becomeServer(path, args []string) error {
	return BecomeServer("switchyard", slices.Concat(path, args))
}
