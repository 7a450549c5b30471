// Package cluster holds the commands that show the whole installation: events and top.
package cluster

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

// Commands returns top and events.
func Commands(a *console.Console) []*cobra.Command {
	return []*cobra.Command{topCommand(a), eventsCommand(a)}
}
