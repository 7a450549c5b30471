package place

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Migrate sends gangs away from slow devices and from links that lose or delay packets, if that is worth the restart:
// it changes what they hold before the policy sees them. A gang that migrates is not changed again in this decision.
// split parts a gang from its co-runners.
func Migrate(s *cluster.Snapshot, split func(*cluster.Gang)) {
	if s.NoNews {
		return
	}
	m := migration{s: s, split: split}
	if len(s.Links) == 0 && !slices.ContainsFunc(s.Gangs, func(g *cluster.Gang) bool { return len(g.Slow) > 0 }) {
		return
	}
	m.mark()
	for _, g := range s.Gangs {
		if len(g.Slow) > 0 && g.MayMove && m.alone(g) && g.Servers == nil {
			m.leaveSlow(g)
		}
	}
	for _, g := range s.Gangs {
		if idle := g.Running == nil; (g.MayMove || idle) && !g.Pinned && !g.Held.Empty() {
			m.leaveLinks(g, idle)
		}
	}
}

type migration struct {
	s *cluster.Snapshot
	// taken are the devices that any gang holds, by node.
	taken [][]bool
	split func(*cluster.Gang)
}

// alone says whether a gang holds devices without co-runners.
func (m *migration) alone(g *cluster.Gang) bool {
	return !g.Held.Empty() && g.Primary == nil && len(g.Guests) == 0
}

// own is the placement of which a gang that migrates may keep devices. One with co-runners leaves all of them.
func (m *migration) own(g *cluster.Gang) cluster.Placement {
	if m.alone(g) {
		return g.Held
	}
	return cluster.Placement{}
}

func (m *migration) mark() {
	m.taken = make([][]bool, len(m.s.Nodes))
	for i := range m.taken {
		m.taken[i] = make([]bool, len(m.s.Nodes[i].Devices))
		copy(m.taken[i], m.s.Nodes[i].Closed)
	}
	for _, g := range m.s.Gangs {
		m.set(g.Former, true)
		m.set(g.Held, true)
	}
}

func (m *migration) set(p cluster.Placement, held bool) {
	for _, part := range p.Parts {
		for _, d := range part.Devices {
			m.taken[part.Node][d] = held || m.s.Nodes[part.Node].IsClosed(d)
		}
	}
}

// leaveSlow replaces a slow device by a free one of its node. Without a free one the gang's whole part of the node goes
// to another node with room for it, so that the gang keeps its shape.
func (m *migration) leaveSlow(g *cluster.Gang) {
	for i, part := range g.Held.Parts {
		report := slices.IndexFunc(g.Slow, func(slow train.Straggler) bool { return slowAt(m.s, part, slow) >= 0 })
		if report < 0 || !worthReplacing(m.s, g, g.Slow[report], g.Held.Size()) {
			continue
		}
		slow, to, with := g.Slow[report], g.Held.Copy(), ""
		if free, found := spare(m.s, g, part.Node, m.taken[part.Node]); found {
			to.Parts[i].Devices[slowAt(m.s, part, slow)] = free
			slices.Sort(to.Parts[i].Devices)
			with = string(m.s.Nodes[part.Node].Devices[free].ID)
		} else if node := m.otherNode(g, part); node != none {
			to.Parts[i] = cluster.Part{Node: node, Count: part.Count}
			complete(m.s, &to.Parts[i], m.taken[node])
			with = fmt.Sprintf("%s of node %s", cluster.Devices(part.Count), m.s.Nodes[node].ID)
		} else {
			continue
		}
		m.send(g, to)
		g.Notes.Replaced = append(g.Notes.Replaced, cluster.Replacement{Slow: slow, With: with})
		return
	}
}

