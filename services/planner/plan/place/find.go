// Package place puts gangs on nodes and names their devices: packing, spreading over nodes, and migration away from
// slow devices and bad links. How many devices a gang gets is the policy's.
package place

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// nowhere is no node.
const nowhere = -1

// Finder finds placements for gangs. It keeps nodes by the number of their free devices, so that a search visits few of
// them.
type Finder struct {
	s      *cluster.Snapshot
	pools  []*pool
	poolOf []int
	// had is what of each node is counted in the free devices of its pool.
	had     []int
	all     []*shelf
	refused *cluster.Refusals[request]
}

// request is what a search depends on besides the ledger.
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

// pool is the nodes that are alike for every gang: of one model and memory of device, one class and one island.
type pool struct {
	kind    kind
	nodes   []int
	perNode int
	// free counts the devices that nobody was given.
	free int
	// byFree are heaps of nodes by the number of devices that were free and unclaimed when they were put there; other
	// entries are outdated.
	byFree []cluster.Heap[int]
}

type kind struct {
	model, class, island string
	memory               int64
	silent               bool
}

// NewFinder is for one round: it watches the ledger.
func NewFinder(s *cluster.Snapshot) *Finder {
	f := &Finder{s: s, poolOf: make([]int, len(s.Nodes)), had: make([]int, len(s.Nodes)), refused: cluster.NewRefusals[request](s.Ledger)}
	byKind := map[kind]int{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		is := kind{n.Model, n.Class, n.Island, n.Memory, n.Silent}
		at, known := byKind[is]
		if !known {
			at = len(f.pools)
			byKind[is], f.pools = at, append(f.pools, &pool{kind: is})
		}
		f.poolOf[i] = at
		p := f.pools[at]
		p.nodes, p.perNode = append(p.nodes, i), max(p.perNode, len(n.Devices))
	}
	for _, p := range f.pools {
		p.byFree = make([]cluster.Heap[int], p.perNode+1)
		for k := range p.byFree {
			p.byFree[k].Less = func(x, y int) bool { return x < y }
		}
		for _, i := range p.nodes {
			f.put(i)
		}
	}
	s.Ledger.Watch(f.put)
	return f
}

// put files a node under its unclaimed devices.
func (f *Finder) put(node int) {
	p := f.pools[f.poolOf[node]]
	free := f.s.Ledger.Free(node)
	p.free, f.had[node] = p.free+free-f.had[node], free
	if n := f.unclaimed(node); n > 0 {
		p.byFree[min(n, p.perNode)].Push(node)
	}
}

func (f *Finder) unclaimed(node int) int { return f.s.Ledger.UnclaimedByAll(node) }

