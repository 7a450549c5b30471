package plan

import (
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// replacement is a device that a job leaves because its worker there held up the others.
type replacement struct {
	slow        train.Straggler
	replacement train.DeviceID
}

// replaceSlow gives jobs other devices of their node in place of slow ones, where such are free and the restart is worth it. Whoever was just given a slow
// one, or restarts anyway, gets another without asking. A job is moved for at most train.MaxStragglers workers, since no more are ever reported of it.
func (b *board) replaceSlow(taken [][]bool) {
	for _, c := range b.jobs {
		if c.replaced = nil; len(c.Slow) == 0 || !c.got.held() {
			continue
		}
		var had []int
		if c.first.node == c.got.node {
			had = c.first.devices
		}
		may := func(s train.Straggler, held bool) bool {
			return !held || c.got.size != c.first.size || b.tuning.worthReplacing(c, s, c.remaining(c.got.size), c.got.size)
		}
		c.replaced = b.nodes[c.got.node].swapSlow(c, c.got.devices, had, taken[c.got.node], may)
		slices.Sort(c.got.devices)
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
			replaced = append(replaced, replacement{s, n.devices[free].ID})
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
		r.Message += fmt.Sprintf("goes on with %s in place of %s, where worker %d took %.2g times as long for a step as the others", s.replacement, s.slow.Device, s.slow.Rank, s.slow.Slowdown)
	}
	return r
}