// otherNode returns a node with enough equal devices that no gang holds: preferably one that no attempt has to leave
// first, then the fullest.
func (m *migration) otherNode(g *cluster.Gang, part cluster.Part) int {
	rest := cluster.Placement{Parts: slices.DeleteFunc(slices.Clone(g.Held.Parts), func(p cluster.Part) bool { return p.Node == part.Node })}
	if !m.s.Spans && !rest.Empty() { // the other kinds of device of one machine
		return none
	}
	bad := m.s.BadLinks()
	best, from := none, &m.s.Nodes[part.Node]
	var key [2]int
	for i := range m.s.Nodes {
		n := &m.s.Nodes[i]
		together := rest.Empty() || n.Realm == from.Realm
		if !together || !stands(g, n, from) || g.Held.On(i) || cluster.CutOff(rest, i, bad) || !m.s.Ledger.HasRoom(g, i, part.Count, 0) {
			continue
		}
		free, idle := m.open(i)
		if k := [2]int{max(part.Count-idle, 0), free}; free >= part.Count && (best == none || slices.Compare(k[:], key[:]) < 0) {
			best, key = i, k
		}
	}
	return best
}

// stands says whether a gang may have a node in place of another one of the same kind.
func stands(g *cluster.Gang, n, in *cluster.Node) bool {
	return n.Model == in.Model && n.Watts <= in.Watts && g.Suits(n) && !g.Avoids(n)
}

// open counts the devices of a node that no gang holds, and among them the idle ones, on which no attempt runs.
func (m *migration) open(node int) (free, idle int) {
	for d, held := range m.taken[node] {
		if !held {
			if free++; !m.s.Busy(node, d) {
				idle++
			}
		}
	}
	return free, idle
}

// send makes a placement what a gang holds. Its co-runners stay where they are.
func (m *migration) send(g *cluster.Gang, to cluster.Placement) {
	m.set(m.own(g), false)
	m.set(to, true)
	if !m.alone(g) {
		m.split(g)
	}
	g.Held, g.MayMove, g.Stay = to, false, cluster.StayApplying
}

// leaveLinks moves a gang as a whole to nodes of one island with room for it, off the links that it feels. One without
// a live attempt has nothing to lose.
func (m *migration) leaveLinks(g *cluster.Gang, idle bool) {
	felt := m.s.Felt(g.Held)
	if len(felt) == 0 {
		return
	}
	to, found := m.target(g, felt)
	if !found || !m.seat(g, to) {
		return
	}
	left := g.Remaining(g.Held.Size())
	saved, price := left*(1-1/m.s.Slowdown(felt))+m.s.LinkWait(g, g.Held)-m.s.LinkWait(g, to), 0.0
	if !idle {
		saved, price = g.Changeable()*saved, Price(m.s, g, left)
	}
	if saved <= price {
		return
	}
	own := m.own(g)
	m.set(own, false)
	for i := range to.Parts {
		had := own.DevicesOn(to.Parts[i].Node)
		to.Parts[i].Devices = slices.Clone(had[:min(len(had), to.Parts[i].Count)])
	}
	m.set(to, true)
	for i := range to.Parts {
		complete(m.s, &to.Parts[i], m.taken[to.Parts[i].Node])
	}
	m.send(g, to)
	g.Notes.Links = felt
}

// seat gives the parts of a target the parameter servers of a gang, evenly. It returns false if that is more than there
// is room for while the other gangs keep what they hold.
func (m *migration) seat(g *cluster.Gang, to cluster.Placement) bool {
	servers := g.Held.Servers()
	if servers == 0 {
		return true
	}
	ledger := m.s.Ledger
	mark := ledger.Mark()
	defer ledger.Undo(mark)
	for _, other := range m.s.Gangs {
		if other != g && !other.Held.Empty() {
			ledger.Force(other, other.Held)
		}
	}
	for seated := true; servers > 0 && seated; {
		seated = false
		for i := range to.Parts {
			part := &to.Parts[i]
			if servers > 0 && ledger.HasRoom(g, part.Node, part.Count, part.Servers+1) {
				part.Servers, servers, seated = part.Servers+1, servers-1, true
			}
		}
	}
	return servers == 0 && ledger.Covers(g, to)
}

