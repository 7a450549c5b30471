package planner

import (
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// seeLink keeps what is known of a link. What is measured anew in each window is no reason for a decision, only that a link has come to lose packets
// or to be slow, or is so no more.
func (p *picture) seeLink(e bus.Entry[train.Link], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.links[e.Key]
	if deleted {
		e.Value = train.Link{}
		delete(p.links, e.Key)
	} else {
		p.links[e.Key] = e.Value
	}
	if before.Degraded != e.Value.Degraded || before.Kind != e.Value.Kind {
		p.nudge()
	}
}

// probed are the nodes that are not lost, with no more of them than lists of probes follow from; false until all have been seen.
func (p *picture) probed() ([]train.Node, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []train.Node
	for _, key := range slices.Sorted(maps.Keys(p.nodes)) {
		if n := p.nodes[key]; p.silence.of(key) < nodeLost {
			all = append(all, train.Node{ID: n.ID, Labels: n.Labels, Probes: n.Probes})
		}
	}
	return all, !p.missing[event.BucketNodes]
}

// seeCrossed keeps which nodes' packets cross which link.
func (p *picture) seeCrossed(crossed map[string]pinglist.Crossing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crossed = crossed
	if len(p.links) > 0 {
		p.nudge()
	}
}

// degraded are the links that lose or delay packets now.
func (p *picture) degraded() []plan.Link {
	var all []plan.Link
	for _, id := range slices.Sorted(maps.Keys(p.links)) {
		if l := p.links[id]; l.Degraded {
			all = append(all, plan.Link{ID: id, Loss: l.Loss, DelaySeconds: l.DelaySeconds, From: p.crossed[id].From, To: p.crossed[id].To})
		}
	}
	return all
}
