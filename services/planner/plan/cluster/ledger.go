package cluster

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Ledger is the one account of what a decision gives away: devices and fractions of them, cores for parameter servers,
// main memory, the quotas of tenants, the power budget, and what is reserved for jobs that have waited for too
// long. A gang gets something by Take, TakeHeld or Join only.
//
// During the policy phase gangs take numbers of devices of a node; Name enters which ones. A device that several gangs
// share counts once, and against the quota of each tenant that has a gang on it.
type Ledger struct {
	s     *Snapshot
	nodes []account
	// quotas and watts are what is left to give, granted the quotas at the beginning.
	quotas  map[string]int
	watts   float64
	granted map[string]int
	budget  float64
	given   int
	// owned says how many gangs of a tenant are on a named device. Tenants without a quota are not in it.
	owned map[owned]int
	// claims are the holdings of gangs that were not served yet.
	claims claims

	reservations reservations
	changes      []change
	// version counts changes of what is given, claimed and reserved.
	version int
	// changed is called with each node whose free devices have changed.
	changed func(node int)
}

// owned is a device with gangs of a tenant.
type owned struct {
	tenant string
	at     Spot
}

// claims counts claimed devices, in total and by tenant, and their power in watts.
type claims struct {
	devices int
	of      map[string]int
	watts   float64
}

// account is the account of one node.
type account struct {
	// room is the number of open devices. taken counts those that were given away, claimed those that gangs hold which
	// were not served yet. Closed devices go by name to the gangs on them, and count in none of these.
	room, taken, claimed int
	machine              *machine
	// holders count the gangs that have a named device, used is the memory that they have of it.
	holders []int
	used    []unit.Bytes
}

// machine is what the nodes from first to last, which are one machine, have left besides devices: cores for parameter
// servers, and main memory. Gangs that were not served yet claim a part of that.
type machine struct {
	first, last  int
	cores        int
	ram, claimed int64
}

// change records the placement of a gang before it was replaced.
type change struct {
	gang   *Gang
	before Placement
	named  bool
}

// slackWatts is less than any device draws: watts are rounded, and added up in another order each time.
const slackWatts = 1e-3

func newLedger(s *Snapshot) *Ledger {
	l := &Ledger{s: s, nodes: make([]account, len(s.Nodes)), granted: s.State.Quotas, quotas: maps.Clone(s.State.Quotas), watts: math.Inf(1)}
	l.claims.of, l.owned = map[string]int{}, map[owned]int{}
	holders, used, machines := make([]int, s.Total), make([]unit.Bytes, s.Total), make([]machine, len(s.Nodes))
	for i := range s.Nodes {
		n, at := len(s.Nodes[i].Devices), &machines[i]
		if i > 0 && s.Nodes[i].ID == s.Nodes[i-1].ID {
			at = l.nodes[i-1].machine
		} else {
			at.first = i
		}
		at.last, at.cores, at.ram = i, max(at.cores, s.Nodes[i].Cores), s.Nodes[i].RAM
		l.nodes[i] = account{room: s.Nodes[i].Room(), machine: at, holders: holders[:n:n], used: used[:n:n]}
		holders, used = holders[n:], used[n:]
	}
	if budget := s.State.PowerBudgetWatts; budget > 0 {
		var idle unit.Power // whole numbers: the order of the nodes must not matter
		for i := range s.State.Nodes {
			for k := range s.State.Nodes[i].Devices {
				idle += s.State.Nodes[i].Devices[k].IdlePower()
			}
		}
		l.watts = budget - idle.Watts()
	}
	l.budget = l.watts
	return l
}

// Free returns the number of open devices of a node that no gang was given. Parameter servers take up cores, and a CPU
// slot without a core is not free.
func (l *Ledger) Free(node int) int {
	n, a := &l.s.Nodes[node], &l.nodes[node]
	free := a.room - a.taken
	if n.Slots {
		free = max(min(free, a.machine.cores), 0)
	}
	return free
}

// Unclaimed returns FreeFor less the devices held by gangs that were not served yet.
func (l *Ledger) Unclaimed(g *Gang, node int) int {
	m := l.nodes[node].machine
	return l.within(g, node, m.ram-m.claimed, l.FreeFor(g, node)-l.nodes[node].claimed)
}

