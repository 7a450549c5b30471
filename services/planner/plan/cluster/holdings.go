package cluster

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// FindHoldings settles what each gang holds. An attempt that cannot be asked to leave holds what it runs on; for all
// others the last plan counts. If two gangs hold a device and cannot share it, the one that cannot leave keeps it, else
// the one that is first in the queue.
func (s *Snapshot) FindHoldings() {
	h := holdings{s: s, owner: make([][]*Gang, len(s.Nodes)), at: make(map[*Gang]Placement, len(s.Gangs))}
	var sharers []*Gang
	for _, g := range s.Gangs {
		p, ok := s.find(g)
		if !ok {
			continue
		}
		if h.at[g] = p; g.Shares() {
			sharers = append(sharers, g)
		}
	}
	for _, g := range s.Gangs {
		if g.Silent && !slices.Contains(sharers, g) {
			h.own(g)
		}
	}
	h.share(sharers)
	for _, g := range s.Gangs {
		if _, holds := h.at[g]; holds && !g.Silent && g.Former.Empty() && !slices.Contains(sharers, g) {
			h.own(g)
		}
	}
}

// find locates what a gang holds.
func (s *Snapshot) find(g *Gang) (Placement, bool) {
	p, ok := s.holds(g, g.holding())
	if !ok && g.Silent { // what it runs on is gone: the plan counts
		g.Silent = false
		p, ok = s.holds(g, g.holding())
	}
	if !ok && g.mayGoOn() {
		return s.holds(g, &g.Running.Holding)
	}
	return p, ok
}

// holds locates a holding that no exclusion keeps from a gang.
func (s *Snapshot) holds(g *Gang, h *state.Holding) (Placement, bool) {
	p, ok := s.Locate(h)
	if ok && g.Running == nil && slices.ContainsFunc(h.Places(), func(part train.Part) bool { return !g.StartsOn(part.Node) }) {
		return p, false
	}
	if !ok || len(s.State.Exclusions) == 0 {
		return p, ok
	}
	return p, !slices.ContainsFunc(h.Places(), func(part train.Part) bool {
		return slices.ContainsFunc(part.Devices, func(d train.DeviceID) bool { return s.mustLeave(g, part.Node, d) })
	})
}

// mustLeave says whether an exclusion keeps a gang off a device: the gang does not run there, or is to leave and can be
// asked to.
func (s *Snapshot) mustLeave(g *Gang, node train.NodeID, d train.DeviceID) bool {
	for i := range s.State.Exclusions {
		e := &s.State.Exclusions[i]
		if e.Node != node || !e.Concerns(g.ID) || !e.Covers(d) {
			continue
		}
		if !runsOn(g.Running, node, d) || e.Leave && !g.Running.Unasked() && (e.Now || !g.Unsaved) {
			return true
		}
	}
	return false
}

// mayGoOn says whether a gang that cannot have what the last plan gave it may go on as it runs.
func (g *Gang) mayGoOn() bool {
	return g.Planned != nil && g.Running != nil && !g.Running.StopPending
}

// runsOn says whether an attempt has a device.
func runsOn(r *state.Running, node train.NodeID, d train.DeviceID) bool {
	return r != nil && slices.ContainsFunc(r.Places(), func(p train.Part) bool { return p.Node == node && slices.Contains(p.Devices, d) })
}

// holding returns what a gang is assumed to hold.
func (g *Gang) holding() *state.Holding {
	switch {
	case g.Silent:
		return &g.Running.Holding
	case g.Planned != nil && g.Wanted > 0 && g.Planned.Size() > g.Most:
		return lesser(g.Planned, g.Most, g.Running)
	}
	return g.Planned
}

// lesser is a part of a holding with the given number of devices, first those that the attempt runs on.
func lesser(h *state.Holding, devices int, runs *state.Running) *state.Holding {
	kept := slices.Clone(h.Places())
	for i := range kept {
		kept[i].Devices = nil
	}
	for _, first := range []bool{true, false} {
		for i, p := range h.Places() {
			for _, d := range p.Devices {
				if devices > 0 && runsOn(runs, p.Node, d) == first {
					kept[i].Devices, devices = append(kept[i].Devices, d), devices-1
				}
			}
		}
	}
	kept = slices.DeleteFunc(kept, func(p train.Part) bool { return len(p.Devices) == 0 })
	less := *h
	if less.Parts = kept; len(kept) == 1 {
		less.Node, less.Devices, less.Parts = kept[0].Node, kept[0].Devices, nil
	}
	return &less
}

type holdings struct {
	s     *Snapshot
	owner [][]*Gang
	at    map[*Gang]Placement
}

func (h *holdings) ownerOf(d Spot) *Gang {
	if h.owner[d.Node] == nil {
		return nil
	}
	return h.owner[d.Node][d.Device]
}

func (h *holdings) setOwner(d Spot, g *Gang) {
	if h.owner[d.Node] == nil {
		h.owner[d.Node] = make([]*Gang, len(h.s.Nodes[d.Node].Devices))
	}
	h.owner[d.Node][d.Device] = g
}

