package pipeline

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// costs are the measurements of the trials of one workload.
type costs contract.WorkloadCosts

// mostRecords bounds the stored workloads; the one trained longest ago goes first.
const mostRecords = 64

// mostEpochs bounds the weight of the past, so that a machine that has become slower is noticed.
const mostEpochs = 20

// Learn adds the measurements of a trial's epochs: its workload's record moves to the end. It does not change known.
func Learn(known []contract.WorkloadCosts, t *Trial) []contract.WorkloadCosts {
	r := costs{Workload: t.Workload, Name: t.Name, Kind: t.Kind, BatchSize: t.BatchSize, Unit: t.Unit, Default: t.Default()}
	others := slices.DeleteFunc(slices.Clone(known), func(k contract.WorkloadCosts) bool {
		if k.Workload == t.Workload {
			r.Measured, r.Failed = slices.Clone(k.Measured), slices.Clone(k.Failed)
			r.Kind = cmp.Or(r.Kind, k.Kind)
		}
		return k.Workload == t.Workload
	})
	for _, e := range t.Ended {
		r.add(e)
	}
	for _, s := range t.Failed {
		r.add(Epoch{Setting: s, Failed: true})
	}
	if len(r.Measured)+len(r.Failed) > 0 {
		others = append(others, contract.WorkloadCosts(r))
	}
	return others[max(len(others)-mostRecords, 0):]
}

// ownRecord returns the record of the trial's workload, empty if nothing is known.
func ownRecord(t *Trial, known []contract.WorkloadCosts) costs {
	if i := slices.IndexFunc(known, func(r contract.WorkloadCosts) bool { return r.Workload == t.Workload }); i >= 0 {
		return costs(known[i])
	}
	return costs{Workload: t.Workload, Default: t.Default()}
}

func (r *costs) add(e Epoch) {
	i := r.find(e.Setting)
	switch {
	case e.Failed:
		if !slices.ContainsFunc(r.Failed, e.Setting.Equal) {
			r.Failed = append(r.Failed, e.Setting)
		}
	case !(e.Cost > 0) || math.IsInf(e.Cost, 1):
	case i < 0:
		r.Measured = append(r.Measured, contract.MeasuredCost{Setting: e.Setting, Cost: e.Cost, Epochs: 1})
	default:
		m := &r.Measured[i]
		m.Epochs = min(m.Epochs+1, mostEpochs)
		m.Cost += (e.Cost - m.Cost) / float64(m.Epochs)
	}
}

// find returns the index of a setting among those measured, or -1.
func (r *costs) find(s contract.SettingValues) int {
	return slices.IndexFunc(r.Measured, func(m contract.MeasuredCost) bool { return m.Setting.Equal(s) })
}

// ruledOut reports whether a setting must fail because another one did: it has moved at least as far from the default,
// in the same direction, in each factor that the failed one moved.
func (r *costs) ruledOut(s contract.SettingValues) bool {
	beyond := func(failed contract.SettingValues) bool {
		moved := false
		for name, base := range r.Default {
			far, here := math.Log2(failed[name]/base), math.Log2(s[name]/base)
			if far > 0 && here < far || far < 0 && here > far {
				return false
			}
			moved = moved || far != 0
		}
		return moved
	}
	return slices.ContainsFunc(r.Failed, beyond)
}