// UnclaimedByAll returns Free less the devices held by gangs that were not served yet.
func (l *Ledger) UnclaimedByAll(node int) int { return l.Free(node) - l.nodes[node].claimed }

// Taken returns the number of devices given away.
func (l *Ledger) Taken() int { return l.given }

// Claimed returns the number of devices held by gangs that were not served yet.
func (l *Ledger) Claimed() int { return l.claims.devices }

// Holders is the number of gangs that have a named device.
func (l *Ledger) Holders(d Spot) int { return l.nodes[d.Node].holders[d.Device] }

// Left returns the memory of a device that no gang was given.
func (l *Ledger) Left(d Spot) unit.Bytes {
	return l.s.Device(d).Memory - l.nodes[d.Node].used[d.Device]
}

// Bound says whether a quota or a power budget may keep a gang from devices that are free.
func (l *Ledger) Bound(g *Gang) bool {
	_, has := l.quotas[g.Spec.Tenant]
	return has || !math.IsInf(l.watts, 1)
}

// Watts returns the rest of the power budget in watts, infinite without a budget.
func (l *Ledger) Watts() float64 { return l.watts }

// Quota returns the quota of a tenant and what is left of it, or false if it has no quota.
func (l *Ledger) Quota(tenant string) (quota, left int, has bool) {
	left, has = l.quotas[tenant]
	return l.granted[tenant], left, has
}

// Quotas returns the rest of every quota.
func (l *Ledger) Quotas() map[string]int { return l.quotas }

// Allowed is how many more devices of the given power in watts each quota and power budget leave to a gang, less what
// is reserved for gangs ahead of it.
func (l *Ledger) Allowed(g *Gang, watts float64) int {
	left, power := l.unreserved(g)
	return powered(power, watts, max(left, 0))
}

// powered is how many devices, at most the given ones, so much power is enough for, both in watts.
func powered(power, each float64, most int) int {
	if each > 0 && power < float64(most)*each {
		return max(int((power+slackWatts)/each), 0)
	}
	return most
}

// Granted returns how many devices of the given power in watts each quota and power budget would leave to a gang if no
// other gang had any.
func (l *Ledger) Granted(g *Gang, watts float64) int {
	most := math.MaxInt32
	if quota, bound := l.granted[g.Spec.Tenant]; bound {
		most = max(quota, 0)
	}
	return powered(l.budget, watts, most)
}

// Most returns how many more devices of a node a gang may have.
func (l *Ledger) Most(g *Gang, node int) int {
	return max(min(l.FreeFor(g, node), l.Allowed(g, l.s.Nodes[node].Watts)), 0)
}

// Rival reports whether two gangs compete for a quota or for the power budget.
func (l *Ledger) Rival(g, other *Gang) bool {
	_, bound := l.quotas[g.Spec.Tenant]
	return bound && g.Spec.Tenant == other.Spec.Tenant || !math.IsInf(l.watts, 1)
}

// within is how many more devices of a node the main memory there is enough for. The one process of a gang on a node
// has its memory already.
func (l *Ledger) within(g *Gang, node int, ram int64, devices int) int {
	if g.RAM > 0 && !g.EachDevice && g.Got.On(node) {
		return devices
	}
	return g.Within(ram, devices)
}

// CoresLeft and RAMLeft are what a node has left: cores for parameter servers, and main memory.
func (l *Ledger) CoresLeft(node int) int { return l.nodes[node].machine.cores }

// RAMLeft is in bytes.
func (l *Ledger) RAMLeft(node int) int64 { return l.nodes[node].machine.ram }

// HasRoom reports whether a node has the cores and the memory for the given new workers and servers of a gang, besides
// the devices.
func (l *Ledger) HasRoom(g *Gang, node, workers, servers int) bool {
	return l.hasRoom(g, node, workers, workers, servers)
}

// hasRoom is HasRoom where only some of the workers have devices that nobody has yet.
func (l *Ledger) hasRoom(g *Gang, node, fresh, workers, servers int) bool {
	cores, ram := g.Needs(workers, servers)
	if l.s.Nodes[node].Slots {
		cores += fresh
	}
	m := l.nodes[node].machine
	return m.cores >= cores && (ram == 0 || m.ram >= ram)
}

