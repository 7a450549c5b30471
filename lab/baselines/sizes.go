package baselines

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
)

// bounds are what quotas and the power budget leave while a policy counts devices, before it places them.
type bounds struct {
	quotas map[string]int
	// watts is the power left. deviceWatts is the most that a device draws more when a job has it.
	watts, deviceWatts float64
}

// slackWatts is less than any device draws: watts are rounded, and summed in another order each time.
const slackWatts = 1e-3

func newBounds(r *policy.Round) bounds {
	return bounds{maps.Clone(r.Ledger.Quotas()), r.Ledger.Watts(), r.MostWatts}
}

// most is the number of devices that a tenant may still get.
func (b *bounds) most(tenant string) int {
	most := math.MaxInt32
	if left, bound := b.quotas[tenant]; bound {
		most = max(left, 0)
	}
	if b.deviceWatts > 0 && b.watts < float64(most)*b.deviceWatts {
		most = max(int((b.watts+slackWatts)/b.deviceWatts), 0)
	}
	return most
}

func (b *bounds) take(tenant string, devices int) {
	if _, bound := b.quotas[tenant]; bound {
		b.quotas[tenant] -= devices
	}
	b.watts -= float64(devices) * b.deviceWatts
}

// runRequested walks a line of gangs. A gang runs if the devices that its user asked for are still free in number,
// where it is if it can; later gangs may pass one that does not fit.
func runRequested(r *policy.Round, line []*cluster.Gang) {
	var running, starting []*cluster.Gang
	left, b := r.Total-r.Ledger.Taken(), newBounds(r)
	for _, g := range line {
		if g.Least > min(left, b.most(g.Spec.Tenant)) {
			continue
		}
		left -= g.Least
		b.take(g.Spec.Tenant, g.Least)
		if g.Held.Size() == g.Least {
			running = append(running, g)
		} else {
			starting = append(starting, g)
		}
	}
	for _, g := range running {
		if !r.Keep(g) {
			starting = append(starting, g)
		}
	}
	for _, g := range starting {
		pack(r, g, g.Least)
	}
}

// resize gives each gang of a line a number of devices. A gang whose size does not change stays where it is; the others
// are placed again, the small ones first.
func resize(r *policy.Round, line []*cluster.Gang, sizes []int) {
	var placed []int
	b := newBounds(r)
	for i, g := range line {
		sizes[i] = min(sizes[i], b.most(g.Spec.Tenant))
		b.take(g.Spec.Tenant, sizes[i])
		if sizes[i] > 0 && (g.Held.Size() != sizes[i] || !r.Keep(g)) {
			placed = append(placed, i)
		}
	}
	slices.SortStableFunc(placed, func(x, y int) int { return cmp.Compare(sizes[x], sizes[y]) })
	for _, i := range placed {
		pack(r, line[i], sizes[i])
	}
}
