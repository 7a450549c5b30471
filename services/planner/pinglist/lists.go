package pinglist

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
)

// Lists are the desired probes of the agents.
type Lists struct {
	// Of are the lists by node, without the key.
	Of map[train.NodeID]train.Pinglist
	// Crossed holds for each link the nodes from which and to which packets may cross it.
	Crossed map[string]Crossing
}

// Make chooses what is probed. kept are the flows probed now; those that are still useful stay.
func Make(nodes []train.Node, paths []train.Paths, kept map[uint32]bool, s Settings) Lists {
	all := members(nodes, s.RackLabel)
	flows := candidates(all, s)
	lists := Lists{Of: map[train.NodeID]train.Pinglist{}, Crossed: map[string]Crossing{}}
	crossed := crossings{}
	for _, m := range all {
		lists.Of[m.id] = train.Pinglist{Probes: []train.Flow{}}
	}
	for _, f := range flows {
		list := lists.Of[f.From]
		list.Trace = append(list.Trace, f)
		lists.Of[f.From] = list
	}
	found := s.survey(all, paths)
	var rows [][]int32
	var usable []train.Flow
	var old []int
	index := map[string]int32{}
	for _, f := range flows {
		if f.Links = found.links(f); len(f.Links) == 0 {
			continue
		}
		if kept[f.ID()] {
			old = append(old, len(rows))
		}
		row := make([]int32, len(f.Links))
		for i, l := range f.Links {
			if _, seen := index[l]; !seen {
				index[l] = int32(len(index))
			}
			row[i] = index[l]
			crossed.add(l, f, i == 0, i == len(f.Links)-1)
		}
		rows, usable = append(rows, row), append(usable, f)
	}
	for l, c := range crossed {
		lists.Crossed[l] = c.Crossing
		if s.Peers < len(all)-1 {
			lists.Crossed[l] = c.widened(all)
		}
	}
	for _, i := range probe.Choose(len(index), rows, probe.Goal{Alpha: s.Alpha, Beta: s.Beta}, old) {
		f := usable[i]
		list := lists.Of[f.From]
		list.Probes = append(list.Probes, f)
		lists.Of[f.From] = list
	}
	return lists
}