// Take gives a gang a placement instead of its present one. If the placement is not available, Take changes nothing and
// returns false. Gangs may share named devices as far as their memory allows.
func (l *Ledger) Take(g *Gang, p Placement) bool {
	mark := l.Mark()
	l.Return(g)
	if !l.covers(g, p) {
		l.Undo(mark)
		return false
	}
	l.enter(g, p, named(p))
	return true
}

// TakeHeld gives a gang exactly what it holds.
func (l *Ledger) TakeHeld(g *Gang) bool {
	if g.Held.Empty() {
		return false
	}
	return l.Take(g, g.Held)
}

// Force gives a gang what it runs on, since it cannot be asked to leave, whatever quotas and budget say.
func (l *Ledger) Force(g *Gang, p Placement) {
	l.Return(g)
	l.enter(g, p, true)
}

// Covers says whether Take would give a gang a placement.
func (l *Ledger) Covers(g *Gang, p Placement) bool {
	mark := l.Mark()
	l.Return(g)
	covers := l.covers(g, p)
	l.Undo(mark)
	return covers
}

func (l *Ledger) covers(g *Gang, p Placement) bool {
	devices, watts, charged := 0, 0.0, 0
	for i := range p.Parts {
		part := &p.Parts[i]
		charged += l.charged(g, part)
		open, own, ok := l.fresh(g, part, p.Memory)
		if !ok || open > 0 && open > l.FreeFor(g, part.Node) || !l.hasRoom(g, part.Node, open+own, part.Count, part.Servers) {
			return false
		}
		devices, watts = devices+open+own, watts+float64(open+own)*l.s.Nodes[part.Node].Watts
	}
	quota, power := l.unreserved(g)
	return (charged == 0 || charged <= quota) && (devices == 0 || watts <= power+slackWatts)
}

// charged is how many devices of a part would count against the quota of a gang's tenant besides those that count
// already.
func (l *Ledger) charged(g *Gang, part *Part) int {
	_, bound := l.quotas[g.Spec.Tenant]
	if part.Devices == nil || !bound {
		return part.Count
	}
	n := 0
	for _, d := range part.Devices {
		if l.owned[owned{g.Spec.Tenant, Spot{part.Node, d}}] == 0 {
			n++
		}
	}
	return n
}

// fresh is how many devices of a part nobody has yet: open ones, and closed ones that the gang is on. It returns false
// if some are another's that cannot be shared, or closed to the gang.
func (l *Ledger) fresh(g *Gang, part *Part, memory unit.Bytes) (open, own int, ok bool) {
	if part.Devices == nil {
		return part.Count, 0, true
	}
	a, n := &l.nodes[part.Node], &l.s.Nodes[part.Node]
	for _, d := range part.Devices {
		closed := n.IsClosed(d)
		switch {
		case closed && !slices.Contains(g.Former.DevicesOn(part.Node), d):
			return 0, 0, false
		case a.holders[d] == 0 && closed:
			own++
		case a.holders[d] == 0:
			open++
		case memory == 0 || a.used[d] == 0 || memory > l.Left(Spot{part.Node, d}):
			return 0, 0, false
		}
	}
	return open, own, true
}

func named(p Placement) bool {
	return len(p.Parts) > 0 && !slices.ContainsFunc(p.Parts, func(part Part) bool { return len(part.Devices) < part.Count })
}

// Return takes back all that a gang was given.
func (l *Ledger) Return(g *Gang) {
	if !g.Got.Empty() {
		l.enter(g, Placement{}, false)
	}
}

// enter books a placement for a gang instead of its previous one.
func (l *Ledger) enter(g *Gang, p Placement, named bool) {
	l.changes = append(l.changes, change{g, g.Got, g.named})
	l.replace(g, p, named)
}

func (l *Ledger) replace(g *Gang, p Placement, named bool) {
	l.version++
	l.book(g, g.Got, g.named, -1)
	g.Got, g.named = p, named
	l.book(g, p, named, 1)
}

