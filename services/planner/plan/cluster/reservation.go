package cluster

import (
	"math"
	"slices"
)

// Reservation is devices of one node that only one gang, and those ahead of it in the queue, may take.
type Reservation struct {
	For         *Gang
	Node, Count int
}

// reservations are in the order of the queue.
type reservations struct {
	all []Reservation
	// on are their places by node.
	on    [][]int
	nodes []int
	sums  reservedSums
}

// reservedSums add up the reservations of gangs that still wait, at one version of the ledger.
type reservedSums struct {
	version int
	// counts are the devices that each reservation keeps.
	counts []int
	// ranks are of the gangs. watts has the sum of the first ones, from none to all.
	ranks []int
	watts []float64
	of    map[string]*tenantSums
}

// tenantSums are the devices that the first gangs of one tenant keep, by rank.
type tenantSums struct{ ranks, devices []int }

// FreeFor is Free less what is reserved for gangs ahead of this one, as far as the node has the main memory for it.
// What a gang holds itself is reserved for nobody: if a gang ahead of both takes a device that was reserved, the
// reservation does not pass to that.
func (l *Ledger) FreeFor(g *Gang, node int) int {
	return l.within(g, node, l.RAMLeft(node), l.freeFor(g, node))
}

func (l *Ledger) freeFor(g *Gang, node int) int {
	if !g.StartsOn(l.s.Nodes[node].ID) {
		return 0
	}
	free := l.Free(node)
	if l.reservations.on == nil || len(l.reservations.on[node]) == 0 {
		return free
	}
	left := free
	for _, at := range l.reservations.on[node] {
		if r := &l.reservations.all[at]; r.keeps(g) {
			left -= l.KeptBy(at)
		}
	}
	return max(left, min(free, l.s.openOn(g.own(), node)-l.s.openOn(g.Got, node)))
}

// own is what no reservation is made of: what a gang may keep, or if it must have another size, what it had.
func (g *Gang) own() Placement {
	if g.Held.Empty() {
		return g.Former
	}
	return g.Held
}

// keeps says whether a reservation keeps its devices from a gang.
func (r *Reservation) keeps(g *Gang) bool {
	return r.For.Rank < g.Rank && r.For.Got.Empty()
}

// Reserved is what reservations for others take off the quota of a gang's tenant, in devices, and off the power budget,
// in watts. A device that a gang ahead of both has got is not kept any more.
func (l *Ledger) Reserved(g *Gang) (devices int, watts float64) {
	ahead := l.ReservedAhead(g)
	if ahead == 0 {
		return 0, 0
	}
	sums := &l.reservations.sums
	if of := sums.of[g.Spec.Tenant]; of != nil {
		if i, _ := slices.BinarySearch(of.ranks, g.Rank); i > 0 {
			devices = of.devices[i-1]
		}
	}
	return devices, sums.watts[ahead]
}

// ReservedAhead is how many reservations keep devices from a gang: they are in queue order, so it tells which ones.
func (l *Ledger) ReservedAhead(g *Gang) int {
	if len(l.reservations.all) == 0 {
		return 0
	}
	ahead, _ := slices.BinarySearch(l.reserved().ranks, g.Rank)
	return ahead
}

// KeptBy is how many devices a reservation keeps now: at most as many as are still free, and as the quota of its tenant
// and the power budget still allow, after what gangs ahead of it have taken.
func (l *Ledger) KeptBy(reservation int) int { return l.reserved().counts[reservation] }

// reserved adds up the reservations if anything has changed since it last did.
func (l *Ledger) reserved() *reservedSums {
	if l.reservations.sums.version != l.version {
		l.sumReserved()
	}
	return &l.reservations.sums
}

func (l *Ledger) sumReserved() {
	sums, free := reservedSums{version: l.version, watts: []float64{0}, of: map[string]*tenantSums{}}, map[int]int{}
	for _, node := range l.reservations.nodes {
		free[node] = max(l.Free(node), 0)
	}
	total := 0.0
	for i := range l.reservations.all {
		r := &l.reservations.all[i]
		n := min(r.Count, free[r.Node])
		if !r.For.Got.Empty() {
			sums.counts = append(sums.counts, n)
			continue
		}
		of := sums.of[r.For.Spec.Tenant]
		if of == nil {
			of = &tenantSums{}
			sums.of[r.For.Spec.Tenant] = of
		}
		before, each := of.sum(), l.s.Nodes[r.Node].Watts
		n = min(n, l.affordable(r.For, each, before, total))
		sums.counts, free[r.Node] = append(sums.counts, n), free[r.Node]-n
		total += float64(n) * each
		sums.ranks, sums.watts = append(sums.ranks, r.For.Rank), append(sums.watts, total)
		of.ranks, of.devices = append(of.ranks, r.For.Rank), append(of.devices, before+n)
	}
	l.reservations.sums = sums
}

// sum is how many devices all gangs of the tenant keep.
func (t *tenantSums) sum() int {
	if len(t.devices) == 0 {
		return 0
	}
	return t.devices[len(t.devices)-1]
}

// affordable is how many devices of the given power in watts the quota of a gang and the power budget leave to it
// besides the given devices and watts.
func (l *Ledger) affordable(g *Gang, each float64, devices int, watts float64) int {
	most := math.MaxInt32
	if quota, bound := l.quotas[g.Spec.Tenant]; bound {
		most = max(quota-devices, 0)
	}
	return powered(l.watts-watts, each, most)
}

// unreserved is what the quota of a gang and the power budget leave to it beside reservations for others, which are
// made of nothing that it holds itself.
func (l *Ledger) unreserved(g *Gang) (devices int, watts float64) {
	devices, watts = math.MaxInt32, l.watts
	if quota, bound := l.quotas[g.Spec.Tenant]; bound {
		devices = quota
	}
	if !l.Bound(g) {
		return devices, watts
	}
	kept, reserved := l.Reserved(g)
	if kept == 0 && reserved == 0 {
		return devices, watts
	}
	own, draws := 0, 0.0
	for _, part := range g.own().Parts {
		n := max(part.Count-g.Got.CountOn(part.Node), 0)
		own, draws = own+n, draws+float64(n)*l.s.Nodes[part.Node].Watts
	}
	return max(devices-kept, min(devices, own)), max(watts-reserved, min(watts, draws))
}

// Reserve keeps devices of a node for a gang: only it and those ahead of it in the queue may take them, and what they
// need of quota and power. Reservations are made in the order of the queue.
func (l *Ledger) Reserve(g *Gang, node, count int) {
	l.version++
	if l.reservations.on == nil {
		l.reservations.on = make([][]int, len(l.nodes))
	}
	if len(l.reservations.on[node]) == 0 {
		l.reservations.nodes = append(l.reservations.nodes, node)
	}
	l.reservations.on[node] = append(l.reservations.on[node], len(l.reservations.all))
	l.reservations.all = append(l.reservations.all, Reservation{g, node, count})
}

// Reservations are all of them.
func (l *Ledger) Reservations() []Reservation { return l.reservations.all }

// TrimReservations reduces each reservation to what it still keeps, for good: it does not grow again if a gang ahead
// gives its devices back.
func (l *Ledger) TrimReservations() {
	counts := l.reserved().counts
	for i := range l.reservations.all {
		l.reservations.all[i].Count = counts[i]
	}
	l.version++
}

// DropReservations ends all reservations.
func (l *Ledger) DropReservations() {
	l.version++
	l.reservations = reservations{}
}
