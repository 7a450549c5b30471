package demo

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

// Commands returns the command of this package.
func Commands(a *console.Console) []*cobra.Command {
	return []*cobra.Command{Command(a)}
}
