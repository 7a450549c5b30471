package colocate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
	"github.com/switchyard-dl/switchyard/services/planner/share"
)

// Finds reports whether a gang finds a place beside others.
func (c *Sharing) Finds(g *cluster.Gang) bool {
	return c.choose(g) != nil
}

// See looks at where gangs are, or are nominated to come, before the policy decides.
func (c *Sharing) See() {
	c.at = func(g *cluster.Gang) cluster.Placement {
		if g.Held.Empty() {
			return g.Nominated
		}
		return g.Held
	}
	c.quotas = c.unheld()
	c.Look()
}

// Nominate finds places beside others for waiting gangs if fewer devices are idle than gangs wait: while a device is
// idle no gang needs to share. The policy does not decide about nominated gangs. possible reports whether a gang could
// be placed at all.
func (c *Sharing) Nominate(possible func(*cluster.Gang) bool) {
	idle := c.left(possible)
	for _, g := range c.s.Gangs {
		if !g.Shares() || !g.Held.Empty() || g.Primary != nil || g.Silent {
			continue
		}
		_, bound := c.quotas[g.Spec.Tenant]
		if idle < g.Least || c.quota(g) < g.Least {
			if at := c.choose(g); at != nil {
				if bound {
					c.quotas[g.Spec.Tenant] -= c.charged(g, at)
				}
				g.Nominated = cluster.On(at, c.s.GuestPart(g, at))
				c.enterGuest(g, at)
				continue
			}
		}
		if possible(g) {
			if bound {
				c.quotas[g.Spec.Tenant] -= g.Least
			}
			idle = max(idle-g.Least, 0) // what is idle is for nobody behind it, also if it is too little for it alone
		}
	}
}

// enterGuest enters that a gang is, or is to come, beside others.
func (c *Sharing) enterGuest(g *cluster.Gang, at []cluster.Spot) {
	c.find(at[0]).primary.AddGuest(g)
	c.enter(g, c.at(g))
	c.Kept.Release(g)
}

// left returns the number of idle devices that the power budget allows, less the needs of waiting gangs that could run
// and do not share.
func (c *Sharing) left(possible func(*cluster.Gang) bool) (idle int) {
	held, waiting, watts := map[cluster.Spot]bool{}, 0, c.s.Ledger.Watts()
	for _, g := range c.s.Gangs {
		for _, d := range g.Former.Spots() {
			if !held[d] {
				held[d], watts = true, watts-c.s.Nodes[d.Node].Watts
			}
		}
		if g.Planned == nil && !g.Shares() && possible(g) {
			waiting += g.Least
		}
	}
	return min(c.s.Total-len(held), c.powered(watts)) - waiting
}

// unheld is what the quotas leave beside all that is held.
func (c *Sharing) unheld() map[string]int {
	quotas, held := maps.Clone(c.s.Ledger.Quotas()), map[string]map[cluster.Spot]bool{}
	for _, g := range c.s.Gangs {
		tenant := g.Spec.Tenant
		if _, bound := quotas[tenant]; !bound {
			continue
		}
		if held[tenant] == nil {
			held[tenant] = map[cluster.Spot]bool{}
		}
		for _, d := range g.Former.Spots() {
			if !held[tenant][d] {
				held[tenant][d] = true
				quotas[tenant]--
			}
		}
	}
	return quotas
}

// powered is the number of devices for which the given watts are enough.
func (c *Sharing) powered(watts float64) int {
	least := math.Inf(1)
	for i := range c.s.Nodes {
		least = min(least, c.s.Nodes[i].Watts)
	}
	if math.IsInf(watts, 1) || !(least > 0) {
		return c.s.Total
	}
	return max(int((watts+1e-3)/least), 0)
}

// Settle places guests beside primaries that have got their devices, once these are named. It returns those whose
// primary has gone elsewhere or got nothing: they are no guests any more.
func (c *Sharing) Settle() []*cluster.Gang {
	c.at = func(g *cluster.Gang) cluster.Placement { return g.Got }
	c.quotas = c.s.Ledger.Quotas()
	c.unite()
	c.parts()
	var displaced []*cluster.Gang
	for _, g := range c.s.Gangs {
		if g.Primary == nil || !g.Got.Empty() || g.Held.Empty() {
			continue
		}
		if !cluster.Within(g.Held.Spots(), g.Primary.Got.Spots()) || !c.s.Ledger.Take(g, g.Held) {
			g.LeavePrimary()
			displaced = append(displaced, g)
		}
	}
	var nominated []*cluster.Gang
	for _, g := range c.s.Gangs {
		if g.Primary != nil && g.Got.Empty() {
			g.LeavePrimary()
			nominated = append(nominated, g)
		}
	}
	c.Look()
	// Newcomers come in queue order, also those that were to get devices of their own and did not.
	for _, g := range c.s.Gangs {
		if !g.Got.Empty() || !g.Held.Empty() || c.Join(g) {
			continue
		}
		if slices.Contains(nominated, g) {
			displaced = append(displaced, g)
		}
	}
	return displaced
}

