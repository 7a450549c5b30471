package plan

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// stayers are the riders that lost their devices when they stood before the policy, and without whom it gives these to nobody: what it would have used them for
// was worth it only with them in the way. They go on where they are, as far as quotas and the power budget leave something.
func (l *lodgings) stayers(made train.Plan, riders map[train.JobID]bool) []*lodger {
	var all []*lodger
	taken, left := map[spot]bool{}, l.board.granted.clone()
	take := func(tenant string, at spots) {
		for _, d := range at {
			taken[d] = true
			left.take(tenant, 1, l.board.nodes[d.node].watts)
		}
	}
	for _, a := range made.Allocations {
		take(l.keeper.jobs[a.Job].Spec.Tenant, l.keeper.find(a.Places()))
	}
	for _, one := range l.bySize() {
		if !riders[one.ID] || !one.displaced || !one.held.somewhere() || slices.ContainsFunc(one.held, func(d spot) bool { return taken[d] }) {
			continue
		}
		if n := len(one.held); left.covers(one.Spec.Tenant, n, float64(n)*l.board.nodes[one.held[0].node].watts) {
			take(one.Spec.Tenant, one.held)
			all = append(all, one)
		}
	}
	return all
}

// stays is the allocation of a job that keeps its devices.
func (l *lodgings) stays(one *lodger) train.Allocation {
	node, ids := l.names(one.held)
	a := train.Allocation{Job: one.ID, Node: node, Devices: ids, Reason: train.Reason{Code: ReasonKept, Message: "keeps " + devices(len(ids))}}
	if one.predicted.source != fromNothing {
		a.RemainingSeconds = one.remaining(len(ids))
	}
	return a
}
