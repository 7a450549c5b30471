package pinglist

import (
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// knownPaths are the links of the flows whose whole path was found, and the flows that cannot be sent.
func (s Settings) knownPaths(paths []train.Paths) (known map[uint32][]string, closed map[uint32]bool) {
	known, closed = map[uint32][]string{}, map[uint32]bool{}
	for i := range paths {
		for _, p := range paths[i].Paths {
			closed[p.Flow.ID()] = p.Closed()
			if links := s.linksOf(p); links != nil {
				known[p.Flow.ID()] = links
			}
		}
	}
	return known, closed
}

// linksOf are the links of a path; nil where not all of them are known. A link has the name that the operator's topology gives it, else that of the address at which it
// enters a router or the target: routers answer from the interface at which a packet came in, and that has one link.
func (s Settings) linksOf(p train.Path) []string {
	if !p.Complete {
		return nil
	}
	var named []fabric.LinkID
	if s.Network != nil {
		named = s.Network.Path(string(p.Flow.From), string(p.Flow.To), p.Hops)
	}
	links := make([]string, 0, len(p.Hops)+1)
	for i, hop := range append(slices.Clone(p.Hops), host(p.Flow.Target)) {
		switch {
		case named != nil && named[i] != "":
			links = append(links, string(named[i]))
		case hop == "":
			return nil
		default:
			links = append(links, "to-"+token(hop))
		}
	}
	return links
}

// logicalLinks stand in where routers are silent: out of the node, from its rack to the other's, and into the other node. Where some path of both nodes was
// found they are not mixed with real ones, which would be the same links under two names.
func (s Settings) logicalLinks(all []member, flows []train.Flow, known map[uint32][]string) func(train.Flow) []string {
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
		if links := s.between(f); links != nil {
			return links
		}
		out, in := racks[f.From], racks[f.To]
		links := []string{"from-" + string(f.From)}
		if out != in {
			links = append(links, "from-rack-"+token(out)+"-to-"+token(in))
		}
		return append(links, "to-"+string(f.To))
	}
}

// between are the logical links of a flow by the operator's topology; nil where it does not have both nodes.
func (s Settings) between(f train.Flow) []string {
	if s.Network == nil {
		return nil
	}
	var links []string
	for _, l := range s.Network.Between(string(f.From), string(f.To)) {
		links = append(links, string(l))
	}
	return links
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
