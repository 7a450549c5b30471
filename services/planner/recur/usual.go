package recur

import "github.com/switchyard-dl/switchyard/libs/contract"

// take adds what an attempt used, if it reached its target.
func (r *Record) take(a contract.GroupAttempt) {
	if !a.Reached {
		return
	}
	if r.Taken == nil {
		r.Taken = map[int]contract.GroupTotals{}
	}
	t := r.Taken[a.BatchSize]
	r.Taken[a.BatchSize] = contract.GroupTotals{
		Jobs: t.Jobs + 1, Epochs: t.Epochs + a.Epochs, EnergyJoules: t.EnergyJoules + a.EnergyJoules, Seconds: t.Seconds + a.Seconds,
	}
}

// Limited notes the best power limit for a batch size, found by windows of one epoch each.
func (r *Record) Limited(batchSize int, watts float64, windows []contract.PowerWindow) {
	if r.LimitsWatts == nil {
		r.LimitsWatts = map[int]float64{}
	}
	r.LimitsWatts[batchSize] = watts
	if r.Unlimited == nil {
		r.Unlimited = map[int]contract.PowerWindow{}
	}
	r.Unlimited[batchSize] = highest(windows)
}
