package energy

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// gangs remembers what jobs drew on each node in its newest intervals: those of a gang's nodes come one by one. What a restart forgets is a few seconds of them.
type gangs map[train.NodeID][]drawn

// drawn is the power of the jobs of a node in the interval that ended then.
type drawn struct {
	to    time.Time
	power map[train.JobID]unit.Power
}

// heldIntervals is how far one node may be told of ahead of another.
const heldIntervals = 16

// note takes the newest interval of a node; one that comes again is held already.
func (g gangs) note(b Book) {
	held := g[b.Node]
	if n := len(held); n > 0 && !b.To.After(held[n-1].to) {
		return
	}
	held = append(held, drawn{b.To, b.Drawn})
	g[b.Node] = held[max(len(held)-heldIntervals, 0):]
}

// beside is what a job drew on the other nodes that have told of the same time; told is false where none has. Agents end their intervals on whole seconds.
func (g gangs) beside(job train.JobID, m event.Measured) (power unit.Power, told bool) {
	near := m.To.Sub(m.From) / 2
	for node, held := range g {
		if node == m.Node {
			continue
		}
		for _, d := range held {
			if p, here := d.power[job]; here && m.To.Sub(d.to).Abs() < near {
				power, told = power+p, true
				break
			}
		}
	}
	return power, told
}
