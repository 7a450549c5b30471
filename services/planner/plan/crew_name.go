package plan

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// name settles which devices each crew gets: those that it holds on a node first, then free ones, then those that others are leaving.
func (d *crews) name() {
	taken := d.unmarked()
	all := make(map[*crew][]place, len(d.all))
	for _, c := range d.all {
		before := d.former(c)
		for _, b := range c.placed {
			p := place{node: b.node, size: b.workers}
			for _, i := range before[b.node] {
				if len(p.devices) < p.size && !taken[b.node][i] {
					p.devices = append(p.devices, i)
					taken[b.node][i] = true
				}
			}
			all[c] = append(all[c], p)
		}
	}
	for _, c := range d.all {
		for k := range all[c] {
			p := &all[c][k]
			for _, leaving := range []bool{false, true} {
				for i, busy := range d.nodes[p.node].busy {
					if len(p.devices) < p.size && busy == leaving && !taken[p.node][i] {
						p.devices = append(p.devices, i)
						taken[p.node][i] = true
					}
				}
			}
			c.placed[k].devices = p.devices
		}
	}
	d.replaceSlowOf(taken)
	for _, c := range d.all {
		for _, b := range c.placed {
			slices.Sort(b.devices)
		}
	}
}

// replaceSlowOf is replaceSlow for crews.
func (d *crews) replaceSlowOf(taken [][]bool) {
	for _, c := range d.all {
		had := d.former(c)
		for k := range c.placed {
			b := &c.placed[k]
			may := func(s train.Straggler, held bool) bool {
				return !held || c.got != d.formerRoles(c) || d.tuning.worthReplacing(c.candidate, s, d.remaining(c, c.got), c.got.workers)
			}
			c.replaced = append(c.replaced, d.nodes[b.node].swapSlow(c.candidate, b.devices, had[b.node], taken[b.node], may)...)
		}
	}
}

// former are the devices that a job held when the decision began, by node.
func (d *crews) former(c *crew) map[int][]int {
	devices := map[int][]int{}
	h, holds := c.holding(c.pinned)
	if !holds {
		return devices
	}
	for _, part := range h.places() {
		if p, ok := d.locate(Holding{Node: part.Node, Devices: part.Devices}); ok {
			devices[p.node] = p.devices
		}
	}
	return devices
}
