package planner

import (
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// observeLink enters a link. New measurements of each window are no reason for a decision; only a link that starts or
// stops losing or delaying packets is.
func (p *cache) observeLink(e bus.Entry[train.Link], deleted bool) {
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
		p.wake()
	}
}

// probed returns the nodes that are not lost, with only what lists of probes depend on. It returns false until all
// nodes have been seen.
func (p *cache) probed() ([]train.Node, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []train.Node
	for _, key := range slices.Sorted(maps.Keys(p.nodes)) {
		if n := p.nodes[key]; p.silence.of(key) < records.NodeLost {
			all = append(all, train.Node{ID: n.ID, Labels: n.Labels, Probes: n.Probes})
		}
	}
	return all, !p.missing[string(contract.Nodes)]
}

// observeCrossed enters which nodes' packets cross which link.
func (p *cache) observeCrossed(crossed map[string]pinglist.Crossing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crossed = crossed
	if len(p.links) > 0 {
		p.wake()
	}
}

// degraded returns the links that lose or delay packets now.
func (p *cache) degraded() []plan.Link {
	var all []plan.Link
	for _, id := range slices.Sorted(maps.Keys(p.links)) {
		if l := p.links[id]; l.Degraded {
			all = append(all, plan.Link{ID: id, Loss: l.Loss, DelaySeconds: l.DelaySeconds, From: p.crossed[id].From, To: p.crossed[id].To})
		}
	}
	return all
}
