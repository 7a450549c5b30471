// Package fabric holds the nouns of the network: its nodes, switches and links, their names, and the paths that packets
// may take. A topology comes from a file or from a generator. The package knows nothing of probes, losses or time.
package fabric

import (
	"fmt"
	"strings"
)

// Tier is the level of a vertex above the nodes.
type Tier int

// The tiers. A generator with more levels of switches continues the numbers.
const (
	Node Tier = iota
	Rack
	Spine
	Core
)

// Vertex is a node or a switch.
type Vertex struct {
	Name string
	Tier Tier
}

// LinkID names a link for subjects and keys of the bus: one token, the same at all times and from both ends.
type LinkID string

// Link joins two vertices, the lower tier first. If the path between them is unknown, the link is logical and stands
// for all that lies there.
type Link struct {
	ID   LinkID
	A, B int // indices of vertices
}

// Topology is the graph of the network. Links are known by their index; a directed link is twice that, plus one if it
// leads from B to A.
type Topology struct {
	Vertices []Vertex
	Links    []Link
	// Addresses are the known addresses of the interfaces of switches, with the vertex of each.
	Addresses map[string]int
}

// Direction returns the index of the link in one direction.
func Direction(link int32, fromBToA bool) int32 {
	if fromBToA {
		return 2*link + 1
	}
	return 2 * link
}

// DirectedID returns the name of one direction of a link.
func (t *Topology) DirectedID(directed int32) LinkID {
	l := t.Links[directed/2]
	from, to := t.Vertices[l.A].Name, t.Vertices[l.B].Name
	if directed%2 == 1 {
		from, to = to, from
	}
	return directedID(from, to)
}

// directedID names the link from one vertex to another.
func directedID(from, to string) LinkID { return LinkID(token(from) + "=3E" + token(to)) }

// linkID joins the ends in order, so that both ends give the same name.
func linkID(a, b string) LinkID {
	if b < a {
		a, b = b, a
	}
	return LinkID(token(a) + "=7E" + token(b))
}

// token writes a character that a key or a token of a subject does not admit as = and two hexadecimal digits, so that
// different names stay different.
func token(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func (t *Topology) add(name string, tier Tier) int {
	t.Vertices = append(t.Vertices, Vertex{Name: name, Tier: tier})
	return len(t.Vertices) - 1
}

// link joins two vertices, the lower tier first: up is from A to B.
func (t *Topology) link(a, b int) {
	if t.Vertices[a].Tier > t.Vertices[b].Tier {
		a, b = b, a
	}
	t.Links = append(t.Links, Link{ID: linkID(t.Vertices[a].Name, t.Vertices[b].Name), A: a, B: b})
}
