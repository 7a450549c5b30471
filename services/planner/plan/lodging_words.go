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
	byID := make(map[train.JobID]*lodger, len(l.lodgers))
	for _, one := range l.lodgers {
		byID[one.ID] = one
	}
	for i := range made.Allocations {
		a := &made.Allocations[i]
		if one := byID[a.Job]; one != nil && one.part > 0 {
			a.Memory = one.part
			a.Reason.Message += fmt.Sprintf("; it has %s of the memory%s", one.part, l.companions(one))
		}
	}
	// A job that both rides and waits, or neither, is one about which the rounds did not come to an end.
	made.Waiting = slices.DeleteFunc(made.Waiting, func(w train.Waiting) bool { return byID[w.Job] != nil && byID[w.Job].at.somewhere() })
	for _, one := range l.lodgers {
		if one.host != nil {
			made.Allocations = append(made.Allocations, l.allocation(one))
		} else if !one.at.somewhere() {
			l.explainWait(&made, one)
		}
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
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
func (l *lodgings) explainWait(made *train.Plan, one *lodger) {
	at := slices.IndexFunc(made.Waiting, func(w train.Waiting) bool { return w.Job == one.ID })
	if at < 0 {
		at = len(made.Waiting)
		made.Waiting = append(made.Waiting, train.Waiting{Job: one.ID})
	}
	blockers := &made.Waiting[at].Blockers
	if len(*blockers) > 0 && ((*blockers)[0].Code == ReasonNoNode || (*blockers)[0].Code == ReasonDevicesTooFew) {
		return
	}
	missing := l.needs(one)
	for i, r := range *blockers {
		if r.Code == ReasonWaitingForDevices {
			missing.Hint = r.Hint
			(*blockers)[i] = missing
			return
		}
	}
	*blockers = append(*blockers, missing)
}

// needs is the reason of a job that found no room.
func (l *lodgings) needs(one *lodger) train.Reason {
	var most unit.Bytes
	for _, here := range l.shared {
		if l.open[here.node] && here.host.Spec.Tenant == one.Spec.Tenant && l.board.nodes[here.node].traits.grant(one.wish) {
			most = max(most, here.left)
		}
	}
	words := fmt.Sprintf("needs %s of GPU memory on one device%s; ", one.Spec.SharedMemory(), withLabels(one.candidate))
	if most > 0 {
		return train.Reason{Code: ReasonWaitingForMemory, Message: words + fmt.Sprintf("the most that is free on a device that may be shared is %s", most)}
	}
	return train.Reason{Code: ReasonWaitingForMemory, Message: words + "no device is free, and none that jobs of its tenant share has memory left"}
}
