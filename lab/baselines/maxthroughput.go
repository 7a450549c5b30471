package baselines

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
)

// MaxThroughput maximises the sum of the jobs' throughputs, each relative to its best model of device, on the devices
// that they ask for: Gavel's policy of that name (Narayanan et al., OSDI'20) with whole rounds instead of time
// shares. It knows the requests and the throughputs that jobs of the same signature have shown on each model; a model
// that was not seen counts as the best, so that it is tried.
type MaxThroughput struct{ requested }

// Name is max-throughput.
func (MaxThroughput) Name() string { return "max-throughput" }

// offer is a gang on a group of nodes of one model.
type offer struct {
	gang  *cluster.Gang
	group *group
	value float64
}

// Decide takes the offers of the highest value.
func (MaxThroughput) Decide(r *policy.Round) {
	left := map[*group]int{}
	taken := map[*cluster.Gang]bool{}
	var starting []offer
	all := groups(r)
	for _, of := range all {
		left[of] = of.free(r)
	}
	for _, o := range offers(r, all) {
		n, held := o.gang.Least, o.gang.Held
		if taken[o.gang] || n > left[o.group] {
			continue
		}
		taken[o.gang] = true
		left[o.group] -= n
		stays := held.Size() == n && r.Nodes[held.Parts[0].Node].Model == o.group.model
		if !stays || !r.Keep(o.gang) {
			starting = append(starting, o)
		}
	}
	for _, o := range starting {
		o.group.pack(r, o.gang, o.gang.Least)
	}
}

// offers returns the offers of all gangs on all groups, the most valuable first.
func offers(r *policy.Round, groups []*group) []offer {
	line := bySubmission(r)
	rates := ratesByModel(line)
	var all []offer
	for _, of := range groups {
		for _, g := range line {
			// The value of a device-second, a little more on the model where the gang runs: a move costs a restart.
			value := relativeRate(rates[signature(g)], of.model) / float64(g.Least)
			if !g.Held.Empty() && r.Nodes[g.Held.Parts[0].Node].Model == of.model {
				value *= 1.1
			}
			all = append(all, offer{g, of, value})
		}
	}
	slices.SortStableFunc(all, func(x, y offer) int { return cmp.Compare(y.value, x.value) })
	return all
}

// ratesByModel are the mean samples per second and device that each signature has shown on each model of device.
func ratesByModel(gangs []*cluster.Gang) map[string]map[string]float64 {
	type sum struct{ seconds, samples float64 }
	sums := map[string]map[string]sum{}
	for _, g := range gangs {
		for _, s := range g.Ran() {
			if sums[signature(g)] == nil {
				sums[signature(g)] = map[string]sum{}
			}
			x := sums[signature(g)][s.Device]
			sums[signature(g)][s.Device] = sum{x.seconds + s.StepSeconds, x.samples + float64(s.LocalBatch)}
		}
	}
	rates := map[string]map[string]float64{}
	for signature, models := range sums {
		rates[signature] = map[string]float64{}
		for model, x := range models {
			rates[signature][model] = x.samples / x.seconds
		}
	}
	return rates
}

// relativeRate is the throughput on a model relative to the best one seen; 1 on a model that was not seen.
func relativeRate(rates map[string]float64, model string) float64 {
	rate, seen := rates[model]
	if !seen {
		return 1
	}
	best := rate
	for _, other := range rates {
		best = max(best, other)
	}
	return rate / best
}

// signature is equal for jobs that run the same training.
func signature(g *cluster.Gang) string { return g.Spec.Signature() }