// first is the first node of a pool with exactly free unclaimed devices.
func (f *Finder) first(p *pool, free int) (int, bool) {
	for h := &p.byFree[free]; h.Len() > 0; h.Pop() {
		if f.unclaimed(h.Top()) == free {
			return h.Top(), true
		}
	}
	return nowhere, false
}

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
	if at := f.node(g, workers); at != nowhere {
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

// Open reports whether a gang may come to a node at all: a node that does not report takes no newcomers.
func Open(g *cluster.Gang, n *cluster.Node, node int) bool {
	return g.Suits(n) && (!n.Silent || g.Former.On(node))
}

// node is the one node where the fewest devices must be taken from gangs that claim them, then where no worker of the
// gang was slow, then its own; for a gang that can grow then the emptiest, for another the fullest.
func (f *Finder) node(g *cluster.Gang, workers int) int {
	l := f.s.Ledger
	if f.s.Total-l.Taken() < workers {
		return nowhere
	}
	if at, sure := f.quick(g, workers); sure {
		return at
	}
	best := nowhere
	var key [4]int
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		if len(n.Devices) < workers || l.Most(g, i) < workers || !Open(g, n, i) || !l.HasRoom(g, i, workers, g.ServersLeast()) {
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
		if best == nowhere || slices.Compare(k[:], key[:]) < 0 {
			best, key = i, k
		}
	}
	return best
}

// quick answers without a search if the pools say enough. sure is false otherwise.
func (f *Finder) quick(g *cluster.Gang, workers int) (node int, sure bool) {
	l := f.s.Ledger
	if !f.pooled(g) {
		return nowhere, false
	}
	room := func(node int) bool {
		return l.Most(g, node) >= workers && l.HasRoom(g, node, workers, g.ServersLeast())
	}
	if at := f.ownNode(g, workers, room); at != nowhere {
		return at, true
	}
	best, most := nowhere, 0
	for _, p := range f.pools {
		if !g.SuitsKind(p.kind.memory, p.kind.class) || p.kind.silent || p.perNode < workers {
			continue
		}
		at, free, found := f.fitting(g, p, workers)
		if better := best == nowhere || (free > most) == (g.Most > g.Least) && free != most; found && better && room(at) {
			best, most = at, free
		}
	}
	return best, best != nowhere || l.Claimed() == 0 && g.Servers == nil
}

// ownNode is a node that the gang is on already, with room for it.
func (f *Finder) ownNode(g *cluster.Gang, workers int, room func(node int) bool) int {
	for _, part := range g.Held.Parts {
		if f.s.Ledger.Unclaimed(g, part.Node) >= workers && room(part.Node) && Open(g, &f.s.Nodes[part.Node], part.Node) {
			return part.Node
		}
	}
	return nowhere
}

// pooled says whether the pools say enough for a gang: the cluster is large, nothing is reserved and nothing avoided.
func (f *Finder) pooled(g *cluster.Gang) bool {
	return len(f.s.Ledger.Reservations()) == 0 && len(g.Slow) == 0 && len(f.s.Nodes) >= fewNodes
}

// fewNodes is the number of nodes below which a search is as fast as the pools.
const fewNodes = 64

// fitting is the node of a pool with the fewest unclaimed devices that are enough, or for a gang that can grow with the
// most.
func (f *Finder) fitting(g *cluster.Gang, p *pool, workers int) (node, free int, found bool) {
	if g.Most > g.Least {
		for free = p.perNode; free >= workers; free-- {
			if at, ok := f.first(p, free); ok {
				return at, free, true
			}
		}
		return nowhere, 0, false
	}
	for free = workers; free <= p.perNode; free++ {
		if at, ok := f.first(p, free); ok {
			return at, free, true
		}
	}
	return nowhere, 0, false
}

// group is nodes over which one gang may be spread: of one model, on one island.
type group struct {
	free  int
	nodes []int
}

// over spreads a gang over the nodes of one group, the emptiest first: with servers evenly, by Optimus's theorem (Peng
// et al., EuroSys'18, section 4.2), which holds for synchronous training on the fewest nodes that have equal numbers of
// both kinds of task.
func (f *Finder) over(g *cluster.Gang, workers, servers int, room func(node int) int) (cluster.Placement, bool) {
	groups := map[string]*group{}
	var all []*group
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		free := room(i)
		if free <= 0 || !Open(g, n, i) || !f.s.Ledger.HasRoom(g, i, min(free, workers), 0) {
			continue
		}
		of := groups[n.Model+n.Island]
		if of == nil {
			of = &group{}
			groups[n.Model+n.Island], all = of, append(all, of)
		}
		of.free, of.nodes = of.free+free, append(of.nodes, i)
	}
	slices.SortStableFunc(all, func(x, y *group) int { return cmp.Compare(y.free, x.free) })
	for _, of := range all {
		if of.free < workers {
			break
		}
		slices.SortStableFunc(of.nodes, func(x, y int) int { return cmp.Compare(room(y), room(x)) })
		if p, found := f.evenly(g, of.nodes, workers, servers, room); found && f.s.Ledger.Covers(g, p) {
			return p, true
		}
		if p, found := f.greedily(g, of.nodes, workers, servers, room); found && f.s.Ledger.Covers(g, p) {
			return p, true
		}
	}
	return cluster.Placement{}, false
}

// overPools is over for what nobody claims, with the pools in place of a search.
func (f *Finder) overPools(g *cluster.Gang, workers, servers int) (cluster.Placement, bool) {
	for _, s := range f.groups() {
		var nodes []int
		sum := 0
		p, found := cluster.Placement{}, false
		for sum < workers || g.Servers != nil && !found && len(nodes) < workers {
			node, free := f.emptiest(s, func(p *pool) bool { return !p.kind.silent && g.SuitsKind(p.kind.memory, p.kind.class) })
			if node == nowhere {
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
		for _, node := range nodes { // they were taken off to find the next ones
			f.put(node)
		}
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
	best, most := nowhere, 0
	for _, p := range f.pools {
		if p.kind.model != model || p.kind.island != island || p.kind.silent || !g.SuitsKind(p.kind.memory, p.kind.class) {
			continue
		}
		for free := p.perNode; free > most; free-- {
			if node, found := f.firstFitting(p, free, func(i int) bool { return !g.Got.On(i) && fits(i) }); found {
				best, most = node, free
			}
		}
	}
	return best, best != nowhere
}

// search is Next without the pools.
func (f *Finder) search(g *cluster.Gang, model, island string, fits func(node int) bool) (int, bool) {
	best, most := nowhere, 0
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		if free := f.s.Ledger.Unclaimed(g, i); free > most && n.Model == model && n.Island == island && Open(g, n, i) && !g.Got.On(i) && fits(i) {
			best, most = i, free
		}
	}
	return best, best != nowhere
}

// firstFitting is first among the nodes that fit. It tries a few of them.
func (f *Finder) firstFitting(p *pool, free int, fits func(node int) bool) (int, bool) {
	const tries = 8
	var off []int
	at, found := nowhere, false
	for range tries {
		if at, found = f.first(p, free); !found || fits(at) {
			break
		}
		off = append(off, at)
		for h := &p.byFree[free]; h.Len() > 0 && h.Top() == at; {
			h.Pop()
		}
		found = false
	}
	for _, i := range off {
		p.byFree[free].Push(i)
	}
	return at, found
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

// AddServers puts as many parameter servers as have room beside the workers of a placement, evenly.
func AddServers(s *cluster.Snapshot, g *cluster.Gang, p *cluster.Placement, servers int) {
	for added := true; servers > 0 && added; {
		added = false
		for i := range p.Parts {
			part := &p.Parts[i]
			if servers > 0 && s.Ledger.HasRoom(g, part.Node, part.Count, part.Servers+1) {
				part.Servers, servers, added = part.Servers+1, servers-1, true
			}
		}
	}
}
