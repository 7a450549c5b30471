package plan

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// FIFO serves jobs strictly in order of priority, then of submission. Each takes as many devices as are free, up to max_devices; running jobs stay
// as they are. The first job that finds too few blocks all behind it: nothing is backfilled.
type FIFO struct{}

// Name is fifo.
func (FIFO) Name() string { return "fifo" }

func (p FIFO) decide(s State) train.Plan { return settle(s, p) }

func (FIFO) share(b *board) {
	var head *candidate
	for _, tier := range b.tiers() {
		// Jobs of one priority do not take devices from each other: those that hold some come first.
		waiting := b.keepAll(tier)
		for _, c := range waiting {
			if head != nil {
				c.head = head
				continue
			}
			if !b.serve(c) && b.possible(c) && !b.barred(c) {
				head = c
			}
		}
	}
}

// tiers are the unpinned jobs by priority, highest first; within one in order of submission.
func (b *board) tiers() [][]*candidate {
	var tiers [][]*candidate
	for _, c := range b.jobs {
		if c.pinned {
			continue
		}
		if last := len(tiers) - 1; last >= 0 && tiers[last][0].Priority == c.Priority {
			tiers[last] = append(tiers[last], c)
			continue
		}
		tiers = append(tiers, []*candidate{c})
	}
	return tiers
}

// keepAll gives every job of a tier what it holds and returns the others in order.
func (b *board) keepAll(tier []*candidate) []*candidate {
	var waiting []*candidate
	for _, c := range tier {
		if !b.keep(c, c.base.size) {
			waiting = append(waiting, c)
		}
	}
	return waiting
}

// serve gives a job min devices, from lower ones where it must, and up to max of those that nobody claims.
func (b *board) serve(c *candidate) bool {
	at := b.find(c)
	if at == nowhere {
		return false
	}
	b.give(c, at, min(c.max, max(c.min, min(b.nodes[at].unclaimed(), b.most(c, at)))))
	return true
}

// possible says whether some node is large enough for the job.
func (b *board) possible(c *candidate) bool {
	for i := range b.nodes {
		if b.fits(c, &b.nodes[i]) {
			return true
		}
	}
	return false
}

// allowed says whether quotas and the power budget leave enough for a job.
func (b *board) allowed(c *candidate) bool {
	return b.allowance.most(c.Spec.Tenant, b.watts()) >= c.min
}

// barred says whether quotas and the power budget, less what is held by jobs that were not served yet, are too little for a job: whether it can be served
// does not depend on devices then, and it need not hold up those behind it.
func (b *board) barred(c *candidate) bool {
	if len(b.allowance.quotas) == 0 && math.IsInf(b.allowance.watts, 1) {
		return false
	}
	left := b.allowance.clone()
	for _, o := range b.jobs {
		if o.claim > 0 {
			left.take(o.Spec.Tenant, o.claim, b.nodes[o.base.node].watts)
		}
	}
	return left.most(c.Spec.Tenant, b.watts()) < c.min
}

// watts is the most that a device draws more when a job has it.
func (b *board) watts() float64 {
	most := 0.0
	for i := range b.nodes {
		most = max(most, b.nodes[i].watts)
	}
	return most
}
