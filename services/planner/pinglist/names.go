package pinglist

import (
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// linksOf returns the links of a path; empty for an unknown one. A link is named by the operator's topology, else
// by the address at which it enters a router or the target: routers answer from the interface at which a packet
// came in, and that has one link.
func (s Settings) linksOf(p train.Path) []string {
	var named []fabric.LinkID
	if s.Network != nil && p.Complete {
		named = s.Network.Path(string(p.Flow.From), string(p.Flow.To), p.Hops)
	}
	hops := slices.Clone(p.Hops)
	if p.Complete {
		hops = append(hops, host(p.Flow.Target))
	}
	links := make([]string, len(hops))
	for i, hop := range hops {
		switch {
		case named != nil && named[i] != "":
			links[i] = string(named[i])
		case hop != "":
			links[i] = "to-" + token(hop)
		}
	}
	return links
}

// between returns the logical links of a flow by the operator's topology; nil if it lacks one of the nodes.
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

// token makes a name fit for a subject of the bus. It serves addresses and labels, in which '-' instead of '.' or
// ':' makes no two alike.
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
