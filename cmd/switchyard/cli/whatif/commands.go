// Package whatif holds the commands simulate, replay and bundle: what-if questions, which the planner or a bundle
// answers, and recorded decisions.
package whatif

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
)

// Commands returns simulate, replay and bundle.
func Commands(a *console.Console) []*cobra.Command {
	return []*cobra.Command{simulateCommand(a), replayCommand(a), bundleCommand(a)}
}
