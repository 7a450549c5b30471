package pinglist

import (
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
)

// Lists are what the agents shall do.
type Lists struct {
	// Of are the lists by node, without the key.
	Of map[train.NodeID]train.Pinglist
	// Crossed says of each link from which nodes and to which ones packets may cross it.
	Crossed map[string]Crossing
}

// Crossing are the nodes at both ends of the paths over a link.
type Crossing struct {
	From, To []train.NodeID
}

// Make chooses what is probed. Of the flows in kept, those that are probed now, as many stay as are still of use.
func Make(nodes []train.Node, paths []train.Paths, kept map[uint32]bool, s Settings) Lists {
	all := members(nodes, s.RackLabel)
	flows := candidates(all, s)
	lists := Lists{Of: map[train.NodeID]train.Pinglist{}, Crossed: map[string]Crossing{}}
	for _, m := range all {
		lists.Of[m.id] = train.Pinglist{Probes: []train.Flow{}}
	}
	for _, f := range flows {
		list := lists.Of[f.From]
		list.Trace = append(list.Trace, f)
		lists.Of[f.From] = list
	}
	known, closed := knownPaths(paths)
	logical := logicalLinks(all, flows, known)
	var rows [][]int32
	var usable []train.Flow
	var old []int
	index := map[string]int32{}
	for _, f := range flows {
		if f.Links = known[f.ID()]; f.Links == nil {
			f.Links = logical(f)
		}
		if len(f.Links) == 0 || closed[f.ID()] {
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
			lists.Crossed[l] = lists.Crossed[l].with(f)
		}
		rows, usable = append(rows, row), append(usable, f)
	}
	for _, i := range probe.Choose(len(index), rows, probe.Goal{Alpha: s.Alpha, Beta: s.Beta}, old) {
		f := usable[i]
		list := lists.Of[f.From]
		list.Probes = append(list.Probes, f)
		lists.Of[f.From] = list
	}
	return lists
}

func (c Crossing) with(f train.Flow) Crossing {
	return Crossing{insert(c.From, f.From), insert(c.To, f.To)}
}

// insert keeps the nodes sorted.
func insert(nodes []train.NodeID, id train.NodeID) []train.NodeID {
	at, found := slices.BinarySearch(nodes, id)
	if found {
		return nodes
	}
	return slices.Insert(nodes, at, id)
}

// knownPaths are the links of the flows whose whole path was found, and the flows that cannot be sent. A link is known by the address at which it enters a router or the target: routers answer
// from the interface at which a packet came in, and that has one link.
func knownPaths(paths []train.Paths) (known map[uint32][]string, closed map[uint32]bool) {
	known, closed = map[uint32][]string{}, map[uint32]bool{}
	for i := range paths {
		for _, p := range paths[i].Paths {
			if closed[p.Flow.ID()] = p.Closed(); !p.Complete || slices.Contains(p.Hops, "") {
				continue
			}
			links := make([]string, 0, len(p.Hops)+1)
			for _, hop := range append(slices.Clone(p.Hops), host(p.Flow.Target)) {
				links = append(links, "to-"+token(hop))
			}
			known[p.Flow.ID()] = links
		}
	}
	return known, closed
}

// logicalLinks stand in where routers are silent: out of the node, from its rack to the other's, and into the other node. Where some path of both nodes was
// found they are not mixed with real ones, which would be the same links under two names.
func logicalLinks(all []member, flows []train.Flow, known map[uint32][]string) func(train.Flow) []string {
	racks, found := map[train.NodeID]string{}, map[train.NodeID]bool{}
	for _, m := range all {
		racks[m.id] = m.rack
	}
	for _, f := range flows {
		if known[f.ID()] != nil {
			found[f.From], found[f.To] = true, true
		}
	}
	return func(f train.Flow) []string {
		if found[f.From] && found[f.To] {
			return nil
		}
		out, in := racks[f.From], racks[f.To]
		links := []string{"from-" + string(f.From)}
		if out != in {
			links = append(links, "from-rack-"+token(out)+"-to-"+token(in))
		}
		return append(links, "to-"+string(f.To))
	}
}

// token makes a name fit for a subject of the bus: of addresses and of labels, where '-' instead of '.' or ':' makes no two alike.
func token(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' {
			return c
		}
		return '-'
	}, name)
}

// withPort replaces the port of an address.
func withPort(hostPort string, port int) string {
	return hostPort[:strings.LastIndexByte(hostPort, ':')+1] + strconv.Itoa(port)
}
