package energy

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// gangs holds what the nodes of jobs have reported: the intervals of a gang's nodes arrive one by one, and those of a
// node whose agent was without the bus much later than the others. A restart forgets it.
type gangs map[train.JobID]map[train.NodeID]reported

// reported is what a node has reported about a job: its power in the newest intervals, and the times of all.
type reported struct {
	newest []drawn
	spans  []span
}

// drawn is the power of a job on a node in the interval that ended at a time.
type drawn struct {
	to    time.Time
	power unit.Power
}

// span is a time that intervals cover without a gap.
type span struct{ from, to time.Time }

// heldIntervals and heldSpans bound what is held of a job on a node. A node that reports without gaps has one span.
const (
	heldIntervals = 16
	heldSpans     = 64
)

// note adds the newest interval of a node, which began at from; a repeated interval is already there.
func (g gangs) note(b Book, from time.Time) {
	for job, power := range b.Drawn {
		if g[job] == nil {
			g[job] = map[train.NodeID]reported{}
		}
		g[job][b.Node] = g[job][b.Node].with(from, drawn{b.To, power})
	}
}

func (r reported) with(from time.Time, d drawn) reported {
	if n := len(r.newest); n > 0 && !d.to.After(r.newest[n-1].to) {
		return r
	}
	r.newest = append(r.newest, d)
	r.newest = r.newest[max(len(r.newest)-heldIntervals, 0):]
	if n := len(r.spans); n > 0 && !from.After(r.spans[n-1].to) {
		r.spans[n-1].to = d.to
		return r
	}
	r.spans = append(r.spans, span{from, d.to})
	r.spans = r.spans[max(len(r.spans)-heldSpans, 0):]
	return r
}

// beside returns the power of a job on the other nodes that have reported the same time; known is false if none has.
// The power of a time long ago counts as 0. Agents end their intervals on whole seconds.
func (g gangs) beside(job train.JobID, m event.Measured) (power unit.Power, known bool) {
	half := m.To.Sub(m.From) / 2
	for node, r := range g[job] {
		if node == m.Node {
			continue
		}
		if at := slices.IndexFunc(r.newest, func(d drawn) bool { return m.To.Sub(d.to).Abs() < half }); at >= 0 {
			power, known = power+r.newest[at].power, true
			continue
		}
		middle := m.From.Add(half)
		known = known || slices.ContainsFunc(r.spans, func(s span) bool { return !middle.Before(s.from) && middle.Before(s.to) })
	}
	return power, known
}
