package policy

import (
	"math"
	"slices"
)

// refine makes the sum of the options' values the most that there is, pool after pool, as long as that is little work:
// prices alone leave a gap where sizes are whole nodes and there are few of them. Where tenants have quotas, or there
// is a power budget, it stays at the prices.
func (m *allocation) refine() {
	if len(m.limits) > len(m.pools) {
		return
	}
	const mostSteps, fewOptions, rounds = 1 << 20, 24, 2
	for round := range rounds {
		for k := range m.pools {
			if steps := len(m.jobs) * m.pools[k].free * fewOptions; steps > mostSteps || round > 0 && len(m.pools) == 1 {
				continue
			}
			m.refinePool(k)
		}
	}
}

// refinePool is a knapsack: each job has an option of this pool or what it has elsewhere, and together they need no
// more devices than there are.
func (m *allocation) refinePool(pool int) {
	size := m.pools[pool].free
	// most is, by number of devices, the largest sum of values for the jobs so far; chosen is the option of the last of
	// them in that sum, none if it has none of this pool.
	most, next := make([]float64, size+1), make([]float64, size+1)
	chosen := make([][]int16, len(m.jobs))
	for i, b := range m.jobs {
		row := make([]int16, size+1)
		value, least := 0.0, 0
		if b.floor != nil {
			value, least = math.Inf(-1), b.floor.devices // it cannot go without
		}
		if b.chosen != nil && b.chosen.pool != pool {
			value = b.chosen.value
		}
		for d := range row {
			next[d], row[d] = most[d]+value, none
		}
		for k := range b.options {
			o := &b.options[k]
			if o.pool != pool || o.devices < least {
				continue
			}
			for d := o.devices; d <= size; d++ {
				if v := most[d-o.devices] + o.value; v > next[d] {
					next[d], row[d] = v, int16(k)
				}
			}
		}
		most, next, chosen[i] = next, most, row
	}
	left := size
	for i, b := range slices.Backward(m.jobs) {
		switch at := chosen[i][left]; {
		case at != none:
			b.chosen = &b.options[at]
			left -= b.chosen.devices
		case b.chosen != nil && b.chosen.pool == pool:
			b.chosen = nil
		}
	}
}
