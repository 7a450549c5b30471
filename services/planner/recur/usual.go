package recur

// Taken is what the jobs of a group that reached their target took with one batch size, added up.
type Taken struct {
	Jobs         int     `json:"jobs"`
	Epochs       int     `json:"epochs"`
	EnergyJoules float64 `json:"energy_joules"`
	Seconds      float64 `json:"seconds"`
}

// take adds what an attempt took, where it reached its target.
func (r *Record) take(a Attempt) {
	if !a.Reached {
		return
	}
	if r.Taken == nil {
		r.Taken = map[int]Taken{}
	}
	t := r.Taken[a.BatchSize]
	r.Taken[a.BatchSize] = Taken{t.Jobs + 1, t.Epochs + a.Epochs, t.EnergyJoules + a.EnergyJoules, t.Seconds + a.Seconds}
}

// Limited notes which power limit was found best for a batch size, out of windows of one epoch each.
func (r *Record) Limited(batchSize int, watts float64, windows []Window) {
	if r.LimitsWatts == nil {
		r.LimitsWatts = map[int]float64{}
	}
	r.LimitsWatts[batchSize] = watts
	if r.Unlimited == nil {
		r.Unlimited = map[int]Window{}
	}
	r.Unlimited[batchSize] = highest(windows)
}

// Usual is what a job of the group takes with a batch size and without a power limit, on average. Jobs that tried limits or ran at one tell only of their epochs:
// each is then taken as the epoch that was measured at the highest limit. known is false where no job with the batch size has reached its target.
func (r *Record) Usual(batchSize int) (joules, seconds float64, known bool) {
	t := r.Taken[batchSize]
	if t.Jobs == 0 {
		return 0, 0, false
	}
	jobs := float64(t.Jobs)
	if w, limited := r.Unlimited[batchSize]; limited && t.Epochs > 0 {
		epochs := float64(t.Epochs) / jobs
		return epochs * w.EnergyJoules, epochs * w.Seconds, true
	}
	return t.EnergyJoules / jobs, t.Seconds / jobs, true
}