// own enters a holding of devices that no other gang holds. A gang that needs another size than it holds is served
// again, and keeps what it can.
func (h *holdings) own(g *Gang) bool {
	p, holds := h.at[g]
	n := p.Size()
	servers := p.Servers() >= g.ServersLeast() && p.Servers() <= g.ServersMost()
	fits := n >= g.Least && (g.Silent || n <= g.Most && servers)
	if !holds || !fits && g.Silent {
		return false
	}
	for _, part := range p.Parts {
		for _, d := range part.Devices {
			if h.ownerOf(Spot{part.Node, d}) != nil {
				return false
			}
		}
	}
	for _, part := range p.Parts {
		for _, d := range part.Devices {
			h.setOwner(Spot{part.Node, d}, g)
		}
	}
	if g.Former = p; fits {
		g.Held = p
	}
	return true
}

// share settles which job came first to each device that is shared, and who is a guest there. A guest has all its
// devices beside one gang, and of two that meet one has all devices of the other: so one of them is left to come first
// when another has gone.
func (h *holdings) share(sharers []*Gang) {
	order := slices.Clone(sharers)
	slices.SortStableFunc(order, func(x, y *Gang) int {
		return cmp.Or(last(x.CameAsGuest(), y.CameAsGuest()), cmp.Compare(h.at[y].Size(), h.at[x].Size()), last(!x.Silent, !y.Silent))
	})
	var guests []*Gang
	for _, g := range order {
		if h.own(g) {
			g.setPart(h.s.PartOf(g, g.Former.Spots()))
		} else {
			guests = append(guests, g)
		}
	}
	slices.SortStableFunc(guests, func(x, y *Gang) int { return cmp.Or(last(!x.Silent, !y.Silent), InQueue(x, y)) })
	for _, g := range guests {
		if h.join(g) || !g.Silent {
			continue
		}
		for _, d := range h.at[g].Spots() { // it cannot leave: the others do
			if o := h.ownerOf(d); o != nil && !o.Silent {
				h.disown(o)
			}
		}
		if h.own(g) {
			g.setPart(h.s.PartOf(g, g.Former.Spots()))
		}
	}
}

func (g *Gang) setPart(part unit.Bytes) {
	g.Former.Memory = part
	if !g.Held.Empty() {
		g.Held.Memory = part
	}
}

// disown takes its holding from a gang, and from its guests.
func (h *holdings) disown(g *Gang) {
	for _, d := range g.Former.Spots() {
		h.setOwner(d, nil)
	}
	g.Former, g.Held = Placement{}, Placement{}
	for _, guest := range g.Guests {
		guest.Primary, guest.Former, guest.Held = nil, Placement{}, Placement{}
	}
	g.Guests = nil
}

// join makes a gang the guest of one whose devices it shares, if their memory is enough.
func (h *holdings) join(g *Gang) bool {
	p := h.at[g]
	at := p.Spots()
	primary := h.ownerOf(at[0])
	if primary == nil || primary.Held.Empty() || len(at) < g.Least || len(at) > g.Most && !g.Silent || !h.s.MayJoin(g, primary, at) {
		return false
	}
	p.Memory = h.s.GuestPart(g, at)
	g.Former, g.Held = p, p
	primary.AddGuest(g)
	return true
}

// MayJoin reports whether a gang may have devices beside their primary and its guests: their tenants allow it, each
// device has the memory, and if two gangs meet, one has all devices of the other.
func (s *Snapshot) MayJoin(g, primary *Gang, at []Spot) bool {
	part := s.GuestPart(g, at)
	if part == 0 || !primary.Shares() || primary.Held.Memory == 0 || !primary.SharesWith(g) || !Within(at, primary.Held.Spots()) {
		return false
	}
	for _, o := range primary.Guests {
		if on := o.Held.Spots(); o != g && Meet(on, at) && (!o.SharesWith(g) || !Within(on, at) && !Within(at, on)) {
			return false
		}
	}
	return !slices.ContainsFunc(at, func(d Spot) bool { return part > s.leftBeside(g, primary, d) })
}

// leftBeside is the memory of a device that its primary and the other guests leave to a gang.
func (s *Snapshot) leftBeside(g, primary *Gang, d Spot) unit.Bytes {
	left := s.Device(d).Memory - primary.Held.Memory
	for _, o := range primary.Guests {
		if o != g && slices.Contains(o.Held.Spots(), d) {
			left -= o.Held.Memory
		}
	}
	return left
}

// AddGuest makes another gang a guest of this one.
func (g *Gang) AddGuest(guest *Gang) {
	guest.Primary = g
	g.Guests = append(g.Guests, guest)
}

// LeavePrimary ends that a gang is a guest.
func (g *Gang) LeavePrimary() {
	if g.Primary != nil {
		g.Primary.Guests = slices.DeleteFunc(g.Primary.Guests, func(o *Gang) bool { return o == g })
		g.Primary = nil
	}
}

// CameAsGuest says whether the gang came to its device as to another's.
func (g *Gang) CameAsGuest() bool { return g.Planned != nil && g.Planned.Beside != "" }

// last orders what is true behind the rest.
func last(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}
