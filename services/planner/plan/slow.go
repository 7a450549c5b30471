package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// avoidFor is how long a job keeps off a device on which its worker held up the others: whatever was wrong there, another job or a hot machine, may be over
// by then.
const avoidFor = time.Hour

// avoided are the slow devices that still count: those of the attempt that runs, since no more is said of it, and others for a time.
func (j *Job) avoided(now time.Time) []train.Straggler {
	var count []train.Straggler
	for _, s := range j.Slow {
		age := now.Sub(s.ToldAt)
		if s.ToldAt.IsZero() || age < avoidFor || j.Running != nil && age.Seconds() < j.Running.Seconds {
			count = append(count, s)
		}
	}
	return count
}

// replacement is what a job goes on with instead of a device on which its worker held up the others.
type replacement struct {
	slow train.Straggler
	with string
}

// leaveSlow moves jobs away from a node where a worker of theirs is slow and no other device can take its place: what a job holds there goes as a whole to another
// node with room for it, so that the gang keeps its shape. The policy then sees the job as holding that. taken are the devices that any job holds.
func (b *board) leaveSlow(taken [][]bool) {
	for _, c := range b.jobs {
		if len(c.Slow) == 0 || !c.movable || len(c.Planned.Servers) > 0 {
			continue
		}
		size := c.base.total()
		for i := range c.base.spread() {
			part := c.base.part(i)
			s, slow := b.nodes[part.node].slowOf(c, part.devices)
			if !slow || !b.tuning.worthReplacing(c, s, c.remaining(size), size) {
				continue
			}
			if free := b.nodes[part.node].freeDevice(c, taken[part.node]); free >= 0 {
				b.swap(c, i, s, free, taken)
				break
			}
			if to := b.refuge(c, part, taken); to != nowhere {
				b.flee(c, i, to, taken)
				c.replaced = append(c.replaced, replacement{s, fmt.Sprintf("%s of node %s", devices(part.size), b.nodes[to].id)})
				break
			}
		}
	}
}

// slowOf is the report of a job on one of some devices of the node.
func (n *node) slowOf(c *candidate, devices []int) (train.Straggler, bool) {
	i := slices.IndexFunc(c.Slow, func(s train.Straggler) bool {
		return s.Node == n.id && slices.ContainsFunc(devices, func(d int) bool { return n.devices[d].ID == s.Device })
	})
	if i < 0 {
		return train.Straggler{}, false
	}
	return c.Slow[i], true
}

// avoids says whether a worker of the job was slow on the node.
func (c *candidate) avoids(n *node) bool {
	return slices.ContainsFunc(c.Slow, func(s train.Straggler) bool { return s.Node == n.id })
}

// refuge is a node with as many devices alike, held by nobody, as a part of a job has: rather one that nobody has to leave first, then the fullest.
func (b *board) refuge(c *candidate, part *place, taken [][]bool) int {
	best, from := nowhere, &b.nodes[part.node]
	var key [2]int
	for i := range b.nodes {
		n := &b.nodes[i]
		if n.model != from.model || n.watts > from.watts || c.avoids(n) || !c.suits(n.memory, n.traits) || c.base.on(i) || b.cuts(c, part, i) {
			continue
		}
		free, idle := 0, 0
		for d, held := range taken[i] {
			if !held {
				free++
				if !n.busy[d] {
					idle++
				}
			}
		}
		if k := [2]int{max(part.size-idle, 0), free}; free >= part.size && (best == nowhere || slices.Compare(k[:], key[:]) < 0) {
			best, key = i, k
		}
	}
	return best
}

// cuts says whether a part of a job would be behind a link that loses packets on another node.
func (b *board) cuts(c *candidate, part *place, to int) bool {
	var rest []share
	for _, s := range c.base.shares() {
		if s.node != part.node {
			rest = append(rest, s)
		}
	}
	return cutOffFrom(rest, to, b.above())
}

// swap makes a free device of the same node what a job holds there in place of a slow one: it is no other's, and to the policy the job restarts.
func (b *board) swap(c *candidate, which int, slow train.Straggler, free int, taken [][]bool) {
	c.base.others = slices.Clone(c.base.others)
	part := c.base.part(which)
	part.devices = slices.Clone(part.devices)
	at := slices.IndexFunc(part.devices, func(d int) bool { return b.nodes[part.node].devices[d].ID == slow.Device })
	taken[part.node][part.devices[at]], taken[part.node][free] = false, true
	part.devices[at] = free
	slices.Sort(part.devices)
	b.restarts(c)
}

