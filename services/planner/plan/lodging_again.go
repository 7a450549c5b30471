package plan

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// maxAgain bounds how often a decision on jobs that share is made again before it is published.
const maxAgain = 3

// decideShared decides again on what was decided, as if it had been published, and anew with what that shows, until it changes nothing. Who stands before the
// policy depends on what it leaves idle, which is known afterwards alone: without this, the next decision would correct what this one guessed, by restarts.
func decideShared(s State, p Policy) train.Plan {
	l := newLodgings(s)
	made := l.decide(p, l.firstRiders())
	for range maxAgain {
		next := newLodgings(s.published(made))
		again := next.decide(p, next.firstRiders())
		if slices.EqualFunc(made.Allocations, again.Allocations, sameAllocation) {
			made.Memory = again.Memory // the jobs are as old there as the next decision finds them: one who got a rider begins anew
			break
		}
		l = newLodgings(s)
		l.firstRiders() // who lodges where is the same as before, and who stands before the policy is not
		anew := l.decide(p, next.riders())
		if slices.EqualFunc(made.Allocations, anew.Allocations, sameAllocation) {
			return reasonsOf(made, again) // from this state it cannot be had at once
		}
		made = anew
	}
	return made
}

// published is the state in which the next decision finds a plan, if nothing else happens before.
func (s State) published(p train.Plan) State {
	s.Memory = p.Memory
	planned := make(map[train.JobID]*Holding, len(p.Allocations))
	for _, a := range p.Allocations {
		h := HoldingOf(a)
		planned[a.Job] = &h
	}
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		s.Jobs[i].Planned = planned[s.Jobs[i].ID]
	}
	return s
}

// HoldingOf is what a plan gives to a job.
func HoldingOf(a train.Allocation) Holding {
	return Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Beside: a.Beside, Parts: a.Parts, Servers: a.Servers}
}

func sameAllocation(x, y train.Allocation) bool {
	return x.Job == y.Job && x.Beside == y.Beside && slices.EqualFunc(x.Places(), y.Places(), train.Part.Same)
}

// reasonsOf is the second of two plans. Of what it leaves as it was in the first, the first one's reasons are those that hold for the state before both, unless
// the second alone keeps something for who waits.
func reasonsOf(first, second train.Plan) train.Plan {
	for i, a := range second.Allocations {
		if before, had := first.Find(a.Job); had && sameAllocation(before, a) {
			second.Allocations[i].Reason = before.Reason
		}
	}
	for i, w := range second.Waiting {
		if len(w.Blockers) > 0 && w.Blockers[0].Code == ReasonDevicesKept {
			continue
		}
		if k := slices.IndexFunc(first.Waiting, func(o train.Waiting) bool { return o.Job == w.Job }); k >= 0 {
			second.Waiting[i].Blockers = first.Waiting[k].Blockers
		}
	}
	return second
}
