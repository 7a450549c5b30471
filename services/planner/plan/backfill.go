package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
)

// backfill serves the gangs that have got nothing, in queue order: on what is left, beside others, or in place of gangs
// of lower priority. Most policies leave nothing to do here; what is left comes from guests that were displaced, and
// from devices that were in the wrong place.
func (d *decision) backfill() {
	if d.plain {
		return
	}
	d.Ledger.TrimReservations()
	b := backfilling{decision: d, failed: map[alike]bool{}}
	for _, g := range d.Gangs {
		if g.Got.Empty() && g.Primary == nil {
			if _, never := d.spaces.Impossible(g); !never {
				b.inLine(g)
			}
		}
	}
}

// backfilling remembers which kinds of gang found nothing.
type backfilling struct {
	*decision
	failed map[alike]bool
	// head is the gang behind which others wait whose first head was served.
	head *cluster.Gang
}

// inLine serves a gang. If the head of its line was served meanwhile, it is its turn, or that of the next head.
func (b *backfilling) inLine(g *cluster.Gang) {
	next := g.Head != nil && !g.Head.Got.Empty()
	if next {
		g.Head = b.head
	}
	b.serve(g)
	if next && b.head == nil && g.Got.Empty() && !b.Ledger.Barred(g) {
		b.head = g
	}
}

func (b *backfilling) serve(g *cluster.Gang) {
	key := alikeTo(g)
	blocked := g.Head != nil || b.failed[key] && g.Held.Empty() // what it holds may be where no other may come
	if !blocked && b.start(g) || b.sharing != nil && (b.sharing.Stay(g) || b.sharing.Join(g)) || blocked {
		return
	}
	if b.preempt(g) {
		clear(b.failed) // an evicted job comes later in the queue
		return
	}
	b.failed[key] = len(g.Slow) == 0 && g.Servers == nil
}

// alike holds what decides whether a gang finds a place: gangs with equal values all find one, or all do not.
type alike struct {
	least, class, memory, priority int
	tenant                         string
	across                         bool
	starved                        bool
}

func alikeTo(g *cluster.Gang) alike {
	return alike{g.Least, g.Class, g.MemoryClass, g.Priority, g.Spec.Tenant, g.Spec.ShareAcrossTenants, g.Starved}
}

// start gives a gang what is left: what it holds, if nobody has taken that, else free devices.
func (d *decision) start(g *cluster.Gang) bool {
	if !d.Ledger.TakeHeld(g) || d.shares(g) {
		d.Ledger.Return(g)
		p, found := d.finder.Find(g, g.Least, g.ServersFor(g.Least))
		if !found || !d.Ledger.Take(g, p) {
			return false
		}
		place.Name(d.Snapshot)
	}
	if d.sharing != nil {
		d.sharing.Joined(g)
	}
	return true
}

// shares says whether another gang has a device of a gang that is no guest.
func (d *decision) shares(g *cluster.Gang) bool {
	return slices.ContainsFunc(g.Got.Spots(), func(at cluster.Spot) bool { return d.Ledger.Holders(at) > 1 })
}

// preempt evicts gangs of lower priorities so that a gang finds the least that it needs; false, and none is evicted, if
// that is not enough. It prefers the node where the fewest devices have to be freed, and evicts what is least
// important.
func (d *decision) preempt(g *cluster.Gang) bool {
	p := preemption{decision: d, gang: g, holders: map[cluster.Spot][]*cluster.Gang{}}
	quota := d.Ledger.Allowed(g, 0)
	for _, o := range d.Gangs {
		if o.Got.Empty() || !p.evictable(o) {
			continue
		}
		if p.lower = append(p.lower, o); o.Spec.Tenant == g.Spec.Tenant {
			quota += o.Got.Size()
		}
	}
	if d.NoNews || len(p.lower) == 0 || quota < g.Least {
		return false
	}
	slices.SortStableFunc(p.lower, func(x, y *cluster.Gang) int {
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(y.Rank, x.Rank))
	})
	for _, o := range d.Gangs {
		for _, at := range o.Got.Spots() {
			p.holders[at] = append(p.holders[at], o)
		}
	}
	return slices.ContainsFunc(p.nodes(), p.on)
}

// preemption makes room for a gang.
type preemption struct {
	*decision
	gang *cluster.Gang
	// lower are the gangs that may be evicted, the least important first.
	lower, victims []*cluster.Gang
	// holders are the gangs that have a device.
	holders map[cluster.Spot][]*cluster.Gang
}

// evictable says whether a gang has to make room.
func (p *preemption) evictable(o *cluster.Gang) bool {
	return o.Priority < p.gang.Priority && !o.Stuck()
}

// freeable says whether all that have an open device have to make room; false if nobody has it.
func (p *preemption) freeable(at cluster.Spot) bool {
	on := p.holders[at]
	return len(on) > 0 && !p.Nodes[at.Node].IsClosed(at.Device) && !slices.ContainsFunc(on, func(o *cluster.Gang) bool { return !p.evictable(o) })
}

// nodes are those on which the gang finds its least if devices are freed, those first where the fewest have to be.
func (p *preemption) nodes() []int {
	var nodes []int
	missing := map[int]int{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Room() < p.gang.Least || !p.gang.Suits(n) {
			continue
		}
		free, more := p.Ledger.FreeFor(p.gang, i), 0
		for at := range n.Devices {
			if p.freeable(cluster.Spot{Node: i, Device: at}) {
				more++
			}
		}
		if max(free, 0)+more >= p.gang.Least {
			nodes, missing[i] = append(nodes, i), max(p.gang.Least-max(free, 0), 0)
		}
	}
	slices.SortStableFunc(nodes, func(x, y int) int { return cmp.Compare(missing[x], missing[y]) })
	return nodes
}

// on places the gang on a node; false, and nothing is changed, if evicting is not enough for that.
func (p *preemption) on(node int) bool {
	mark := p.Ledger.Mark()
	if p.victims = nil; !p.makeRoom(node) {
		p.Ledger.Undo(mark)
		return false
	}
	place.Name(p.Snapshot)
	if p.sharing != nil {
		for _, o := range p.victims {
			p.sharing.Split(o)
		}
		p.sharing.Joined(p.gang)
		p.sharing.Look()
	}
	return true
}

// makeRoom evicts gangs from a node, and then, as far as quota, budget or cores need it, others.
func (p *preemption) makeRoom(node int) bool {
	var rest []*cluster.Gang
	for _, o := range p.lower {
		switch {
		case o.Got.Empty():
		case !o.Got.On(node) || p.Ledger.FreeFor(p.gang, node) >= p.gang.Least:
			rest = append(rest, o)
		default:
			p.free(o, node)
		}
	}
	done := p.place(node)
	for _, o := range rest {
		if !done && (p.Ledger.Rival(p.gang, o) || o.Got.On(node)) {
			p.evict(o)
			done = p.place(node)
		}
	}
	return done
}

func (p *preemption) place(node int) bool {
	return place.Give(p.Snapshot, p.gang, cluster.Placement{Parts: []cluster.Part{{Node: node, Count: p.gang.Least}}})
}

// free evicts a gang from a node, with all that share its devices there, if each of them may be evicted.
func (p *preemption) free(o *cluster.Gang, node int) {
	for _, at := range o.Got.Spots() {
		if at.Node == node && p.freeable(at) {
			for _, with := range p.holders[at] {
				p.evict(with)
			}
		}
	}
}

func (p *preemption) evict(o *cluster.Gang) {
	if !o.Got.Empty() {
		p.Ledger.Return(o)
		p.victims = append(p.victims, o)
	}
}
