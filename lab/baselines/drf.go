package baselines

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// DRF is dominant resource fairness (Ghodsi et al., NSDI'11) among jobs: devices go one by one to the job with the
// fewest, up to what it asks for. If whole devices are the only scarce resource, that is max-min fairness. It knows
// nothing but the requests.
type DRF struct{ requested }

// Name is drf.
func (DRF) Name() string { return "drf" }

// Bounds are from one device to those that the user asks for.
func (p DRF) Bounds(j *state.Job, spec train.Spec) (least, most int) {
	_, most = p.requested.Bounds(j, spec)
	return 1, most
}

// Decide gives devices in turn.
func (DRF) Decide(r *policy.Round) {
	line := bySubmission(r)
	sizes := make([]int, len(line))
	left, largest := r.Total-r.Ledger.Taken(), largestGroup(r)
	for given := true; given && left > 0; {
		given = false
		for i, g := range line {
			if left > 0 && sizes[i] < min(g.Most, largest) {
				sizes[i]++
				left--
				given = true
			}
		}
	}
	resize(r, line, sizes)
}
