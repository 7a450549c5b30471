package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
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
		clear(b.failed) // who was evicted comes later in the queue
		return
	}
	b.failed[key] = len(g.Slow) == 0 && g.Servers == nil
}

// alike is what gangs have in common that find a place, or none.
type alike struct {
	least, class, memory, priority int
	tenant                         string
	starved                        bool
}

func alikeTo(g *cluster.Gang) alike {
	return alike{g.Least, g.Class, g.MemoryClass, g.Priority, g.Spec.Tenant, g.Starved}
}

// start gives a gang what is left: what it holds, if nobody has taken that, else free devices.
func (d *decision) start(g *cluster.Gang) bool {
	if !d.Ledger.TakeHeld(g) || d.shares(g) {
		d.Ledger.Return(g)
		p, found := d.finder.Find(g, g.Least, policy.ServersFor(g, g.Least))
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
	lower, quota := 0, d.Ledger.Allowed(g, 0)
	for _, o := range d.Gangs[g.Rank:] {
		if !o.Got.Empty() && d.evictable(o, g) {
			if lower++; o.Spec.Tenant == g.Spec.Tenant {
				quota += o.Got.Size()
			}
		}
	}
	if d.NoNews || lower == 0 || quota < g.Least {
		return false
	}
	holders := map[cluster.Spot][]*cluster.Gang{}
	for _, o := range d.Gangs {
		for _, at := range o.Got.Spots() {
			holders[at] = append(holders[at], o)
		}
	}
	options := d.freeable(g, holders)
	slices.SortStableFunc(options, func(x, y freeable) int { return cmp.Compare(x.missing, y.missing) })
	return slices.ContainsFunc(options, func(o freeable) bool { return d.evict(g, o.node, holders) })
}

// freeable is a node on which a gang finds its least if the missing devices are freed.
type freeable struct{ node, missing int }

func (d *decision) freeable(g *cluster.Gang, holders map[cluster.Spot][]*cluster.Gang) []freeable {
	var options []freeable
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if len(n.Devices) < g.Least || !place.Open(g, n, i) {
			continue
		}
		free, more := max(d.Ledger.FreeFor(g, i), 0), 0
		for at := range n.Devices {
			if on := holders[cluster.Spot{Node: i, Device: at}]; len(on) > 0 && d.allEvictable(on, g) {
				more++
			}
		}
		if free+more >= g.Least {
			options = append(options, freeable{i, max(g.Least-free, 0)})
		}
	}
	return options
}

func (d *decision) allEvictable(gangs []*cluster.Gang, g *cluster.Gang) bool {
	return !slices.ContainsFunc(gangs, func(o *cluster.Gang) bool { return !d.evictable(o, g) })
}

// evictable says whether a gang has to make room for another one of a higher priority.
func (d *decision) evictable(o, g *cluster.Gang) bool {
	return o.Priority < g.Priority && !o.Silent
}

// evict frees devices of a node, and what quota or budget need, the least important gangs first. It changes nothing and
// says false if that is not enough.
func (d *decision) evict(g *cluster.Gang, node int, holders map[cluster.Spot][]*cluster.Gang) bool {
	mark := d.Ledger.Mark()
	e := eviction{decision: d, gang: g, node: node}
	if !e.run(holders) {
		d.Ledger.Undo(mark)
		return false
	}
	d.evicted(e.victims)
	place.Name(d.Snapshot)
	if d.sharing != nil {
		d.sharing.Joined(g)
		d.sharing.Look()
	}
	return true
}

// eviction frees what a gang needs on a node.
type eviction struct {
	*decision
	gang    *cluster.Gang
	node    int
	victims []*cluster.Gang
}

func (e *eviction) out(o *cluster.Gang) {
	if !o.Got.Empty() {
		e.Ledger.Return(o)
		e.victims = append(e.victims, o)
	}
}

// place tries to place the gang.
func (e *eviction) place() bool {
	p := cluster.Placement{Parts: []cluster.Part{{Node: e.node, Count: e.gang.Least}}}
	place.AddServers(e.Snapshot, e.gang, &p, policy.ServersFor(e.gang, e.gang.Least))
	return p.Servers() >= e.gang.ServersLeast() && e.Ledger.Take(e.gang, p)
}

// run evicts from the node first, then, as far as quota, budget or cores need it, others.
func (e *eviction) run(holders map[cluster.Spot][]*cluster.Gang) bool {
	below := slices.DeleteFunc(slices.Clone(e.Gangs), func(o *cluster.Gang) bool { return !e.evictable(o, e.gang) || o.Got.Empty() })
	slices.SortStableFunc(below, func(x, y *cluster.Gang) int {
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(y.Rank, x.Rank))
	})
	var rest []*cluster.Gang
	for _, o := range below {
		switch {
		case o.Got.Empty():
		case !o.Got.On(e.node) || e.Ledger.FreeFor(e.gang, e.node) >= e.gang.Least:
			rest = append(rest, o)
		default:
			e.free(o, holders)
		}
	}
	done := e.place()
	for _, o := range rest {
		if !done && (e.Ledger.Rival(e.gang, o) || o.Got.On(e.node)) {
			e.out(o)
			done = e.place()
		}
	}
	return done
}

// free evicts a gang from the node, with all that share its devices there, if each of them may be evicted.
func (e *eviction) free(o *cluster.Gang, holders map[cluster.Spot][]*cluster.Gang) {
	for _, at := range o.Got.Spots() {
		if at.Node != e.node || !e.allEvictable(holders[at], e.gang) {
			continue
		}
		for _, with := range holders[at] {
			e.out(with)
		}
	}
}

// evicted ends what the victims shared. Guests that stay on their devices without the gang that came first go on by
// themselves.
func (d *decision) evicted(victims []*cluster.Gang) {
	for _, o := range victims {
		d.Unseat(o)
		if guests := o.Guests; len(guests) > 0 {
			o.Guests = nil
			left := slices.DeleteFunc(slices.Clone(guests), func(g *cluster.Gang) bool { return g.Got.Empty() })
			for _, g := range guests {
				g.Primary = nil
			}
			d.sharing.Regroup(left)
		}
	}
}