// book adds or, with -1, takes off a placement.
func (l *Ledger) book(g *Gang, p Placement, named bool, sign int) {
	for i := range p.Parts {
		part := &p.Parts[i]
		a, n, closed := &l.nodes[part.Node], part.Count, 0
		l.charge(g, part, named, sign)
		if named {
			n = 0
			for _, d := range part.Devices {
				if before := a.holders[d]; before == 0 && sign > 0 || before == 1 && sign < 0 {
					if n++; l.s.Nodes[part.Node].IsClosed(d) {
						closed++
					}
				}
				a.holders[d] += sign
				a.used[d] += unit.Bytes(sign) * p.Memory
			}
		}
		a.taken += sign * (n - closed)
		l.given += sign * n
		l.watts -= float64(sign*n) * l.s.Nodes[part.Node].Watts
		cores, ram := g.Needs(part.Count, part.Servers)
		if l.s.Nodes[part.Node].Slots {
			cores += n
		}
		a.machine.cores, a.machine.ram = a.machine.cores-sign*cores, a.machine.ram-int64(sign)*ram
		l.touch(part.Node)
	}
}

// charge counts a part against the quota of a gang's tenant: each device once, however many of its gangs have it.
func (l *Ledger) charge(g *Gang, part *Part, named bool, sign int) {
	if _, bound := l.quotas[g.Spec.Tenant]; !bound {
		return
	}
	n := part.Count
	if named {
		n = 0
		for _, d := range part.Devices {
			at := owned{g.Spec.Tenant, Spot{part.Node, d}}
			if before := l.owned[at]; before == 0 && sign > 0 || before == 1 && sign < 0 {
				n++
			}
			l.owned[at] += sign
		}
	}
	l.quotas[g.Spec.Tenant] -= sign * n
}

// Name enters which devices a gang has of what it was given by number.
func (l *Ledger) Name(g *Gang, p Placement) {
	l.enter(g, p, true)
}

// IsNamed says whether the devices of a gang are named.
func (l *Ledger) IsNamed(g *Gang) bool { return g.named }

// Claim marks the part of its holding that a gang must still find when it is served. An empty placement ends the claim.
func (l *Ledger) Claim(g *Gang, p Placement) {
	if g.claim.Empty() && p.Empty() {
		return
	}
	l.version++
	l.enterClaim(g, -1)
	g.claim = p
	l.enterClaim(g, 1)
}

func (l *Ledger) enterClaim(g *Gang, sign int) {
	for i := range g.claim.Parts {
		node, n := g.claim.Parts[i].Node, sign*g.claim.Parts[i].Count
		_, ram := g.Needs(g.claim.Parts[i].Count, g.claim.Parts[i].Servers)
		l.nodes[node].machine.claimed += int64(sign) * ram
		l.nodes[node].claimed += sign * l.s.openIn(&g.claim.Parts[i])
		l.claims.devices += n
		l.claims.of[g.Spec.Tenant] += n
		l.claims.watts += float64(n) * l.s.Nodes[node].Watts
		l.touch(node)
	}
}

// Barred says whether quotas and the power budget, less what is claimed, are too little for a gang on any node: whether
// it can be served does not depend on devices then.
func (l *Ledger) Barred(g *Gang) bool {
	if quota, bound := l.quotas[g.Spec.Tenant]; bound && quota-l.claims.of[g.Spec.Tenant] < g.Least {
		return true
	}
	return l.watts-l.claims.watts+slackWatts < float64(g.Least)*l.s.MostWatts
}

// Claim returns the placement that a gang claims.
func (g *Gang) Claim() Placement { return g.claim }

// Mark is a point to which Undo goes back.
func (l *Ledger) Mark() int { return len(l.changes) }

// Undo takes back all that was given and returned since a mark.
func (l *Ledger) Undo(mark int) {
	for i := len(l.changes) - 1; i >= mark; i-- {
		c := &l.changes[i]
		l.replace(c.gang, c.before, c.named)
	}
	l.changes = l.changes[:mark]
}

// Watch calls f with each node of which more or less is free than before.
func (l *Ledger) Watch(f func(node int)) { l.changed = f }

func (l *Ledger) touch(node int) {
	if l.changed == nil {
		return
	}
	for at, m := l.nodes[node].machine.first, l.nodes[node].machine; at <= m.last; at++ {
		l.changed(at)
	}
}
