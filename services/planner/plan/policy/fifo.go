package policy

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// FIFO serves jobs strictly in order of priority, then of submission. Each takes as many devices as are free, up to
// max_devices; running jobs stay as they are. The first job that finds too few blocks all behind it: nothing is
// backfilled.
type FIFO struct{}

// Name is fifo.
func (FIFO) Name() string { return "fifo" }

// Bounds returns the bounds that the user asked for.
func (FIFO) Bounds(j *state.Job, spec train.Spec) (least, most int) { return Declared(j, spec) }

// Decide serves the line.
func (FIFO) Decide(r *Round) {
	r.ClaimAll()
	var head *cluster.Gang
	for _, tier := range r.Tiers() {
		// Jobs of one priority do not take devices from each other: those that hold some come first.
		for _, g := range r.KeepAll(tier) {
			if head != nil {
				g.Head = head
				continue
			}
			if !r.Serve(g) && r.Possible(g) && !r.Ledger.Barred(g) {
				head = g
			}
		}
	}
}
