package network

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
)

// netRoles are the roles of deTector for clusters without a bus.
func netRoles() []*cobra.Command {
	return []*cobra.Command{
		sibling.Command("Hand out lists of probes over HTTP, without a bus", "net", "controller"),
		sibling.Command("Find lossy links from the counts of pingers and responders, without a bus", "net", "diagnose"),
		sibling.Command("Probe other servers by the controller's list, without a bus", "net", "pinger"),
		sibling.Command("Answer probes, without a bus", "net", "responder"),
	}
}
