package linkhealth

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Unhealthy returns the nodes whose probes could not be judged in the slots up to last, in order of nodes.
func (c *collector) Unhealthy(last int64) []train.UnhealthyNode {
	var all []train.UnhealthyNode
	for _, node := range slices.Sorted(maps.Keys(c.lists)) {
		var reported halves
		stalled := false
		for i := range int64(windowSlots) {
			r := c.reports[last-i][node]
			reported, stalled = reported.and(r.reported()), stalled || r.stalled
		}
		switch {
		case stalled:
			all = append(all, train.UnhealthyNode{Node: node, Why: train.NodeIsStalled})
		case reported != c.expected[node] && c.othersReported(node, last):
			all = append(all, train.UnhealthyNode{Node: node, Why: train.NodeIsSilent})
		}
	}
	unhealthy := map[train.NodeID]train.NodeTrouble{}
	for _, a := range all {
		unhealthy[a.Node] = a.Why
	}
	// The reports of a clock that is wrong by more than a slot arrive too late or too early, which is no silence.
	skewed := c.skewed(last, unhealthy)
	all = slices.DeleteFunc(all, func(a train.UnhealthyNode) bool {
		return slices.ContainsFunc(skewed, func(s train.UnhealthyNode) bool { return s.Node == a.Node })
	})
	all = append(all, skewed...)
	slices.SortStableFunc(all, func(a, b train.UnhealthyNode) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// othersReported reports whether another node has reported a slot; otherwise the service itself receives nothing.
func (c *collector) othersReported(node train.NodeID, last int64) bool {
	for other := range c.lists {
		if _, reported := c.reports[last][other]; other != node && reported {
			return true
		}
	}
	return false
}

// skewed returns the nodes whose clocks differ from those of most other nodes that they exchange probes with. The
// node that differs from the most is named first, and its probes then count no longer against others: a single wrong
// node would otherwise accuse all of them. If several nodes differ from equally many, the silent ones are named,
// because reports with a clock that is far off do not count; if none is silent, all of them are.
func (c *collector) skewed(last int64, unhealthy map[train.NodeID]train.NodeTrouble) []train.UnhealthyNode {
	behind := c.behind(last, unhealthy)
	var all []train.UnhealthyNode
	for {
		worst, most := []train.UnhealthyNode(nil), 0
		for _, node := range slices.Sorted(maps.Keys(behind)) {
			apart := slices.DeleteFunc(slices.Sorted(maps.Values(behind[node])), func(seconds float64) bool { return seconds == 0 })
			rank := 2 * len(apart)
			if unhealthy[node] == train.NodeIsSilent {
				rank++
			}
			if 2*len(apart) <= len(behind[node]) || rank < most {
				continue
			}
			if rank > most {
				worst, most = nil, rank
			}
			worst = append(worst, train.UnhealthyNode{Node: node, Why: train.NodeHasClockSkew, BehindSeconds: apart[len(apart)/2]})
		}
		if len(worst) == 0 {
			return all
		}
		all = append(all, worst...)
		for _, named := range worst {
			for other := range behind[named.Node] {
				delete(behind[other], named.Node)
			}
			delete(behind, named.Node)
		}
	}
}

// behind returns by how many seconds the clock of each node is behind those of all others that it exchanges probes
// with. Late probes of stalled nodes say nothing about clocks, because they waited for the agents. What silent
// nodes received is unknown.
func (c *collector) behind(last int64, unhealthy map[train.NodeID]train.NodeTrouble) map[train.NodeID]map[train.NodeID]float64 {
	behind := map[train.NodeID]map[train.NodeID]float64{}
	note := func(node, other train.NodeID, seconds float64) {
		if behind[node] == nil {
			behind[node] = map[train.NodeID]float64{}
		}
		if math.Abs(seconds) >= math.Abs(behind[node][other]) {
			behind[node][other] = seconds
		}
	}
	for _, list := range c.lists {
		for _, f := range list.Probes {
			if unhealthy[f.To] == train.NodeIsSilent {
				continue
			}
			seconds := 0.0
			for i := range int64(windowSlots) {
				if unhealthy[f.From] != train.NodeIsStalled && unhealthy[f.To] != train.NodeIsStalled {
					seconds = cmp.Or(c.reports[last-i][f.To].late[f.ID()], seconds)
				}
			}
			note(f.From, f.To, seconds)
			note(f.To, f.From, -seconds)
		}
	}
	return behind
}
