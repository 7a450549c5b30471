package console

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// MovedToLab makes a command that only names its successor in switchyard-lab.
func MovedToLab(path ...string) *cobra.Command {
	name := strings.Join(path, " ")
	return &cobra.Command{
		Use: path[len(path)-1], Hidden: true, DisableFlagParsing: true, PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(*cobra.Command, []string) error {
			return exit.Errorf(exit.Usage, "run `switchyard-lab "+name+"` with the same flags", "%s is a command of switchyard-lab, the laboratory", name)
		},
	}
}
