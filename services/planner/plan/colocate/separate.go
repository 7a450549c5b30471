package colocate

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/share"
)

// Separate changes what gangs hold if they must not go on where they are: those that use more memory than their part
// and find no more of it there, and those that were measured beside each other and do less together than one of them
// alone.
func (c *Sharing) Separate() {
	c.outgrown()
	if !c.s.NoNews {
		c.part()
	}
}

// outgrown settles what becomes of gangs that use more than their part. The others on the device keep theirs; the gang
// gets more of the same device if that is left, which takes a restart, and else looks for a placement like a waiting
// gang. A gang that cannot be asked to leave stays. Until an attempt has left, no gang gets the memory that it uses.
func (c *Sharing) outgrown() {
	kept := map[cluster.Spot]unit.Bytes{}
	add := func(sum map[cluster.Spot]unit.Bytes, at []cluster.Spot, more unit.Bytes) {
		for _, d := range at {
			sum[d] += more
		}
	}
	var outgrown []*cluster.Gang
	for _, g := range c.s.Gangs {
		if !g.Shares() {
			continue
		}
		c.overuses(g)
		if !g.Overused.Empty() {
			outgrown = append(outgrown, g)
		} else if !g.Held.Empty() {
			add(kept, g.Held.Spots(), g.Held.Memory)
		}
	}
	for _, g := range outgrown {
		at := g.Overused.Spots()
		part := c.s.PartFor(g.DeviceMemory(), at)
		lacks := func(d cluster.Spot) bool { return kept[d] > 0 && (part == 0 || part > c.s.Device(d).Memory-kept[d]) }
		switch {
		case g.Stuck():
			add(c.owed, at, g.DeviceMemory()-g.Running.Memory)
		case !slices.Equal(g.Held.Spots(), at): // it was sent away before
			add(c.owed, at, g.DeviceMemory())
		case !slices.ContainsFunc(at, lacks):
			add(kept, at, part)
			g.Held.Memory, g.MayMove, g.Stay = part, false, cluster.StayApplying
		default:
			add(c.owed, at, g.DeviceMemory())
			c.leave(g)
		}
	}
}

// overuses finds out where a gang uses more than its part.
func (c *Sharing) overuses(g *cluster.Gang) {
	if r := g.Running; r != nil && g.Outgrown && r.Memory > 0 && r.Memory < g.Spec.SharedMemory() {
		g.Overused, _ = c.s.Locate(&r.Holding)
	}
}

// leave takes from a gang what it holds.
func (c *Sharing) leave(g *cluster.Gang) {
	g.Held, g.Former = cluster.Placement{}, cluster.Placement{}
	c.Split(g)
}

// Split parts a gang from those that it shares devices with. They go on where they are.
func (c *Sharing) Split(g *cluster.Gang) {
	g.LeavePrimary()
	guests := g.Guests
	g.Guests = nil
	c.regroup(guests)
}

// regroup settles who comes first among gangs that share devices after the one that came first has gone.
func (c *Sharing) regroup(gangs []*cluster.Gang) {
	sorted := slices.SortedStableFunc(slices.Values(gangs), func(x, y *cluster.Gang) int {
		return cmp.Or(cmp.Compare(c.at(y).Size(), c.at(x).Size()), compareTrue(x.Silent, y.Silent), cluster.InQueue(x, y))
	})
	var primaries []*cluster.Gang
	for _, g := range sorted {
		g.Primary, g.Guests = nil, nil
		i := slices.IndexFunc(primaries, func(p *cluster.Gang) bool { return cluster.Meet(c.at(p).Spots(), c.at(g).Spots()) })
		if i >= 0 {
			primaries[i].AddGuest(g)
		} else {
			primaries = append(primaries, g)
		}
	}
}

// compareTrue puts what is true first.
func compareTrue(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// part separates gangs that do too little together: the gang of the least weight leaves, among equals the newest. Their
// interference samples keep them from being colocated again.
func (c *Sharing) part() {
	for _, g := range c.s.Gangs {
		for g.Primary == nil && len(g.Guests) > 0 {
			gangs := append([]*cluster.Gang{g}, g.Guests...)
			one := c.leaver(gangs)
			if one == nil {
				break
			}
			one.Parted = one.Held
			c.Look()
			one.Notes.Separated = c.disturbance(one, one.Parted.Spots(), gangs, true)
			c.leave(one)
		}
	}
}

// leaver is the gang that leaves, among gangs that share devices; nil if they stay together, or none can be asked. On
// several devices it is on one where a gang is slowed too much, or else where the largest gang is slowest; if no gang
// there can be asked, it is one of the others.
func (c *Sharing) leaver(gangs []*cluster.Gang) *cluster.Gang {
	sorted := slices.SortedStableFunc(slices.Values(gangs), func(x, y *cluster.Gang) int {
		return cmp.Or(cmp.Compare(y.Held.Size(), x.Held.Size()), cluster.InQueue(x, y))
	})
	tenants := make([]share.Tenant, len(sorted))
	for i, g := range sorted {
		tenants[i] = c.tenant(g, g.Held.Spots())
	}
	at := sorted[0].Held.Spots()[0]
	known := c.known(at)
	if !share.Parted(known, tenants) {
		return nil
	}
	for _, device := range share.Brakes(known, tenants) {
		var best *cluster.Gang
		weight := 0.0
		for i, g := range sorted {
			if !slices.Contains(tenants[i].On, device) || !c.canMove(g) {
				continue
			}
			if w := tenants[i].Weight; best == nil || w < weight || w == weight && (g.CameAsGuest() || !best.CameAsGuest()) {
				best, weight = g, w
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}
