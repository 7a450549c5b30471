// Package place puts gangs on nodes and names their devices: packing, spreading over nodes, and migration away from
// slow devices and bad links. How many devices a gang gets is the policy's.
package place

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// none is no node.
const none = -1

// Find looks for a placement for the given workers, and up to the given servers beside them as far as there is room: on
// one node, or if no node has them and gangs may span nodes, on the emptiest ones. It takes devices nominated for gangs
// that were not served yet only if there is nothing else.
func (f *Finder) Find(g *cluster.Gang, workers, servers int) (cluster.Placement, bool) {
	l := f.s.Ledger
	if g.Got.Empty() && (f.s.Total-l.Taken() < workers || l.Allowed(g, f.s.LeastWatts) < workers) {
		return cluster.Placement{}, false
	}
	asked := requestOf(g, workers, servers)
	if f.refused.Has(g, asked) {
		return cluster.Placement{}, false
	}
	p, found := f.find(g, workers, servers)
	if !found {
		f.refused.Add(g, asked)
	}
	return p, found
}

func (f *Finder) find(g *cluster.Gang, workers, servers int) (cluster.Placement, bool) {
	if at := f.node(g, workers); at != none {
		return f.on(g, at, workers, servers), true
	}
	if !f.s.Spans || workers < 2 && servers < 2 {
		return cluster.Placement{}, false
	}
	if f.pooled(g) {
		if p, found := f.overPools(g, workers, servers); found || f.s.Ledger.Claimed() == 0 && g.Servers == nil {
			return p, found
		}
	}
	for _, room := range []func(int) int{
		func(i int) int { return f.s.Ledger.Unclaimed(g, i) },
		func(i int) int { return f.s.Ledger.FreeFor(g, i) },
	} {
		if p, found := f.over(g, workers, servers, room); found {
			return p, true
		}
	}
	return cluster.Placement{}, false
}

// on is a placement on one node, with as many servers as it has room for.
func (f *Finder) on(g *cluster.Gang, node, workers, servers int) cluster.Placement {
	for servers > 0 && !f.s.Ledger.HasRoom(g, node, workers, servers) {
		servers--
	}
	return cluster.Placement{Parts: []cluster.Part{{Node: node, Count: workers, Servers: servers}}}
}

// node is the one node where the fewest devices must be taken from gangs that claim them, then where no worker of the
// gang was slow, then its own; for a gang that can grow then the emptiest, for another the fullest.
func (f *Finder) node(g *cluster.Gang, workers int) int {
	l := f.s.Ledger
	if f.s.Total-l.Taken() < workers {
		return none
	}
	if at, sure := f.quick(g, workers); sure {
		return at
	}
	best := none
	var key [4]int
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		if len(n.Devices) < workers || l.Most(g, i) < workers || !g.Suits(n) || !l.HasRoom(g, i, workers, g.ServersLeast()) {
			continue
		}
		room := l.Free(i)
		if g.Most > g.Least {
			room = -l.Unclaimed(g, i)
		}
		slow, away := 0, 1
		if g.Held.On(i) {
			away = 0
		}
		if g.Avoids(n) {
			slow = 1
		}
		k := [4]int{max(workers-l.Unclaimed(g, i), 0), slow, away, room}
		if best == none || slices.Compare(k[:], key[:]) < 0 {
			best, key = i, k
		}
	}
	return best
}

// quick answers without a search if the pools say enough. sure is false otherwise.
func (f *Finder) quick(g *cluster.Gang, workers int) (node int, sure bool) {
	l := f.s.Ledger
	if !f.pooled(g) {
		return none, false
	}
	room := func(node int) bool {
		return l.Most(g, node) >= workers && l.HasRoom(g, node, workers, g.ServersLeast())
	}
	if at := f.ownNode(g, workers, room); at != none {
		return at, true
	}
	best, most := none, 0
	for _, p := range f.Pools {
		if !p.accepts(g) {
			continue
		}
		at, free, found := f.fitting(p, g, workers, g.ServersLeast(), g.Most > g.Least)
		if better := best == none || (free > most) == (g.Most > g.Least) && free != most; found && better && room(at) {
			best, most = at, free
		}
	}
	return best, best != none || l.Claimed() == 0 && g.Servers == nil
}

