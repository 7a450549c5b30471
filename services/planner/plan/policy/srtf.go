package policy

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// SRTF serves jobs by priority and then by the shortest predicted remaining time. A job may take the devices of a
// running one of the same priority, if that one would run longer even after the price of its restart and a tenth of its
// time are taken off. If a job has no model, the user's estimate counts, and without it the median of the others. A job
// that does not fit lets later ones pass.
type SRTF struct{}

// Name is srtf.
func (SRTF) Name() string { return "srtf" }

// Bounds returns the bounds that the user asked for.
func (SRTF) Bounds(j *state.Job, spec train.Spec) (least, most int) { return Declared(j, spec) }

// Decide serves the shortest jobs first.
func (SRTF) Decide(r *Round) {
	r.ClaimAll()
	turn := 0
	for _, tier := range r.Tiers() {
		// A gang that must not be stopped now comes first; a gang that lost its devices to a higher priority queues with the
		// others.
		line := make([]*cluster.Gang, 0, len(tier))
		for _, g := range tier {
			if mayStop(g) || !r.Keep(g) {
				line = append(line, g)
			}
		}
		left := make(map[*cluster.Gang]float64, len(line))
		for _, g := range line {
			left[g] = shortness(r, g)
		}
		slices.SortStableFunc(line, func(x, y *cluster.Gang) int { return cmp.Compare(left[x], left[y]) })
		for _, g := range line {
			g.Turn, turn = turn, turn+1
			if !mayStop(g) || !r.Keep(g) {
				r.Serve(g)
			}
		}
	}
}

func mayStop(g *cluster.Gang) bool { return g.MayMove && !g.Held.Empty() }

// shortness is the remaining time by which a gang is ordered. A gang that holds devices is favoured by the cost of
// stopping it.
func shortness(r *Round, g *cluster.Gang) float64 {
	if !mayStop(g) {
		return g.Remaining(g.Least)
	}
	return g.Remaining(g.Held.Size())*(1-r.Tuning.Hysteresis) - r.Tuning.RestartSeconds
}
