package fabric

import (
	"slices"
	"strconv"
	"strings"
)

// Seen is an observed path, by the names of the links that it crosses, each in its direction.
type Seen struct {
	// From and To are the nodes at its ends.
	From string `json:"from"`
	To   string `json:"to"`
	// Links are the links between them, in order.
	Links []LinkID `json:"links"`
}

// FromSeen builds a topology from observed paths. A link whose name contains its target is one link in both directions.
// A link named by an address leads to that address: each interface of a router is then a separate vertex.
func FromSeen(ways []Seen) *Topology {
	t := &Topology{}
	index, linked := map[string]int{}, map[LinkID]bool{}
	vertex := func(name string, tier Tier) int {
		at, known := index[name]
		if !known {
			at = t.add(name, tier)
			index[name] = at
		}
		t.Vertices[at].Tier = min(t.Vertices[at].Tier, tier)
		return at
	}
	for _, w := range ways {
		last := vertex(w.From, Node)
		for i, l := range w.Links {
			left := len(w.Links) - 1 - i
			name, tier := w.To, Node
			if left > 0 {
				name, tier = head(l), Tier(min(i+1, left))
			}
			to := vertex(name, tier)
			if from := t.Vertices[last].Name; l == directedID(from, name) {
				l = linkID(from, name)
			}
			if !linked[l] {
				linked[l] = true
				t.Links = append(t.Links, Link{ID: l, A: last, B: to})
			}
			last = to
		}
	}
	t.sort()
	return t
}

// sort orders vertices by their names.
func (t *Topology) sort() {
	order, place := make([]int, len(t.Vertices)), make([]int, len(t.Vertices))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(t.Vertices[a].Name, t.Vertices[b].Name) })
	vertices := make([]Vertex, len(order))
	for to, from := range order {
		vertices[to], place[from] = t.Vertices[from], to
	}
	t.Vertices = vertices
	for i, l := range t.Links {
		t.Links[i].A, t.Links[i].B = place[l.A], place[l.B]
	}
}

// head returns the target of a link, as its name gives it.
func head(l LinkID) string {
	_, to, found := strings.Cut(string(l), "=3E")
	if !found {
		return strings.TrimPrefix(string(l), "to-")
	}
	var name strings.Builder
	for at := 0; at < len(to); at++ { // the reverse of token
		if to[at] == '=' && at+2 < len(to) {
			if c, err := strconv.ParseUint(to[at+1:at+3], 16, 8); err == nil {
				name.WriteByte(byte(c))
				at += 2
				continue
			}
		}
		name.WriteByte(to[at])
	}
	return name.String()
}
