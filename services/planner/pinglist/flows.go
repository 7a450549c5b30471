// Package pinglist decides which agent probes which: it lists the flows that could be probed, knows from their
// paths which links each one crosses, and chooses the flows by which a lossy link can be named. It sends nothing.
package pinglist

import (
	"cmp"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Settings are the operator's choices.
type Settings struct {
	// Alpha is the least number of flows over each link that any flow can cross. Any Beta links that lose packets
	// at once are distinguished from all others, as far as the paths allow.
	Alpha, Beta int
	// Peers is the number of other nodes that a node may probe, Ports the number of source ports it uses towards
	// each: routers choose among equal paths by them.
	Peers, Ports int
	FirstPort    int
	// Classes are the DSCP values, which the ports take in turn.
	Classes []int
	// RackLabel is the label of nodes that names their rack.
	RackLabel string
	// Pings are the nodes that probe others; nil means all.
	Pings map[train.NodeID]bool
	// Network names links as the operator's topology does; nil without a topology.
	Network *fabric.Names
}

// member is a node that answers probes.
type member struct {
	id      train.NodeID
	rack    string
	answers []string
}

// members are the nodes that answer probes, rack by rack.
func members(nodes []train.Node, rackLabel string) []member {
	var all []member
	for i := range nodes {
		if n := &nodes[i]; len(n.Probes) > 0 {
			all = append(all, member{n.ID, n.Labels[rackLabel], n.Probes})
		}
	}
	slices.SortFunc(all, func(x, y member) int { return cmp.Or(cmp.Compare(x.rack, y.rack), cmp.Compare(x.id, y.id)) })
	return all
}

// candidates returns the flows that could be probed: from each node to some others, near and far, over several
// source ports.
func candidates(all []member, s Settings) []train.Flow {
	var flows []train.Flow
	for i := range all {
		if s.Pings != nil && !s.Pings[all[i].id] {
			continue
		}
		for _, far := range offsets(len(all), s.Peers) {
			from, to := &all[i], &all[(i+far)%len(all)]
			for k, source := range from.answers {
				target, found := opposite(to.answers, source, k)
				for port := 0; found && port < s.Ports; port++ {
					flows = append(flows, train.Flow{
						From: from.id, To: to.id, Source: withPort(source, s.FirstPort+port), Target: target, DSCP: s.Classes[port%len(s.Classes)],
					})
				}
			}
		}
	}
	return flows
}

// offsets returns the distances, in the order of the nodes, of the nodes that a node probes: all of them, or spread
// evenly.
func offsets(nodes, peers int) []int {
	var all []int
	for k := range min(nodes-1, peers) {
		all = append(all, 1+k*(nodes-1)/min(nodes-1, peers))
	}
	return all
}

// opposite returns the address of another node to probe from one's own address: that of the interface with the same
// number, else any of the same protocol.
func opposite(answers []string, source string, k int) (string, bool) {
	speaks := func(a string) bool { return isIPv6(a) == isIPv6(source) }
	if k < len(answers) && speaks(answers[k]) {
		return answers[k], true
	}
	if i := slices.IndexFunc(answers, speaks); i >= 0 {
		return answers[i], true
	}
	return "", false
}

func isIPv6(hostPort string) bool { return strings.HasPrefix(hostPort, "[") }

// host is the address without its port.
func host(hostPort string) string {
	return strings.Trim(hostPort[:strings.LastIndexByte(hostPort, ':')], "[]")
}