// ownNode is a node that the gang is on already, with room for it.
func (f *Finder) ownNode(g *cluster.Gang, workers int, room func(node int) bool) int {
	for _, part := range g.Held.Parts {
		if f.s.Ledger.Unclaimed(g, part.Node) >= workers && room(part.Node) && g.Suits(&f.s.Nodes[part.Node]) {
			return part.Node
		}
	}
	return none
}

// pooled says whether the pools say enough for a gang: the cluster is large, nothing is reserved, it may start anywhere
// and avoids nothing, and asks for no main memory.
func (f *Finder) pooled(g *cluster.Gang) bool {
	return len(f.s.Ledger.Reservations()) == 0 && len(g.OnlyNodes) == 0 && len(g.Slow) == 0 && g.RAM == 0 && len(f.s.Nodes) >= fewNodes
}

// fewNodes is the number of nodes below which a search is as fast as the pools.
const fewNodes = 64

// over spreads a gang over the nodes of one group, the emptiest first: with servers evenly, by Optimus's theorem (Peng
// et al., EuroSys'18, section 4.2), which holds for synchronous training on the fewest nodes that have equal numbers of
// both kinds of task.
func (f *Finder) over(g *cluster.Gang, workers, servers int, room func(node int) int) (cluster.Placement, bool) {
	type space struct {
		free  int
		nodes []int
	}
	var spaces []space
	for _, of := range f.groups {
		here := space{}
		for _, i := range of.nodes {
			free := room(i)
			if free > 0 && g.Suits(&f.s.Nodes[i]) && f.s.Ledger.HasRoom(g, i, min(free, workers), 0) {
				here.free, here.nodes = here.free+free, append(here.nodes, i)
			}
		}
		if here.free >= workers {
			spaces = append(spaces, here)
		}
	}
	slices.SortFunc(spaces, func(x, y space) int { return cmp.Or(cmp.Compare(y.free, x.free), cmp.Compare(x.nodes[0], y.nodes[0])) })
	for _, of := range spaces {
		slices.SortStableFunc(of.nodes, func(x, y int) int { return cmp.Compare(room(y), room(x)) })
		for _, spread := range []spreading{f.evenly, f.greedily} {
			if p, found := spread(g, of.nodes, workers, servers, room); found && f.s.Ledger.Covers(g, p) {
				return p, true
			}
		}
	}
	return cluster.Placement{}, false
}

// spreading puts a gang on some of the given nodes.
type spreading func(g *cluster.Gang, nodes []int, workers, servers int, room func(node int) int) (cluster.Placement, bool)

// overPools is over for devices that no gang claims, with the pools in place of a search.
func (f *Finder) overPools(g *cluster.Gang, workers, servers int) (cluster.Placement, bool) {
	unfit := func(p *Pool) bool { return !p.accepts(g) }
	for _, of := range f.groups {
		pools := slices.DeleteFunc(slices.Clone(of.pools), unfit)
		var nodes []int
		sum := 0
		p, found := cluster.Placement{}, false
		for sum < workers || g.Servers != nil && !found && len(nodes) < workers {
			node, free := f.takeEmptiest(pools, g)
			if node == none {
				break
			}
			nodes, sum = append(nodes, node), sum+free
			if sum >= workers && g.Servers != nil {
				p, found = f.evenly(g, nodes, workers, servers, f.unclaimed)
			}
		}
		if !found && sum >= workers {
			p, found = f.greedily(g, nodes, workers, servers, f.unclaimed)
		}
		f.putBack(nodes)
		if found && f.s.Ledger.Covers(g, p) {
			return p, true
		}
	}
	return cluster.Placement{}, false
}

