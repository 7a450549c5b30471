package fabric

import "slices"

// Names finds the links of a topology from the hops of packets. It is not safe for concurrent use.
type Names struct {
	topology *Topology
	near     [][]hop
	index    map[string]int
	levels   map[[2]int][][]int
}

// Names builds the index.
func (t *Topology) Names() *Names {
	n := &Names{topology: t, near: t.near(), index: map[string]int{}, levels: map[[2]int][][]int{}}
	for i, v := range t.Vertices {
		n.index[v.Name] = i
	}
	return n
}

// Path returns the names of the links of a path, given the addresses of its routers; a name is empty if it cannot be
// determined. A router is found by its addresses, or by its place in the path if the topology leaves only one
// candidate. Path returns nil if the topology lacks one of the nodes.
func (n *Names) Path(from, to string, hops []string) []LinkID {
	levels := n.between(from, to)
	if levels == nil {
		return nil
	}
	at := make([]int, len(hops)+2)
	at[0], at[len(hops)+1] = n.index[from], n.index[to]
	for i, hop := range hops {
		at[i+1] = -1
		if v, known := n.topology.Addresses[hop]; known {
			at[i+1] = v
		}
		if at[i+1] < 0 && len(levels) == len(at) && len(levels[i+1]) == 1 {
			at[i+1] = levels[i+1][0]
		}
	}
	links := make([]LinkID, len(hops)+1)
	for i := range links {
		if at[i] >= 0 && at[i+1] >= 0 && slices.ContainsFunc(n.near[at[i]], func(h hop) bool { return h.to == at[i+1] }) {
			links[i] = n.way(at[i], at[i+1])
		}
	}
	return links
}

// Between returns the names of the links common to all shortest paths between two nodes, with one name for all that
// lies between them, or nil if there is no path.
func (n *Names) Between(from, to string) []LinkID {
	var links []LinkID
	last := -1
	for _, level := range n.between(from, to) {
		if len(level) > 1 {
			continue
		}
		if last >= 0 {
			links = append(links, n.way(last, level[0]))
		}
		last = level[0]
	}
	return links
}

func (n *Names) way(from, to int) LinkID {
	return directedID(n.topology.Vertices[from].Name, n.topology.Vertices[to].Name)
}

// between returns the vertices on shortest paths between two nodes, by their distance from the first.
func (n *Names) between(from, to string) [][]int {
	a, known := n.index[from]
	b, both := n.index[to]
	if !known || !both || a == b {
		return nil
	}
	if levels, done := n.levels[[2]int{a, b}]; done {
		return levels
	}
	there, back := n.topology.distances(n.near, a), n.topology.distances(n.near, b)
	var levels [][]int
	if all := there[b]; all > 0 {
		levels = make([][]int, all+1)
		for v := range there {
			inner := v != a && v != b
			if there[v] >= 0 && back[v] >= 0 && there[v]+back[v] == all && (!inner || n.topology.forwards(v)) {
				levels[there[v]] = append(levels[there[v]], v)
			}
		}
	}
	n.levels[[2]int{a, b}] = levels
	return levels
}
