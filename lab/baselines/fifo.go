package baselines

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
)

// FIFO runs jobs in the order of submission on the devices that they ask for. Running jobs stay; the first job that
// does not fit blocks all behind it. It knows nothing but the requests.
type FIFO struct{ requested }

// Name is fifo.
func (FIFO) Name() string { return "fifo" }

// Decide serves the queue up to the first job that does not fit.
func (FIFO) Decide(r *policy.Round) {
	for _, g := range keepRunning(r) {
		possible := g.Least <= min(largestGroup(r), r.Ledger.Allowed(g, r.MostWatts))
		if possible && !pack(r, g, g.Least) {
			return
		}
	}
}

// keepRunning lets running gangs stay where they are and returns the others, in the order of submission.
func keepRunning(r *policy.Round) []*cluster.Gang {
	var waiting []*cluster.Gang
	for _, g := range bySubmission(r) {
		if !r.Keep(g) {
			waiting = append(waiting, g)
		}
	}
	return waiting
}

// SRTF runs the jobs with the shortest true remaining time on the devices that they ask for, and preempts for them.
// It knows the future: the true remaining steps and step times.
type SRTF struct{ requested }

// Name is srtf.
func (SRTF) Name() string { return "srtf" }

// Decide serves the shortest jobs first.
func (p SRTF) Decide(r *policy.Round) {
	line := bySubmission(r)
	left := make(map[*cluster.Gang]float64, len(line))
	for _, g := range line {
		if o := p.trace[g.ID]; o != nil && len(o.StepSeconds) > 0 {
			left[g] = o.RemainingSteps(g.EpochsDone) * o.StepSeconds[min(g.Least, len(o.StepSeconds))-1]
		}
	}
	slices.SortStableFunc(line, func(x, y *cluster.Gang) int { return cmp.Compare(left[x], left[y]) })
	runRequested(r, line)
}