// target is a placement of the same size on one island that crosses none of some links, with as many as possible of the
// devices that the gang has.
func (m *migration) target(g *cluster.Gang, off []*cluster.Link) (cluster.Placement, bool) {
	rooms, has := map[string][]cluster.Part{}, m.own(g)
	for i := range m.s.Nodes {
		n := &m.s.Nodes[i]
		if n.Model != m.s.Nodes[g.Held.Parts[0].Node].Model || !g.Suits(n) || g.Avoids(n) {
			continue
		}
		free := has.CountOn(i)
		for _, held := range m.taken[i] {
			if !held {
				free++
			}
		}
		if free > 0 {
			rooms[n.Island] = append(rooms[n.Island], cluster.Part{Node: i, Count: free})
		}
	}
	best, most := cluster.Placement{}, none
	own := func(p cluster.Part) int { return has.CountOn(p.Node) }
	for _, island := range slices.Sorted(maps.Keys(rooms)) {
		room := rooms[island]
		slices.SortStableFunc(room, func(x, y cluster.Part) int { return cmp.Or(cmp.Compare(own(y), own(x)), cmp.Compare(y.Count, x.Count)) })
		to, need, kept := cluster.Placement{}, g.Held.Size(), 0
		for _, part := range room {
			if need == 0 {
				break
			}
			if cluster.CutOff(to, part.Node, off) {
				continue
			}
			part.Count = min(part.Count, need)
			need, kept = need-part.Count, kept+min(own(part), part.Count)
			to.Parts = append(to.Parts, part)
		}
		if need == 0 && kept > most {
			best, most = to, kept
		}
	}
	return best, most != none
}

// Steer puts gangs that start now on other nodes, alike and as idle, in place of those behind links that lose or delay
// packets: to a policy these places are equal.
func Steer(s *cluster.Snapshot) {
	if len(s.Links) == 0 || !s.Spans {
		return
	}
	idle := idleDevices(s)
	for _, g := range s.Gangs {
		if !g.Former.Empty() || len(g.Got.Parts) < 2 || s.Ledger.IsNamed(g) {
			continue
		}
		for steerPart(s, g, idle) {
		}
	}
}

// steerPart replaces the node by which a gang gains most; false if it gains by none.
func steerPart(s *cluster.Snapshot, g *cluster.Gang, idle []int) bool {
	best, least := cluster.Placement{}, s.LinkHarm(g, g.Got)
	if least <= 0 {
		return false
	}
	for i := range g.Got.Parts {
		from := g.Got.Parts[i]
		for k := range s.Nodes {
			if idle[k] < from.Count || g.Got.On(k) || !alike(&s.Nodes[k], &s.Nodes[from.Node]) || g.Avoids(&s.Nodes[k]) {
				continue
			}
			to := g.Got.Copy()
			to.Parts[i].Node = k
			if harm := s.LinkHarm(g, to); harm < least && (g.Servers == nil || s.Ledger.Covers(g, to)) {
				best, least = to, harm
			}
		}
	}
	if best.Empty() {
		return false
	}
	before := g.Got
	if !s.Ledger.Take(g, best) {
		return false
	}
	for i := range before.Parts {
		idle[before.Parts[i].Node] += before.Parts[i].Count
		idle[best.Parts[i].Node] -= best.Parts[i].Count
	}
	return true
}

// idleDevices are, by node, the devices that no attempt runs on, less those that are given to gangs which do not hold
// them.
func idleDevices(s *cluster.Snapshot) []int {
	idle := make([]int, len(s.Nodes))
	for i := range s.Nodes {
		for d := range s.Nodes[i].Devices {
			if !s.Busy(i, d) && !s.Nodes[i].IsClosed(d) {
				idle[i]++
			}
		}
	}
	for _, g := range s.Gangs {
		for _, part := range g.Got.Parts {
			idle[part.Node] -= max(part.Count-g.Former.CountOn(part.Node), 0)
		}
	}
	return idle
}

// alike says whether a gang that may have the one node may as well have the other.
func alike(n, o *cluster.Node) bool {
	return n.Model == o.Model && n.Memory == o.Memory && n.Class == o.Class && n.Island == o.Island && n.Watts <= o.Watts
}
