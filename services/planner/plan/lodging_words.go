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
		one := l.byID[a.Job]
		if one != nil && one.promised != nil && slices.Equal(one.held, one.at) {
			a.Reason = *one.promised
		}
		if one != nil && one.part > 0 {
			a.Memory = one.part
			each := ""
			if len(one.at) > 1 {
				each = " of each"
			}
			a.Reason.Message += fmt.Sprintf("; it has %s of the memory%s%s", one.part, each, l.companions(one))
			one.tellOutgrown(&a.Reason)
		}
	}
	listed, served := map[*lodger]bool{}, map[train.JobID]bool{}
	for _, a := range made.Allocations {
		served[a.Job] = true
	}
	made.Waiting = slices.DeleteFunc(made.Waiting, func(w train.Waiting) bool {
		one := l.byID[w.Job]
		listed[one] = true
		return one != nil && one.host != nil
	})
	for _, one := range l.lodgers {
		switch {
		case one.host != nil:
			made.Allocations = append(made.Allocations, l.allocation(one))
		case !one.at.somewhere() && !listed[one] && !served[one.ID]: // it rode in the last round, and lost its room there
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
	node, ids := l.names(one.at)
	where := fmt.Sprintf("%s of %s of node %s", one.part, train.JoinDevices(ids), node)
	a := train.Allocation{
		Job: one.ID, Node: node, Devices: ids, Memory: one.part, Beside: one.host.ID,
		Reason: train.Reason{Code: ReasonPlaced, Message: "gets " + where + l.companions(one)},
	}
	switch r := one.Running; {
	case slices.Equal(one.held, one.at) && (r == nil || r.Memory == one.part):
		a.Reason = train.Reason{Code: ReasonKept, Message: "keeps " + where + l.companions(one)}
	case one.held.somewhere():
		a.Reason = train.Reason{Code: ReasonMoved, Message: "goes on with " + where + l.companions(one)}
	}
	one.tellOutgrown(&a.Reason)
	if one.predicted.source != fromNothing {
		a.RemainingSeconds = one.remaining(len(one.at))
	}
	return a
}

// names are those of devices and their node.
func (l *lodgings) names(at spots) (train.NodeID, []train.DeviceID) {
	n := &l.board.nodes[at[0].node]
	ids := make([]train.DeviceID, len(at))
	for i, d := range at {
		ids[i] = n.devices[d.device].ID
	}
	return n.id, ids
}

// companions names who else is on the devices of a job, and says what that costs it.
func (l *lodgings) companions(one *lodger) string {
	jobs := l.company(one.at)
	var names []string
	for _, other := range jobs {
		if other != one && other.at.meets(one.at) {
			names = append(names, string(other.ID))
		}
	}
	if len(names) == 0 {
		return ""
	}
	rates, measured := sharing.Rates(l.interference(one.at[0]), l.tenants(jobs))
	i := slices.Index(jobs, one)
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
	if len(w.Blockers) > 0 && slices.Contains([]string{ReasonNoNode, ReasonDevicesTooFew, ReasonDevicesKept}, w.Blockers[0].Code) {
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
			most = max(most, l.leftOnSeveral(one, here.host))
		}
	}
	where, found := "one device", "a device that may be shared"
	if one.min > 1 {
		where = fmt.Sprintf("each of %d devices of one node", one.min)
		found = "each of so many that one job shares"
	}
	words := fmt.Sprintf("needs %s of GPU memory on %s%s; ", one.memory, where, wished(one.candidate))
	if most > 0 {
		return train.Reason{Code: ReasonWaitingForMemory, Message: words + fmt.Sprintf("the most that is free on %s is %s", found, most)}
	}
	return train.Reason{Code: ReasonWaitingForMemory, Message: words + "no device is free, and none that jobs of its tenant share has memory left"}
}

// leftOnSeveral is what a job may have of each of as many devices of a host as it needs; 0 where the host has fewer.
func (l *lodgings) leftOnSeveral(one, host *lodger) unit.Bytes {
	var left []unit.Bytes
	for _, d := range host.at {
		left = append(left, l.leftFor(one, l.lodgingAt(d)))
	}
	slices.Sort(left)
	if i := len(left) - one.min; i >= 0 {
		return left[i]
	}
	return 0
}

// disturbs is the reason of a job that would find room, but beside jobs with which it does too little. It names the device where that is least bad.
func (l *lodgings) disturbs(one *lodger) (reason train.Reason, found bool) {
	if one.leaves && len(l.company(one.left)) > 0 {
		return train.Reason{Code: ReasonSlowTogether, Message: l.disturbance(one, one.left)}, true
	}
	alike := l.likeness(one)
	if known, before := l.reasons[alike]; before {
		return known, known.Code != ""
	}
	var best spots
	most := 0.0
	for _, at := range l.rooms(one) {
		if together := l.together(one, at); !best.somewhere() || together > most {
			best, most = at, together
		}
	}
	if best.somewhere() {
		reason = train.Reason{Code: ReasonSlowTogether, Message: l.disturbance(one, best)}
	}
	l.reasons[alike] = reason
	return reason, best.somewhere()
}

// together is what jobs would do with one more on their devices, as a part of what the weightiest of them would do alone.
func (l *lodgings) together(one *lodger, at spots) float64 {
	tenants := append(l.tenants(l.company(at)), l.tenant(one, at))
	rates, _ := sharing.Rates(l.interference(at[0]), tenants)
	sum, alone := 0.0, 0.0
	for i, t := range tenants {
		sum, alone = sum+t.Weight*rates[i], max(alone, t.Weight)
	}
	return sum / alone
}

// disturbance says why a job does not go where it would find room.
func (l *lodgings) disturbance(one *lodger, at spots) string {
	node, ids := l.names(at)
	where := fmt.Sprintf("%s of node %s", train.JoinDevices(ids), node)
	if l.reserved(one, at) {
		if len(at) > 1 {
			return "some of " + where + " are kept for a job that has waited too long for devices of its own"
		}
		return where + " is kept for a job that has waited too long for a device of its own"
	}
	jobs := l.company(at)
	tenants := append(l.tenants(jobs), l.tenant(one, at))
	rates, measured := sharing.Rates(l.interference(at[0]), tenants)
	var words []string
	for i, job := range append(jobs, one) {
		if job == one || job.at.meets(at) {
			words = append(words, fmt.Sprintf("%s at %.0f %% of its speed alone (%s)", job.ID, 100*rates[i], basis(measured[i])))
		}
	}
	verb := "waits for a device of its own: together on "
	if len(at) > 1 {
		verb = "waits for devices of its own: together on "
	}
	if one.leaves {
		verb = "leaves those beside whom it was: together on "
	}
	who := "they"
	if sharing.Crawls(tenants, rates) {
		who = "one of them"
	}
	return verb + where + " " + who + " would get too little done, " + several(words)
}
