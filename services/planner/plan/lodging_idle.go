package plan

import (
	"cmp"
	"slices"
)

// idle is how many devices of each node nobody holds, less what the jobs need that wait and do not share.
func (l *lodgings) idle() []int {
	idle := make([]int, len(l.board.nodes))
	for i := range idle {
		idle[i] = len(l.board.nodes[i].devices)
	}
	held, waiting := map[spot]bool{}, []*Job{}
	for i := range l.state.Jobs {
		j := &l.state.Jobs[i]
		if j.CancelRequested {
			continue
		}
		for _, h := range []*Holding{j.Planned, j.runsOn()} {
			if h == nil {
				continue
			}
			for _, part := range h.places() {
				p, _ := l.board.locatePart(part)
				for _, d := range p.devices {
					held[spot{p.node, d}] = true
				}
			}
		}
		if j.Planned == nil && j.Running == nil && !mayShare(*j) {
			waiting = append(waiting, j)
		}
	}
	for at := range held {
		idle[at.node]--
	}
	for _, j := range waiting {
		idle, _ = l.idleBehind(j, max(j.Spec.MinDevices, 1), idle)
	}
	return idle
}

// idleBehind is what a job that needs so many devices leaves of those that are idle, and whether they are enough for it. It takes none that it could not have:
// none at all where there is no place for it, and where gangs are not split, none of nodes that are too small.
func (l *lodgings) idleBehind(j *Job, need int, idle []int) (left []int, enough bool) {
	if !l.possible(j) {
		return idle, false
	}
	var nodes []int
	for i := range l.state.Nodes {
		at, found := l.board.findNode(l.state.Nodes[i].ID)
		if !found || idle[at] == 0 {
			continue
		}
		if has := l.devicesFor(j, &l.state.Nodes[i]); has >= need || has > 0 && !l.state.Tuning.OneNode {
			nodes = append(nodes, at)
		}
	}
	// The best fit first: what is left may be enough for a gang.
	slices.SortStableFunc(nodes, func(x, y int) int {
		return cmp.Or(last(idle[x] < need, idle[y] < need), cmp.Compare(max(idle[x]-need, need-idle[x]), max(idle[y]-need, need-idle[y])))
	})
	left = slices.Clone(idle)
	for _, at := range nodes {
		taken := min(need, left[at])
		left[at], need = left[at]-taken, need-taken
	}
	return left, need == 0
}
