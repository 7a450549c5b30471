package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	sharing "github.com/switchyard-dl/switchyard/services/planner/share"
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
	switch r := one.Running; {
	case one.held == one.at && (r == nil || r.Memory == one.part):
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

// companions names who else is on the device of a job, and says what that costs it.
func (l *lodgings) companions(one *lodger) string {
	here := l.lodgingAt(one.at)
	if len(here.jobs) < 2 {
		return ""
	}
	rates, measured := sharing.Rates(l.interference(here.spot), l.tenants(here.jobs, here.spot))
	var names []string
	for _, other := range here.jobs {
		if other != one {
			names = append(names, string(other.ID))
		}
	}
	i := slices.Index(here.jobs, one)
	return fmt.Sprintf(" beside %s, at %.0f %% of its speed alone (%s)", several(names), 100*rates[i], basis(measured[i]))
}

// several lists names, at most three of them.
func several(names []string) string {
	const most = 3
	words := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	return words
}

// basis says what a rate rests on.
func basis(measured int) string {
	switch measured {
	case 0:
		return "predicted"
	case 1:
		return "measured once"
	}
	return fmt.Sprintf("measured %d times", measured)
}

// explainWait puts what is missing of memory in the place of what is missing of devices.
func (l *lodgings) explainWait(one *lodger, w *train.Waiting) {
	if len(w.Blockers) > 0 && (w.Blockers[0].Code == ReasonNoNode || w.Blockers[0].Code == ReasonDevicesTooFew) {
		return
	}
	missing, disturbs := l.disturbs(one)
	if !disturbs {
		missing = l.needs(one)
	}
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

// disturbs is the reason of a job that would find room, but beside jobs with which it does too little. It names the device where that is least bad.
func (l *lodgings) disturbs(one *lodger) (reason train.Reason, found bool) {
	if here := l.lodgingAt(one.left); one.leaves && here != nil {
		return train.Reason{Code: ReasonSlowTogether, Message: l.disturbance(one, here)}, true
	}
	alike := l.likeness(one)
	if known, before := l.reasons[alike]; before {
		return known, known.Code != ""
	}
	var best *lodging
	most := 0.0
	for _, here := range l.shared {
		if !l.open[here.node] || !l.fits(one, here) {
			continue
		}
		if together := l.together(one, here); best == nil || together > most {
			best, most = here, together
		}
	}
	if best != nil {
		reason = train.Reason{Code: ReasonSlowTogether, Message: l.disturbance(one, best)}
	}
	l.reasons[alike] = reason
	return reason, best != nil
}

// together is what jobs would do with one more on their device, as a part of what the weightiest of them would do alone.
func (l *lodgings) together(one *lodger, here *lodging) float64 {
	tenants := l.tenants(append(slices.Clone(here.jobs), one), here.spot)
	rates, _ := sharing.Rates(l.interference(here.spot), tenants)
	sum, alone := 0.0, 0.0
	for i, t := range tenants {
		sum, alone = sum+t.Weight*rates[i], max(alone, t.Weight)
	}
	return sum / alone
}

// disturbance says why a job does not go where it would find room.
func (l *lodgings) disturbance(one *lodger, here *lodging) string {
	where := fmt.Sprintf("%s of node %s", l.device(here.spot).ID, l.board.nodes[here.node].id)
	if l.reserved(one, here) {
		return where + " is kept for a job that has waited too long for a device of its own"
	}
	jobs := append(slices.Clone(here.jobs), one)
	rates, measured := sharing.Rates(l.interference(here.spot), l.tenants(jobs, here.spot))
	words := make([]string, len(jobs))
	for i, job := range jobs {
		words[i] = fmt.Sprintf("%s at %.0f %% of its speed alone (%s)", job.ID, 100*rates[i], basis(measured[i]))
	}
	verb := "waits for a device of its own: together on "
	if one.leaves {
		verb = "leaves those beside whom it was: together on "
	}
	who := "they"
	if sharing.Crawls(rates) {
		who = "one of them"
	}
	return verb + where + " " + who + " would get too little done, " + several(words)
}
