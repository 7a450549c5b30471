package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Sighting is the cluster as a decision saw it.
type Sighting struct {
	At    time.Time
	Nodes []train.Node
}

// shortAbsence bounds how long a device may be out of sight without having been away: the planner shows a silent
// node without its idle devices, and a restarting agent is silent for that long.
const shortAbsence = 2 * time.Minute

// see notes the cluster that a decision saw, if it differs from the one before.
func (h *History) see(at time.Time, nodes []train.Node) {
	if n := len(h.Sightings); n == 0 || !slices.EqualFunc(h.Sightings[n-1].Nodes, nodes, sameNode) {
		h.Sightings = append(h.Sightings, Sighting{at, nodes})
	}
}

func sameNode(x, y train.Node) bool {
	return x.ID == y.ID && slices.EqualFunc(x.Devices, y.Devices, func(a, b train.Device) bool { return a.ID == b.ID })
}

// deviceOf is a device of a node.
type deviceOf struct {
	node   train.NodeID
	device train.DeviceID
}

// presence returns the nodes that were ever seen, each with all its devices as seen last, and the times at which
// some of them were away, in seconds after a moment. A device is gone from the decision that first misses it until
// one that sees it again. Before the first decision and after the last one the cluster is assumed to be as these
// saw it.
func presence(sightings []Sighting, zero time.Time) ([]train.Node, []sim.Absence) {
	sightings = slices.SortedStableFunc(slices.Values(sightings), func(x, y Sighting) int { return x.At.Compare(y.At) })
	at, seen := make([]float64, len(sightings)), make([]map[deviceOf]bool, len(sightings))
	for i, s := range sightings {
		at[i], seen[i] = s.At.Sub(zero).Seconds(), map[deviceOf]bool{}
		for _, n := range s.Nodes {
			for _, d := range n.Devices {
				seen[i][deviceOf{n.ID, d.ID}] = true
			}
		}
	}
	if len(at) > 0 {
		at[0] = math.Inf(-1)
	}
	nodes := everSeen(sightings)
	var absences []sim.Absence
	for _, n := range nodes {
		for _, d := range n.Devices {
			absences = append(absences, away(deviceOf{n.ID, d.ID}, at, seen)...)
		}
	}
	return nodes, absences
}

// away returns the stretches in which a device was not seen.
func away(d deviceOf, at []float64, seen []map[deviceOf]bool) []sim.Absence {
	var absences []sim.Absence
	from, missed := 0.0, false
	note := func(until float64) {
		if until-from >= shortAbsence.Seconds() {
			absences = append(absences, sim.Absence{Node: d.node, Device: d.device, FromSeconds: from, UntilSeconds: until})
		}
	}
	for i := range seen {
		switch there := seen[i][d]; {
		case !there && !missed:
			from, missed = at[i], true
		case there && missed:
			note(at[i])
			missed = false
		}
	}
	if missed {
		note(math.Inf(1))
	}
	return absences
}

// everSeen returns all nodes of the sightings, in the order of their ids.
func everSeen(sightings []Sighting) []train.Node {
	newest := map[train.NodeID]train.Node{}
	for _, s := range sightings {
		for _, n := range s.Nodes {
			n.Devices = slices.Clone(n.Devices)
			for _, d := range newest[n.ID].Devices {
				if !slices.ContainsFunc(n.Devices, func(now train.Device) bool { return now.ID == d.ID }) {
					n.Devices = append(n.Devices, d)
				}
			}
			newest[n.ID] = n
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(x, y train.Node) int { return cmp.Compare(x.ID, y.ID) })
}

// CameAndWent counts the nodes that were not there all the time, or not with all their devices.
func (l Live) CameAndWent() int {
	some := map[train.NodeID]bool{}
	for _, a := range l.Absences {
		some[a.Node] = true
	}
	return len(some)
}
