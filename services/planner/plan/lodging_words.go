package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// explain adds to a plan of whole devices who shares them, and why whoever found no room waits.
func (l *lodgings) explain(made train.Plan) train.Plan {
	for i := range made.Allocations {
		a := &made.Allocations[i]
		if one := l.byID[a.Job]; one != nil && one.part > 0 {
			a.Memory = one.part
			a.Reason.Message += fmt.Sprintf("; it has %s of the memory%s", one.part, l.companions(one))
			one.tellOutgrown(&a.Reason)
		}
	}
	listed := map[*lodger]bool{}
	made.Waiting = slices.DeleteFunc(made.Waiting, func(w train.Waiting) bool {
		one := l.byID[w.Job]
		listed[one] = true
		return one != nil && one.host != nil
	})
	for _, one := range l.lodgers {
		switch {
		case one.host != nil:
			made.Allocations = append(made.Allocations, l.allocation(one))
		case !one.at.somewhere() && !listed[one]: // it rode in the last round, and lost its room there
			made.Waiting = append(made.Waiting, train.Waiting{Job: one.ID})
		}
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
	for i := range made.Waiting {
		if one := l.byID[made.Waiting[i].Job]; one != nil {
			l.explainWait(one, &made.Waiting[i])
		}
	}
	return made
}

// allocation is that of a job that came to another's device.
func (l *lodgings) allocation(one *lodger) train.Allocation {
	node, device := &l.board.nodes[one.at.node], l.device(one.at)
	where := fmt.Sprintf("%s of %s of node %s", one.part, device.ID, node.id)
	a := train.Allocation{
		Job: one.ID, Node: node.id, Devices: []train.DeviceID{device.ID}, Memory: one.part, Beside: one.host.ID,
		Reason: train.Reason{Code: ReasonPlaced, Message: "gets " + where + l.companions(one)},
	}
	switch {
	case one.held == one.at:
		a.Reason = train.Reason{Code: ReasonKept, Message: "keeps " + where + l.companions(one)}
	case one.held.somewhere():
		a.Reason = train.Reason{Code: ReasonMoved, Message: "goes on with " + where + l.companions(one)}
	}
	one.tellOutgrown(&a.Reason)
	if one.predicted.source != fromNothing {
		a.RemainingSeconds = one.remaining(1)
	}
	return a
}

// companions names who else is on the device of a job, at most three of them.
func (l *lodgings) companions(one *lodger) string {
	const most = 3
	var names []string
	for _, other := range l.lodgers {
		if other != one && other.at == one.at {
			names = append(names, string(other.ID))
		}
	}
	if len(names) == 0 {
		return ""
	}
	words := " beside " + strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	return words
}

// explainWait puts what is missing of memory in the place of what is missing of devices.
func (l *lodgings) explainWait(one *lodger, w *train.Waiting) {
	if len(w.Blockers) > 0 && (w.Blockers[0].Code == ReasonNoNode || w.Blockers[0].Code == ReasonDevicesTooFew) {
		return
	}
	missing := l.needs(one)
	one.tellOutgrown(&missing)
	at := slices.IndexFunc(w.Blockers, func(r train.Reason) bool { return r.Code == ReasonWaitingForDevices })
	if at < 0 {
		w.Blockers = append(w.Blockers, missing)
		return
	}
	missing.Hint = w.Blockers[at].Hint
	w.Blockers[at] = missing
}

// needs is the reason of a job that found no room.
func (l *lodgings) needs(one *lodger) train.Reason {
	var most unit.Bytes
	for _, here := range l.shared {
		if l.open[here.node] && here.host.Spec.Tenant == one.Spec.Tenant && l.board.nodes[here.node].traits.grant(one.wish) {
			most = max(most, l.leftFor(one, here))
		}
	}
	words := fmt.Sprintf("needs %s of GPU memory on one device%s; ", one.memory, withLabels(one.candidate))
	if most > 0 {
		return train.Reason{Code: ReasonWaitingForMemory, Message: words + fmt.Sprintf("the most that is free on a device that may be shared is %s", most)}
	}
	return train.Reason{Code: ReasonWaitingForMemory, Message: words + "no device is free, and none that jobs of its tenant share has memory left"}
}
