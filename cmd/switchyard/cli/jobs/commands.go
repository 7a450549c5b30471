// Package jobs holds the commands that submit, list, follow, cancel and purge jobs.
package jobs

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

// Commands returns the commands about jobs: submit, ps, logs, cancel, wait, render and purge.
func Commands(a *console.Console) []*cobra.Command {
	return []*cobra.Command{submitCommand(a), psCommand(a), logsCommand(a), cancelCommand(a), waitCommand(a), renderCommand(a), purgeCommand(a)}
}
