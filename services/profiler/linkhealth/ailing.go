package linkhealth

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Ailing tells of which nodes nothing could be judged in the slots up to one, in order of nodes.
func (w *Watch) Ailing(last int64) []train.AilingNode {
	var all []train.AilingNode
	for _, node := range slices.Sorted(maps.Keys(w.lists)) {
		var told halves
		stalled := false
		for i := range int64(windowSlots) {
			r := w.reports[last-i][node]
			told, stalled = told.and(r.told()), stalled || r.stalled
		}
		switch {
		case stalled:
			all = append(all, train.AilingNode{Node: node, Why: train.NodeIsStalled})
		case told != w.heard[node] && w.others(node, last):
			all = append(all, train.AilingNode{Node: node, Why: train.NodeIsSilent})
		}
	}
	ailing := map[train.NodeID]train.Ailment{}
	for _, a := range all {
		ailing[a.Node] = a.Why
	}
	// The reports of a clock that is wrong by more than a slot come too late, or too early: that is no silence.
	skewed := w.skewed(last, ailing)
	all = slices.DeleteFunc(all, func(a train.AilingNode) bool {
		return slices.ContainsFunc(skewed, func(s train.AilingNode) bool { return s.Node == a.Node })
	})
	all = append(all, skewed...)
	slices.SortStableFunc(all, func(a, b train.AilingNode) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// others says whether somebody else has reported a slot: else it is the service that hears nothing.
func (w *Watch) others(node train.NodeID, last int64) bool {
	for other := range w.lists {
		if _, reported := w.reports[last][other]; other != node && reported {
			return true
		}
	}
	return false
}

// skewed are the nodes whose clocks differ from those of most others that they exchange probes with. The one that differs from the most is named first, and what it
// exchanges with others then says nothing of theirs: a node that all others know alone would accuse them all. Where equally many differ from several, those are
// named that are silent, since reports by a clock that is far off do not count; else all of them.
func (w *Watch) skewed(last int64, ailing map[train.NodeID]train.Ailment) []train.AilingNode {
	behind := w.behind(last, ailing)
	var all []train.AilingNode
	for {
		worst, most := []train.AilingNode(nil), 0
		for _, node := range slices.Sorted(maps.Keys(behind)) {
			apart := slices.DeleteFunc(slices.Sorted(maps.Values(behind[node])), func(seconds float64) bool { return seconds == 0 })
			rank := 2 * len(apart)
			if ailing[node] == train.NodeIsSilent {
				rank++
			}
			if 2*len(apart) <= len(behind[node]) || rank < most {
				continue
			}
			if rank > most {
				worst, most = nil, rank
			}
			worst = append(worst, train.AilingNode{Node: node, Why: train.NodeHasClockSkew, BehindSeconds: apart[len(apart)/2]})
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

// behind is by how many seconds the clock of each node is behind those of all others that it exchanges probes with. What stalled ones sent or received late says
// nothing of clocks: it waited for their agents. Of what silent ones received nothing is known.
func (w *Watch) behind(last int64, ailing map[train.NodeID]train.Ailment) map[train.NodeID]map[train.NodeID]float64 {
	behind := map[train.NodeID]map[train.NodeID]float64{}
	note := func(node, other train.NodeID, seconds float64) {
		if behind[node] == nil {
			behind[node] = map[train.NodeID]float64{}
		}
		if math.Abs(seconds) >= math.Abs(behind[node][other]) {
			behind[node][other] = seconds
		}
	}
	for _, list := range w.lists {
		for _, f := range list.Probes {
			if ailing[f.To] == train.NodeIsSilent {
				continue
			}
			seconds := 0.0
			for i := range int64(windowSlots) {
				if ailing[f.From] != train.NodeIsStalled && ailing[f.To] != train.NodeIsStalled {
					seconds = cmp.Or(w.reports[last-i][f.To].late[f.ID()], seconds)
				}
			}
			note(f.From, f.To, seconds)
			note(f.To, f.From, -seconds)
		}
	}
	return behind
}
