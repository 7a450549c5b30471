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
		c.replaced = nil
		for _, s := range c.Slow {
			if !c.got.held() || b.nodes[c.got.node].id != s.Node {
				continue
			}
			n := &b.nodes[c.got.node]
			old := slices.IndexFunc(n.devices, func(d train.Device) bool { return d.ID == s.Device })
			place := slices.Index(c.got.devices, old)
			if old < 0 || place < 0 {
				continue
			}
			held := c.first.node == c.got.node && slices.Contains(c.first.devices, old)
			free := n.freeDevice(c, taken[c.got.node])
			if free < 0 || held && c.got.size == c.first.size && !b.worthReplacing(c, s) {
				continue
			}
			taken[c.got.node][free], taken[c.got.node][old] = true, false
			c.got.devices[place] = free
			if held {
				c.replaced = append(c.replaced, replacement{s, n.devices[free].ID})
			}
			slices.Sort(c.got.devices)
		}
	}
}

// freeDevice is one that nobody has or leaves and on which the job was not slow; below zero where there is none.
func (n *node) freeDevice(c *candidate, taken []bool) int {
	return slices.IndexFunc(n.devices, func(d train.Device) bool {
		i := n.index(d.ID)
		slow := slices.ContainsFunc(c.Slow, func(s train.Straggler) bool { return s.Node == n.id && s.Device == d.ID })
		return !taken[i] && !n.busy[i] && !slow
	})
}

func (n *node) index(id train.DeviceID) int {
	return slices.IndexFunc(n.devices, func(d train.Device) bool { return d.ID == id })
}

// worthReplacing says whether a restart without a slow worker pays. Where workers wait for each other the whole step takes as long as the slowest; else
// only its own share of the steps comes late.
func (b *board) worthReplacing(c *candidate, s train.Straggler) bool {
	if !c.movable || !(s.Slowdown > 1) {
		return false
	}
	left := c.remaining(c.got.size)
	saved := c.changeable() * left * (1 - 1/s.Slowdown)
	if c.Spec.SpeedKind() == train.SpeedServersAsync {
		saved /= float64(max(c.got.size, 1))
	}
	return saved > b.tuning.Hysteresis*left+b.tuning.RestartSeconds
}

// replacedSlow is the reason of a job that leaves slow devices.
func (a *account) replacedSlow(c *candidate) train.Reason {
	r := train.Reason{Code: ReasonReplacedStraggler}
	for i, s := range c.replaced {
		if i > 0 {
			r.Message += "; "
		}
		r.Message += fmt.Sprintf("goes on with %s in place of %s, where worker %d took %.2g times as long for a step as the others", s.replacement, s.slow.Device, s.slow.Rank, s.slow.Slowdown)
	}
	return r
}
