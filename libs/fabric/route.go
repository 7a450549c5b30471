package fabric

import "fmt"

// Route is one of the paths that packets between two ends may take.
type Route struct {
	From, To int // vertices
	Links    []int32
}

// mostRoutes bounds the memory for routes: about a gigabyte.
const mostRoutes = 1 << 24

// Routes returns all shortest paths between nodes, or between racks if there are no nodes, as ECMP spreads over them.
// Nodes do not forward. If directed, each pair of ends has its paths there and back, over directed links; else each
// path counts once.
func (t *Topology) Routes(directed bool) ([]Route, error) {
	near, ends := t.near(), t.ends()
	var routes []Route
	for _, from := range ends {
		distance := t.distances(near, from)
		for _, to := range ends {
			if to == from || !directed && to < from || distance[to] < 0 {
				continue
			}
			w := walk{topology: t, near: near, distance: distance, directed: directed, routes: routes, from: from, to: to, links: make([]int32, distance[to])}
			w.back(to)
			if routes = w.routes; len(routes) > mostRoutes {
				return nil, fmt.Errorf("list routes: more than %d", mostRoutes)
			}
		}
	}
	return routes, nil
}

// Candidates returns routes as rows.
func (t *Topology) Candidates(routes []Route, directed bool) Paths {
	rows := make([][]int32, len(routes))
	for i, r := range routes {
		rows[i] = r.Links
	}
	links := len(t.Links)
	if directed {
		links *= 2
	}
	return Explicit(links, rows)
}

// near returns the links of each vertex.
func (t *Topology) near() [][]hop {
	near := make([][]hop, len(t.Vertices))
	for i, l := range t.Links {
		near[l.A] = append(near[l.A], hop{int32(i), l.B, false})
		near[l.B] = append(near[l.B], hop{int32(i), l.A, true})
	}
	return near
}

type hop struct {
	link int32
	to   int
	down bool // from B to A
}

func (t *Topology) ends() []int {
	for _, tier := range []Tier{Node, Rack} {
		var ends []int
		for i, v := range t.Vertices {
			if v.Tier == tier {
				ends = append(ends, i)
			}
		}
		if len(ends) > 0 {
			return ends
		}
	}
	return nil
}

// distances returns the distances in hops, -1 for vertices that cannot be reached.
func (t *Topology) distances(near [][]hop, from int) []int {
	distance := make([]int, len(t.Vertices))
	for i := range distance {
		distance[i] = -1
	}
	distance[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && !t.forwards(at) {
			continue
		}
		for _, h := range near[at] {
			if distance[h.to] < 0 {
				distance[h.to] = distance[at] + 1
				queue = append(queue, h.to)
			}
		}
	}
	return distance
}

// forwards says whether paths may lead through a vertex: nodes do not forward.
func (t *Topology) forwards(vertex int) bool { return t.Vertices[vertex].Tier != Node }

// walk goes back from an end along decreasing distances, over every path.
type walk struct {
	topology *Topology
	near     [][]hop
	distance []int
	directed bool
	routes   []Route
	from, to int
	links    []int32 // filled from the end
}

func (w *walk) back(at int) {
	left := w.distance[at]
	if left == 0 {
		w.routes = append(w.routes, Route{From: w.from, To: w.to, Links: append([]int32(nil), w.links...)})
		return
	}
	if len(w.routes) > mostRoutes {
		return
	}
	for _, h := range w.near[at] {
		if w.distance[h.to] != left-1 || left > 1 && !w.topology.forwards(h.to) {
			continue
		}
		w.links[left-1] = h.link
		if w.directed {
			w.links[left-1] = Direction(h.link, !h.down) // walked backwards
		}
		w.back(h.to)
	}
}