// unite makes gangs that got back the same devices, each for itself, primaries and guests.
func (c *Sharing) unite() {
	var met []*cluster.Gang
	for _, g := range c.s.Gangs {
		if g.Primary == nil && g.Shares() && slices.ContainsFunc(g.Got.Spots(), func(at cluster.Spot) bool { return c.s.Ledger.Holders(at) > 1 }) {
			met = append(met, g)
		}
	}
	meets := func(g *cluster.Gang) bool {
		return slices.ContainsFunc(met, func(o *cluster.Gang) bool { return o != g && cluster.Meet(o.Got.Spots(), g.Got.Spots()) })
	}
	met = slices.DeleteFunc(slices.Clone(met), func(g *cluster.Gang) bool { return !meets(g) })
	for _, g := range slices.Clone(met) {
		met = append(met, g.Guests...)
	}
	c.regroup(met)
}

// parts enters how much of its devices each gang has that may share them.
func (c *Sharing) parts() {
	for _, g := range c.s.Gangs {
		if g.Shares() && !g.Got.Empty() {
			c.setPart(g)
		}
	}
}

func (c *Sharing) setPart(g *cluster.Gang) {
	part := c.s.PartOf(g, g.Got.Spots())
	if g.Primary != nil {
		part = c.s.GuestPart(g, g.Got.Spots())
	}
	if part != g.Got.Memory {
		p := g.Got.Copy()
		p.Memory = part
		c.s.Ledger.Name(g, p)
	}
}

// Joined enters that a gang got devices for itself after Settle.
func (c *Sharing) Joined(g *cluster.Gang) {
	if g.Shares() && !g.Got.Empty() {
		c.setPart(g)
		c.Look()
	}
}

// Stay leaves a gang that lost its devices to another one there, beside it, unless it is known that the two get too
// little done.
func (c *Sharing) Stay(g *cluster.Gang) bool {
	at := g.Held.Spots()
	if !g.Shares() || g.Held.Empty() || !c.fits(g, at) || share.Parted(c.known(at[0]), append(c.tenants(c.company(at)), c.tenant(g, at))) {
		return false
	}
	return c.join(g, at)
}

// Join finds a place beside others for a gang that has got nothing.
func (c *Sharing) Join(g *cluster.Gang) bool {
	at := c.choose(g)
	return at != nil && c.join(g, at)
}

func (c *Sharing) join(g *cluster.Gang, at []cluster.Spot) bool {
	if !c.s.Ledger.Take(g, cluster.On(at, c.s.GuestPart(g, at))) {
		return false
	}
	c.enterGuest(g, at)
	return true
}

// Spread moves guests to free devices for which no gang waits, the greatest gain first: the time that they and their
// co-runners save must be worth the restart. spare is the number of such devices.
func (c *Sharing) Spread(spare int, find *place.Finder) {
	type mover struct {
		*cluster.Gang
		gain float64
	}
	var movers []mover
	for _, g := range c.s.Gangs {
		if g.Primary == nil || g.Pinned || g.Silent || !g.Got.SameDevices(g.Held) || g.Held.Empty() || !c.canMove(g) {
			continue
		}
		if gain := c.worth(g); gain > 0 {
			movers = append(movers, mover{g, gain})
		}
	}
	slices.SortStableFunc(movers, func(x, y mover) int { return cmp.Compare(y.gain, x.gain) })
	for _, m := range movers {
		n := m.Got.Size()
		if spare < n || c.worth(m.Gang) <= 0 {
			continue
		}
		if p, found := find.Find(m.Gang, n, 0); found && len(p.Parts) <= len(m.Got.Parts) && c.s.Ledger.Take(m.Gang, p) {
			spare -= n
			m.Notes.Reason = &train.Reason{
				Code: "Moved", Message: fmt.Sprintf("goes on with %s: alone there it is faster than beside %s", c.s.Where(p), m.Primary.ID),
			}
			m.LeavePrimary()
			place.Name(c.s)
			c.setPart(m.Gang)
			c.Look()
		}
	}
}
