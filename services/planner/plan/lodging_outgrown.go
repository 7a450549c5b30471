package plan

import (
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// seeOutgrown settles what becomes of jobs that use more than their part. The others on the device keep theirs; the job that has outgrown its own has more of
// the same device if that is left, which takes a restart, and else looks for a place like one that waits. One that cannot be asked to leave stays. Until an
// attempt has left, nobody comes to the memory that it uses.
func (l *lodgings) seeOutgrown() {
	l.owed = map[spot]unit.Bytes{}
	kept := map[spot]unit.Bytes{}
	count := func(sum map[spot]unit.Bytes, at spots, more unit.Bytes) {
		for _, d := range at {
			sum[d] += more
		}
	}
	var outgrown []*lodger
	for _, one := range l.lodgers {
		if r := one.Running; r != nil && one.Outgrown && r.Memory > 0 && r.Memory < one.Spec.SharedMemory() {
			one.outgrown = l.find(&r.Holding)
		}
		if one.outgrown.somewhere() {
			outgrown = append(outgrown, one)
		} else if one.held.somewhere() {
			count(kept, one.held, l.partAt(one, one.held))
		}
	}
	for _, one := range outgrown {
		at := one.outgrown
		part := l.partAt(one, at)
		lacks := func(d spot) bool { return kept[d] > 0 && (part == 0 || part > l.device(d).Memory-kept[d]) }
		switch {
		case one.silent:
			count(l.owed, at, one.memory-one.Running.Memory)
		case !slices.Equal(one.held, at): // it was sent away before
			count(l.owed, at, one.memory)
		case !slices.ContainsFunc(at, lacks):
			count(kept, at, part)
			// The policy sees it as one that restarts, as it does when the plan is made again.
			planned := *one.Planned
			planned.Memory = part
			l.replan(one, &planned)
		default:
			count(l.owed, at, one.memory)
			one.held = nil
			l.replan(one, nil)
		}
	}
}

// replan has a job hold something else than the last plan says.
func (l *lodgings) replan(one *lodger, h *Holding) {
	l.state.Jobs = slices.Clone(l.state.Jobs)
	i := slices.IndexFunc(l.state.Jobs, func(j Job) bool { return j.ID == one.ID })
	l.state.Jobs[i].Planned = h
}

// leftFor is what a job may have of a shared device: for whoever is there already all that the plan leaves.
func (l *lodgings) leftFor(one *lodger, here *lodging) unit.Bytes {
	if one.held.has(here.spot) || one.outgrown.has(here.spot) {
		return here.left
	}
	return here.left - l.owed[here.spot]
}

// tellOutgrown adds to a reason that the job leaves for its own need.
func (one *lodger) tellOutgrown(r *train.Reason) {
	if one.outgrown.somewhere() && !one.silent {
		r.Code = ReasonMemoryOutgrown
		r.Message += fmt.Sprintf("; it has outgrown the %s with which it was started", one.Running.Memory)
	}
}