// flee makes a part of what a job holds one of as many devices of another node.
func (b *board) flee(c *candidate, which, to int, taken [][]bool) {
	c.base.others = slices.Clone(c.base.others)
	part := c.base.part(which)
	part.node, part.devices = to, make([]int, 0, part.size)
	b.complete(part, taken)
	b.restarts(c)
}

// restarts makes of a job one that runs on other devices than it holds, as after a plan that has it move.
func (b *board) restarts(c *candidate) {
	c.rescalable, c.Planned = false, &Holding{Parts: b.parts(&c.base)}
	if parts := c.Planned.Parts; len(parts) == 1 {
		c.Planned = &Holding{Node: parts[0].Node, Devices: parts[0].Devices}
	}
}

// replaceSlow gives jobs other devices of their node in place of slow ones, where such are free and the restart is worth it. Whoever was just given a slow
// one, or restarts anyway, gets another without asking. A job is moved for at most train.MaxStragglers workers, since no more are ever reported of it.
func (b *board) replaceSlow(taken [][]bool) {
	for _, c := range b.jobs {
		if len(c.Slow) == 0 || !c.got.held() {
			continue
		}
		may := func(s train.Straggler, held bool) bool {
			return !held || c.got.total() != c.first.total() || b.tuning.worthReplacing(c, s, c.remaining(c.got.total()), c.got.total())
		}
		for i := range c.got.spread() {
			p := c.got.part(i)
			c.replaced = append(c.replaced, b.nodes[p.node].swapSlow(c, p.devices, c.first.devicesOn(p.node), taken[p.node], may)...)
			slices.Sort(p.devices)
		}
	}
}

// swapSlow replaces slow devices of a job on a node by free ones where that may be, and tells those that it held before.
func (n *node) swapSlow(c *candidate, devices, had []int, taken []bool, may func(s train.Straggler, held bool) bool) []replacement {
	var replaced []replacement
	for _, s := range c.Slow {
		old := slices.IndexFunc(n.devices, func(d train.Device) bool { return d.ID == s.Device })
		at := slices.Index(devices, old)
		if s.Node != n.id || at < 0 {
			continue
		}
		held := slices.Contains(had, old)
		free := n.freeDevice(c, taken)
		if free < 0 || !may(s, held) {
			continue
		}
		taken[free], taken[old], devices[at] = true, false, free
		if held {
			replaced = append(replaced, replacement{s, string(n.devices[free].ID)})
		}
	}
	return replaced
}

// freeDevice is one that is given to nobody and on which the job was not slow, rather none that another job is still leaving; below zero where there is none.
func (n *node) freeDevice(c *candidate, taken []bool) int {
	for _, leaving := range []bool{false, true} {
		for i, d := range n.devices {
			slow := slices.ContainsFunc(c.Slow, func(s train.Straggler) bool { return s.Node == n.id && s.Device == d.ID })
			if !taken[i] && n.busy[i] == leaving && !slow {
				return i
			}
		}
	}
	return -1
}

// worthReplacing says whether a restart without a slow worker pays. Where workers wait for each other the whole step takes as long as the slowest; else
// only its own share of the steps comes late.
func (t Tuning) worthReplacing(c *candidate, s train.Straggler, left float64, workers int) bool {
	if !c.movable || !(s.Slowdown > 1) {
		return false
	}
	saved := c.changeable() * left * (1 - 1/s.Slowdown)
	if c.Spec.SpeedKind() == train.SpeedServersAsync {
		saved /= float64(max(workers, 1))
	}
	return saved > t.Hysteresis*left+t.RestartSeconds
}

// replacedSlow is the reason of a job that leaves slow devices.
func (c *candidate) replacedSlow() train.Reason {
	r := train.Reason{Code: ReasonReplacedStraggler}
	for i, s := range c.replaced {
		if i > 0 {
			r.Message += "; "
		}
		r.Message += fmt.Sprintf("goes on with %s in place of %s, where worker %d took %.2g times as long for a step as the others", s.with, s.slow.Device, s.slow.Rank, s.slow.Slowdown)
	}
	return r
}
