package pinglist

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Crossing holds the nodes at both ends of the paths over a link.
type Crossing struct {
	From, To []train.NodeID
}

// crossings are the crossings of links, by link name.
type crossings map[string]crossing

type crossing struct {
	Crossing
	// out is set if all paths over the link begin with it, in if all end with it.
	out, in bool
}

// add enters a flow over a link. first and last say whether the link is its first and its last.
func (all crossings) add(link string, f train.Flow, first, last bool) {
	c, known := all[link]
	all[link] = crossing{Crossing{insert(c.From, f.From), insert(c.To, f.To)}, first && (c.out || !known), last && (c.in || !known)}
}

// widened adds pairs of nodes that do not probe each other, since a node probes only some others. The link out of a
// node leads to all nodes, the link into a node comes from all nodes, and packets of all nodes of a rack cross the
// same link between racks.
func (c crossing) widened(all []member) Crossing {
	others := func(one train.NodeID) []train.NodeID { return chosen(all, func(m member) bool { return m.id != one }) }
	switch {
	case c.out && len(c.From) == 1:
		return Crossing{c.From, others(c.From[0])}
	case c.in && len(c.To) == 1:
		return Crossing{others(c.To[0]), c.To}
	default:
		return Crossing{mates(all, c.From), mates(all, c.To)}
	}
}

// mates returns some nodes together with all other nodes of their racks, as far as racks are known.
func mates(all []member, some []train.NodeID) []train.NodeID {
	racks := map[string]bool{}
	for _, m := range all {
		if _, among := slices.BinarySearch(some, m.id); among && m.rack != "" {
			racks[m.rack] = true
		}
	}
	return chosen(all, func(m member) bool {
		_, among := slices.BinarySearch(some, m.id)
		return among || racks[m.rack]
	})
}

// chosen returns the nodes that meet a condition, sorted.
func chosen(all []member, holds func(member) bool) []train.NodeID {
	var some []train.NodeID
	for _, m := range all {
		if holds(m) {
			some = append(some, m.id)
		}
	}
	slices.Sort(some)
	return some
}

// insert keeps the nodes sorted.
func insert(nodes []train.NodeID, id train.NodeID) []train.NodeID {
	at, found := slices.BinarySearch(nodes, id)
	if found {
		return nodes
	}
	return slices.Insert(nodes, at, id)
}
