package cli

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
)

// serverCommands are the commands that the server carries out.
func serverCommands() []*cobra.Command {
	reference := sibling.Command("Print the configuration reference as Markdown", "reference")
	reference.Hidden = true
	influx := &cobra.Command{Use: "influx", Short: "Prepare a time-series database"}
	influx.AddCommand(sibling.Command("Make the buckets, retention and downsampling that the energy service needs", "influx", "setup"))
	energy := &cobra.Command{Use: "energy", Short: "Look at the energy meters of this machine"}
	energy.AddCommand(sibling.Command("Compare the energy meters of this machine with each other and with the model", "energy", "check"))
	return []*cobra.Command{
		sibling.Command("Run the eight services on this machine, around an embedded bus", "up"),
		sibling.Command("Run only the embedded bus, for services in processes of their own", "bus"),
		sibling.Command("Write all that the bus holds into a file, while it works", "backup"),
		sibling.Command("Make the bus of a data folder from a backup", "restore"),
		sibling.Command("Say what the bus has lost, and mend what can be mended", "repair"),
		influx, energy, reference,
	}
}
