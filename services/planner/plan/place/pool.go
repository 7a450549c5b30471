package place

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Finder finds placements for gangs. It keeps nodes by the number of their unclaimed devices, so that a search visits
// few of them.
type Finder struct {
	s *cluster.Snapshot
	// Pools are in the order of their first nodes; PoolOf is that of each node.
	Pools  []*Pool
	PoolOf []int
	groups []*group
	// off are the nodes that the present search has taken already.
	off     []bool
	refused *cluster.Refusals[request]
}

// request holds the inputs of a search besides the ledger.
type request struct {
	workers, servers, class, memory int
	grows                           bool
	tenant                          string
	each                            train.ServersSpec
}

func requestOf(g *cluster.Gang, workers, servers int) request {
	r := request{workers, servers, g.Class, g.MemoryClass, g.Most > g.Least, g.Spec.Tenant, train.ServersSpec{}}
	if g.Servers != nil {
		r.each = *g.Servers
	}
	return r
}

// Pool is the nodes that are alike for every gang.
type Pool struct {
	kind
	Nodes []int
	// PerNode is the size of the largest node, Watts the most that one of the devices draws more with work.
	PerNode int
	Watts   float64
	// byFree are heaps of nodes by the number of devices that were unclaimed when they were put there; other entries are
	// outdated.
	byFree []cluster.Heap[int]
}

// kind is what the nodes of a pool have in common: the model and the memory of their devices, the class and the island,
// and if gangs must not span nodes and power is short, what a device draws.
type kind struct {
	Model, Class, Island string
	Memory               int64
	watts                float64
}

// group is the nodes over which one gang may be spread: those of one model, on one island.
type group struct {
	pools []*Pool
	nodes []int
}

// NewFinder is for one round: it watches the ledger.
func NewFinder(s *cluster.Snapshot) *Finder {
	f := &Finder{s: s, PoolOf: make([]int, len(s.Nodes)), off: make([]bool, len(s.Nodes)), refused: cluster.NewRefusals[request](s.Ledger)}
	byKind, groups := map[kind]int{}, map[string]*group{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		is := kind{Model: n.Model, Class: n.Class, Island: n.Island, Memory: n.Memory}
		if s.State.PowerBudgetWatts > 0 && !s.Spans {
			is.watts = n.Watts
		}
		of := groups[n.Model+n.Island]
		if of == nil {
			of = &group{}
			groups[n.Model+n.Island], f.groups = of, append(f.groups, of)
		}
		at, known := byKind[is]
		if !known {
			at = len(f.Pools)
			byKind[is], f.Pools = at, append(f.Pools, &Pool{kind: is})
			of.pools = append(of.pools, f.Pools[at])
		}
		p := f.Pools[at]
		f.PoolOf[i], p.Nodes, of.nodes = at, append(p.Nodes, i), append(of.nodes, i)
		p.PerNode, p.Watts = max(p.PerNode, len(n.Devices)), max(p.Watts, n.Watts)
	}
	for _, p := range f.Pools {
		p.byFree = make([]cluster.Heap[int], p.PerNode+1)
		for k := range p.byFree {
			p.byFree[k].Less = func(x, y int) bool { return x < y }
		}
		for _, i := range p.Nodes {
			f.put(i)
		}
	}
	s.Ledger.Watch(f.put)
	return f
}

// accepts reports whether a gang may run on the nodes of a pool.
func (p *Pool) accepts(g *cluster.Gang) bool { return g.SuitsKind(p.Memory, p.Class) }

// put files a node under its unclaimed devices.
func (f *Finder) put(node int) {
	p := f.Pools[f.PoolOf[node]]
	if n := f.unclaimed(node); n > 0 {
		p.byFree[min(n, p.PerNode)].Push(node)
	}
}

// putBack lets nodes be found again that a search has taken.
func (f *Finder) putBack(nodes []int) {
	for _, node := range nodes {
		f.off[node] = false
		f.put(node)
	}
}

func (f *Finder) unclaimed(node int) int { return f.s.Ledger.UnclaimedByAll(node) }

// first is the first node of a pool with exactly the given number of devices for a gang that are free and that no other
// gang claims.
func (f *Finder) first(p *Pool, g *cluster.Gang, free int) (int, bool) {
	if len(f.s.Ledger.Reservations()) > 0 || len(g.OnlyNodes) > 0 {
		for _, i := range p.Nodes {
			if f.s.Ledger.Unclaimed(g, i) == free && !f.off[i] {
				return i, true
			}
		}
		return none, false
	}
	for h := &p.byFree[free]; h.Len() > 0; h.Pop() {
		if node := h.Top(); f.unclaimed(node) == free && !f.off[node] {
			return node, true
		}
	}
	return none, false
}

// fitting is the node of a pool with the fewest unclaimed devices that are enough, or the emptiest with enough. It has
// room for the given servers beside the workers.
func (f *Finder) fitting(p *Pool, g *cluster.Gang, workers, servers int, emptiest bool) (node, free int, found bool) {
	for more := range p.PerNode - workers + 1 {
		if free = workers + more; emptiest {
			free = p.PerNode - more
		}
		if servers == 0 && g.RAM == 0 {
			node, found = f.first(p, g, free)
		} else {
			node, found = f.firstFitting(p, g, free, math.MaxInt, func(i int) bool { return f.s.Ledger.HasRoom(g, i, workers, servers) })
		}
		if found {
			return node, free, true
		}
	}
	return none, 0, false
}

// takeEmptiest returns the node of some pools with the most unclaimed devices, the first of equals, and removes it from
// its pool until it is put back.
func (f *Finder) takeEmptiest(pools []*Pool, g *cluster.Gang) (node, free int) {
	node = none
	for _, p := range pools {
		if at, n, found := f.fitting(p, g, max(free, 1), 0, true); found && (n > free || at < node) {
			node, free = at, n
		}
	}
	if node != none {
		f.off[node] = true
	}
	return node, free
}

// Fit returns the node of a pool on which the given number of devices leaves the least room; false if no node has as
// many unclaimed devices, or room for a server beside them.
func (f *Finder) Fit(p *Pool, g *cluster.Gang, devices int) (int, bool) {
	node, _, found := f.fitting(p, g, devices, g.ServersLeast(), false)
	return node, found
}

// Gather takes up to the given number of unclaimed devices from the emptiest nodes of a pool.
func (f *Finder) Gather(p *Pool, g *cluster.Gang, devices, mostNodes int) cluster.Placement {
	var got cluster.Placement
	var nodes []int
	for devices > 0 && len(nodes) < mostNodes {
		node, free := f.takeEmptiest([]*Pool{p}, g)
		if node == none {
			break
		}
		take := g.Within(f.s.Ledger.RAMLeft(node), min(free, devices))
		nodes, got.Parts = append(nodes, node), append(got.Parts, cluster.Part{Node: node, Count: take})
		devices -= take
	}
	f.putBack(nodes)
	return got
}
