package plan

import (
	"cmp"
	"math"
	"slices"
)

// idleDevices are what is left for whoever waits.
type idleDevices struct {
	// of are how many devices of each node nobody holds; for most of them at most the power budget leaves enough.
	of   []int
	most int
}

// idle is what the jobs leave that hold something, and those that wait and do not share.
func (l *lodgings) idle() idleDevices {
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
		if j.Planned == nil && !mayShare(*j) {
			waiting = append(waiting, j)
		}
	}
	idle := idleDevices{make([]int, len(l.board.nodes)), l.powered(held)}
	for i := range idle.of {
		idle.of[i] = len(l.board.nodes[i].devices)
	}
	for at := range held {
		idle.of[at.node]--
	}
	for _, j := range waiting {
		idle, _ = l.idleBehind(j, max(j.Spec.MinDevices, 1), idle)
	}
	return idle
}

// powered is for how many devices the power budget leaves enough beside those that are held.
func (l *lodgings) powered(held map[spot]bool) int {
	left, least := l.board.granted.watts, math.Inf(1)
	for at := range held {
		left -= l.board.nodes[at.node].watts
	}
	for i := range l.board.nodes {
		least = min(least, l.board.nodes[i].watts)
	}
	if math.IsInf(left, 1) || !(least > 0) {
		return l.board.total
	}
	return max(int((left+slackWatts)/least), 0)
}

// idleBehind is what a job that needs so many devices leaves of those that are idle, and whether they are enough for it. It takes none that it could not have:
// none at all where there is no place for it, and where gangs are not split, none of nodes that are too small.
func (l *lodgings) idleBehind(j *Job, need int, idle idleDevices) (left idleDevices, enough bool) {
	if !l.possible(j) {
		return idle, false
	}
	var nodes []int
	for i := range l.state.Nodes {
		at, found := l.board.findNode(l.state.Nodes[i].ID)
		if !found || idle.of[at] == 0 {
			continue
		}
		if has := l.devicesFor(j, &l.state.Nodes[i]); has >= need || has > 0 && !l.state.Tuning.OneNode {
			nodes = append(nodes, at)
		}
	}
	// The best fit first: what is left may be enough for a gang.
	beyond := func(at int) int { return idle.of[at] - need }
	slices.SortStableFunc(nodes, func(x, y int) int {
		return cmp.Or(last(beyond(x) < 0, beyond(y) < 0), cmp.Compare(max(beyond(x), -beyond(x)), max(beyond(y), -beyond(y))))
	})
	left = idleDevices{slices.Clone(idle.of), idle.most}
	for _, at := range nodes {
		taken := min(need, left.of[at], left.most)
		left.of[at], left.most, need = left.of[at]-taken, left.most-taken, need-taken
	}
	return left, need == 0
}
