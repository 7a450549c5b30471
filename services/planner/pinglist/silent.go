package pinglist

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// survey is what the paths found so far show of the network. If routers are silent, logical links stand for the
// stretch between those that answer, but only if no path shows that stretch: otherwise the same links would have
// two names.
type survey struct {
	settings Settings
	racks    map[train.NodeID]string
	paths    map[uint32]train.Path
	// known are the links of the flows whose whole path was found.
	known map[uint32][]string
	// over holds pairs of addresses of which a path crosses the first and later the second, with all links between
	// known. nodes are the pairs of nodes with a whole path, ends the nodes of any such path.
	over  map[[2]string]bool
	nodes map[reach]bool
	ends  map[train.NodeID]bool
	// doors holds a router and a location if a path leads from the router straight to a node there.
	doors map[[2]string]bool
	// out holds the links by which packets left an address, into the link by which they arrive at one.
	out  map[string][]string
	into map[string]string
}

// reach is a pair of nodes and a protocol over which the one reaches the other.
type reach struct {
	from, to train.NodeID
	ipv6     bool
}

func (s Settings) survey(all []member, paths []train.Paths) *survey {
	v := &survey{
		settings: s, racks: map[train.NodeID]string{}, paths: map[uint32]train.Path{}, known: map[uint32][]string{}, over: map[[2]string]bool{},
		nodes: map[reach]bool{}, ends: map[train.NodeID]bool{}, doors: map[[2]string]bool{}, out: map[string][]string{}, into: map[string]string{},
	}
	for _, m := range all {
		v.racks[m.id] = m.rack
	}
	for i := range paths {
		for _, p := range paths[i].Paths {
			v.see(p)
		}
	}
	return v
}

// see enters a path.
func (v *survey) see(p train.Path) {
	f, links := p.Flow, v.settings.linksOf(p)
	v.paths[f.ID()] = p
	source, target := host(f.Source), host(f.Target)
	if len(p.Hops) > 0 && links[0] != "" && !slices.Contains(v.out[source], links[0]) {
		v.out[source] = append(v.out[source], links[0])
	}
	route := routeOf(p)
	for i, a := range route {
		for k := i; k < len(links) && links[k] != ""; k++ {
			v.over[[2]string{a, route[k+1]}] = true
		}
	}
	if !p.Complete {
		return
	}
	v.doors[[2]string{route[len(route)-2], v.place(f.To)}] = true
	if slices.Contains(links, "") {
		return
	}
	v.known[f.ID()], v.into[target], v.nodes[reach{f.From, f.To, isIPv6(f.Source)}] = links, links[len(links)-1], true
	v.ends[f.From], v.ends[f.To] = true, true
}

// routeOf returns the path by its addresses, both ends included. A path that ends in silence goes on for an unknown
// distance, at least beyond the node's own router.
func routeOf(p train.Path) []string {
	hops := p.Hops
	if !p.Complete {
		for len(hops) > 0 && hops[len(hops)-1] == "" {
			hops = hops[:len(hops)-1]
		}
		hops = append(slices.Clone(hops), "", "")
	}
	return slices.Concat([]string{host(p.Flow.Source)}, hops, []string{host(p.Flow.Target)})
}

// place returns the location of a node: its rack, or the node itself if its rack is unknown.
func (v *survey) place(node train.NodeID) string {
	if rack := v.racks[node]; rack != "" {
		return "rack " + rack
	}
	return "node " + string(node)
}

// links returns the links of a flow. It returns nil if the flow cannot be sent, or if some path shows what is
// silent on this one but not which of several ways it takes. Between nodes on whole paths a flow waits until its
// own path was searched.
func (v *survey) links(f train.Flow) []string {
	p, sought := v.paths[f.ID()]
	if !sought {
		p.Flow = f
	}
	switch {
	case v.known[f.ID()] != nil:
		return v.known[f.ID()]
	case sought && (p.Closed() || v.shown(p)), !sought && v.ends[f.From] && v.ends[f.To]:
		return nil
	}
	if links := v.settings.between(f); links != nil {
		return links
	}
	return v.logical(p)
}

// shown reports whether other paths show what is silent on this one. A path that ends in silence where others go on
// does not count, since the link there lets nothing through, unless only the target was silent. The paths of the
// two nodes over the other protocol count as well: they cross the same links.
func (v *survey) shown(p train.Path) bool {
	f, route := p.Flow, routeOf(p)
	links := make([]string, len(route)-1)
	copy(links, v.settings.linksOf(p))
	for k := 0; k < len(links)-1; k++ {
		if links[k] != "" {
			continue
		}
		before, after := k, k+2 // a link that is not known leads to a router that is not
		for ; before > 0 && route[before] == ""; before-- {
		}
		for ; after < len(links) && route[after] == ""; after++ {
		}
		dead := after == len(links) && !p.Complete && before > 0 && !v.doors[[2]string{route[before], v.place(f.To)}]
		if v.over[[2]string{route[before], route[after]}] && !dead {
			return true
		}
	}
	ipv6 := isIPv6(f.Source)
	return v.nodes[reach{f.From, f.To, !ipv6}] && !v.nodes[reach{f.From, f.To, ipv6}]
}

// logical returns the links of a path with silent stretches: out of the node, between two routers that answer or
// two racks, and into the other node.
func (v *survey) logical(p train.Path) []string {
	route := routeOf(p)
	last := len(route) - 1
	links := []string{v.first(p.Flow, route[1])}
	for i := 2; i < last; i++ {
		if route[i] != "" {
			links = append(links, "to-"+token(route[i]))
			continue
		}
		before := i - 1
		for route[i+1] == "" {
			i++
		}
		if gap := v.gap(p.Flow, route, before, i+1); gap != "" {
			links = append(links, gap)
		}
	}
	if real, known := v.into[route[last]]; known {
		return append(links, real)
	}
	return append(links, "to-"+string(p.Flow.To))
}

// first returns the link out of a node, named by the router that answers behind it on this path or on all others.
func (v *survey) first(f train.Flow, hop string) string {
	switch out := v.out[host(f.Source)]; {
	case hop != "":
		return "to-" + token(hop)
	case len(out) == 1:
		return out[0]
	default:
		return "from-" + string(f.From)
	}
}

// gap names the stretch between two locations of a route. A node's router goes by its rack, which is the same for
// all its nodes; within a rack there is no stretch.
func (v *survey) gap(f train.Flow, route []string, before, after int) string {
	out, in := v.racks[f.From], v.racks[f.To]
	begins, ends := before == 1, after == len(route)-1
	if begins && ends && out == in && (out != "" || route[1] == "") {
		return ""
	}
	from, to := route[before], route[after]
	switch {
	case begins && out != "":
		from = "rack-" + out
	case from == "":
		from = string(f.From)
	}
	switch {
	case ends && in != "":
		to = in
	case ends:
		to = string(f.To)
	}
	return "from-" + token(from) + "-to-" + token(to)
}