// Next is the node with the most unclaimed devices of one model and island that suits a gang, has none of it yet, and
// for which fits is true.
func (f *Finder) Next(g *cluster.Gang, model, island string, fits func(node int) bool) (int, bool) {
	if !f.pooled(g) {
		return f.search(g, model, island, fits)
	}
	const tries = 8 // nodes of one size
	best, most := none, 0
	for _, p := range f.Pools {
		if p.Model != model || p.Island != island || !p.accepts(g) {
			continue
		}
		for free := p.PerNode; free > most; free-- {
			if node, found := f.firstFitting(p, g, free, tries, func(i int) bool { return !g.Got.On(i) && fits(i) }); found {
				best, most = node, free
			}
		}
	}
	return best, best != none
}

// search is Next without the pools.
func (f *Finder) search(g *cluster.Gang, model, island string, fits func(node int) bool) (int, bool) {
	best, most := none, 0
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		if free := f.s.Ledger.Unclaimed(g, i); free > most && n.Model == model && n.Island == island && g.Suits(n) && !g.Got.On(i) && fits(i) {
			best, most = i, free
		}
	}
	return best, best != none
}

// firstFitting is first among the nodes that fit, of the given number of nodes.
func (f *Finder) firstFitting(p *Pool, g *cluster.Gang, free, tries int, fits func(node int) bool) (int, bool) {
	var tried []int
	defer func() { f.putBack(tried) }()
	for range tries {
		at, found := f.first(p, g, free)
		if !found || fits(at) {
			return at, found
		}
		f.off[at], tried = true, append(tried, at)
	}
	return none, false
}

// evenly puts a gang with servers on the fewest nodes that hold equal parts of it. If the numbers do not divide, the
// first nodes get one worker more, the last ones one server more, so that as few as possible have both.
func (f *Finder) evenly(g *cluster.Gang, nodes []int, workers, servers int, room func(node int) int) (cluster.Placement, bool) {
	if servers == 0 {
		return cluster.Placement{}, false
	}
	for k := 1; k <= min(len(nodes), workers); k++ {
		if workers > k*room(nodes[0]) {
			continue
		}
		p := cluster.Placement{}
		for i, n := range nodes[:k] {
			part := cluster.Part{Node: n, Count: workers / k, Servers: servers / k}
			if i < workers%k {
				part.Count++
			}
			if i >= k-servers%k {
				part.Servers++
			}
			if part.Count > room(n) || !f.s.Ledger.HasRoom(g, n, part.Count, part.Servers) {
				break
			}
			p.Parts = append(p.Parts, part)
		}
		if len(p.Parts) == k {
			return p, true
		}
	}
	return cluster.Placement{}, false
}

// greedily takes from each node what there is, and puts servers beside the workers as long as there is room.
func (f *Finder) greedily(g *cluster.Gang, nodes []int, workers, servers int, room func(node int) int) (cluster.Placement, bool) {
	p := cluster.Placement{}
	for _, n := range nodes {
		if workers == 0 {
			break
		}
		take := min(room(n), workers)
		part := cluster.Part{Node: n, Count: take}
		for part.Servers < servers && f.s.Ledger.HasRoom(g, n, take, part.Servers+1) {
			part.Servers++
		}
		workers, servers = workers-take, servers-part.Servers
		p.Parts = append(p.Parts, part)
	}
	return p, workers == 0 && p.Servers() >= g.ServersLeast()
}

// Give gives a gang its workers, and beside them, evenly, as many parameter servers as have room. It returns false, and
// gives nothing, if these are too few or the workers are not to be had.
func Give(s *cluster.Snapshot, g *cluster.Gang, p cluster.Placement) bool {
	servers := g.ServersFor(p.Size())
	for added := true; servers > 0 && added; {
		added = false
		for i := range p.Parts {
			part := &p.Parts[i]
			if servers > 0 && s.Ledger.HasRoom(g, part.Node, part.Count, part.Servers+1) {
				part.Servers, servers, added = part.Servers+1, servers-1, true
			}
		}
	}
	return p.Servers() >= g.ServersLeast() && s.Ledger.Take(g, p)
}
