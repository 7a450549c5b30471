package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// leaveLinks moves gangs off links that lose or delay packets, each as a whole to nodes of one island with room for it, where the predicted gain repays the
// restart. The policy then sees the gang as holding that, and the job goes there at its next checkpoint. One without a live attempt has nothing to leave.
func (b *board) leaveLinks(taken [][]bool) {
	for _, c := range b.jobs {
		idle := c.base.held() && !c.pinned && c.Running == nil
		if !c.movable && !idle || len(c.Planned.Servers) > 0 {
			continue
		}
		felt := b.felt(&c.base)
		if len(felt) == 0 {
			continue
		}
		to, found := b.haven(c, felt, taken)
		if !found {
			continue
		}
		left := c.remaining(c.base.total())
		saved, price := left*(1-1/b.slowdown(felt))+b.waits(c, &c.base)-b.waits(c, &to), 0.0
		if !idle {
			saved, price = c.changeable()*saved, b.tuning.Hysteresis*left+b.restartSeconds(c)
		}
		if saved > price {
			b.resettle(c, to, taken)
			c.shunned = felt
		}
	}
}

// haven is a place of the same size on one island that crosses none of some links, with as many as possible of the devices that the job has; false where
// there is none.
func (b *board) haven(c *candidate, off []*lossyLink, taken [][]bool) (place, bool) {
	rooms := map[string][]share{}
	for i := range b.nodes {
		n := &b.nodes[i]
		if n.model != b.nodes[c.base.node].model || !c.suits(n.memory, n.traits) || c.avoids(n) {
			continue
		}
		free := len(c.base.devicesOn(i))
		for _, held := range taken[i] {
			if !held {
				free++
			}
		}
		if free > 0 {
			rooms[n.island] = append(rooms[n.island], share{i, free})
		}
	}
	best, most := []share(nil), nowhere
	for _, island := range slices.Sorted(maps.Keys(rooms)) {
		own := func(s share) int { return len(c.base.devicesOn(s.node)) }
		room := rooms[island]
		slices.SortStableFunc(room, func(x, y share) int { return cmp.Or(cmp.Compare(own(y), own(x)), cmp.Compare(y.devices, x.devices)) })
		var shares []share
		need, kept := c.base.total(), 0
		for _, s := range room {
			if need == 0 {
				break
			}
			if cutOffFrom(shares, s.node, off) {
				continue
			}
			s.devices = min(s.devices, need)
			need, kept = need-s.devices, kept+min(own(s), s.devices)
			shares = append(shares, s)
		}
		if need == 0 && kept > most {
			best, most = shares, kept
		}
	}
	return placeOf(best), best != nil
}

// cutOffFrom says whether one of some links is between a node and one of the shares.
func cutOffFrom(shares []share, node int, links []*lossyLink) bool {
	return slices.ContainsFunc(links, func(l *lossyLink) bool {
		return slices.ContainsFunc(shares, func(s share) bool { return l.between(s.node, node) })
	})
}

// resettle makes a place what a job holds.
func (b *board) resettle(c *candidate, to place, taken [][]bool) {
	for i := range to.spread() {
		part := to.part(i)
		had := c.base.devicesOn(part.node)
		part.devices = slices.Clone(had[:min(len(had), part.size)])
	}
	for i := range c.base.spread() {
		for _, d := range c.base.part(i).devices {
			taken[c.base.part(i).node][d] = false
		}
	}
	for i := range to.spread() {
		for _, d := range to.part(i).devices {
			taken[to.part(i).node][d] = true
		}
	}
	for i := range to.spread() {
		b.complete(to.part(i), taken)
	}
	c.base = to
	b.restarts(c)
}

// steer puts gangs that start now on other nodes, alike and as idle, in place of those behind links that lose or delay packets: to the policy these places are equal.
func (b *board) steer() {
	if len(b.links) == 0 || !b.spans {
		return
	}
	idle := b.idle()
	for _, c := range b.jobs {
		if c.first.held() || c.got.spread() < 2 {
			continue
		}
		for b.steerPart(c, idle) {
		}
	}
}

// steerPart replaces the node by which a gang gains most; false where it would gain by none.
func (b *board) steerPart(c *candidate, idle []int) bool {
	which, best, least := 0, nowhere, b.harm(c, &c.got)
	if least <= 0 {
		return false
	}
	for i := range c.got.spread() {
		part := c.got.part(i)
		from := part.node
		for k := range b.nodes {
			if idle[k] < part.size || c.got.on(k) || !b.nodes[k].alike(&b.nodes[from]) || c.avoids(&b.nodes[k]) {
				continue
			}
			part.node = k
			if harm := b.harm(c, &c.got); harm < least {
				which, best, least = i, k, harm
			}
			part.node = from
		}
	}
	if best == nowhere {
		return false
	}
	part := c.got.part(which)
	idle[part.node], idle[best] = idle[part.node]+part.size, idle[best]-part.size
	b.nodes[part.node].used -= part.size
	b.nodes[best].used += part.size
	part.node = best
	return true
}

// idle are, by node, the devices that nobody runs on, less those that are given to jobs which do not hold them.
func (b *board) idle() []int {
	idle := make([]int, len(b.nodes))
	for i := range b.nodes {
		for _, busy := range b.nodes[i].busy {
			if !busy {
				idle[i]++
			}
		}
	}
	for _, c := range b.jobs {
		for i := range c.got.spread() {
			part := c.got.part(i)
			idle[part.node] -= max(part.size-len(c.first.devicesOn(part.node)), 0)
		}
	}
	return idle
}

// harm is how much longer a gang takes at a place for what its links lose and delay, in seconds.
func (b *board) harm(c *candidate, p *place) float64 {
	return c.remaining(p.total())*(1/max(b.through(p), leastThrough)-1) + b.waits(c, p)
}

// alike says whether a job that may have the one node may as well have the other.
func (n *node) alike(o *node) bool {
	return n.model == o.model && n.memory == o.memory && n.traits == o.traits && n.island == o.island && n.watts <= o.watts
}

// offLinks is the reason of a gang that leaves lossy links.
func (a *account) offLinks(c *candidate) train.Reason {
	return train.Reason{
		Code:    ReasonLinkDegraded,
		Message: fmt.Sprintf("goes on with %s: between the nodes that it had, %s", a.where(&c.got), lossWords(c.shunned)),
	}
}
