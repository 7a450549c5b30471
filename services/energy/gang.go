package energy

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// gangs holds the power of jobs on each of their nodes in its newest intervals: the intervals of a gang's nodes arrive
// one by one. A restart forgets only a few seconds.
type gangs map[train.JobID]map[train.NodeID][]drawn

// drawn is the power of a job on a node in the interval that ended at a time.
type drawn struct {
	to    time.Time
	power unit.Power
}

// heldIntervals bounds the intervals by which one node may be ahead of another.
const heldIntervals = 16

// note adds the newest interval of a node; a repeated interval is already there.
func (g gangs) note(b Book) {
	for job, power := range b.Drawn {
		if g[job] == nil {
			g[job] = map[train.NodeID][]drawn{}
		}
		held := g[job][b.Node]
		if n := len(held); n > 0 && !b.To.After(held[n-1].to) {
			continue
		}
		held = append(held, drawn{b.To, power})
		g[job][b.Node] = held[max(len(held)-heldIntervals, 0):]
	}
}

// beside returns the power of a job on the other nodes that have reported the same time; known is false if none has.
// Agents end their intervals on whole seconds.
func (g gangs) beside(job train.JobID, m event.Measured) (power unit.Power, known bool) {
	near := m.To.Sub(m.From) / 2
	for node, held := range g[job] {
		if node == m.Node {
			continue
		}
		for _, d := range held {
			if m.To.Sub(d.to).Abs() < near {
				power, known = power+d.power, true
				break
			}
		}
	}
	return power, known
}
