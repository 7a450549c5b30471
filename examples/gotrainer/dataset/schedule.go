package dataset

// Schedule says who trains on what in an epoch: Samples samples, in batches of Batch
// samples for each of Workers workers.
type Schedule struct {
	Samples, Batch, Workers int
	// Repeat makes every worker go through the whole set in every epoch, each from a
	// place of its own. Otherwise the epoch is split, and every sample is used once.
	Repeat bool
}

// Steps is the number of steps in an epoch; the last may be a short one.
func (s Schedule) Steps() int {
	stride := s.Batch
	if !s.Repeat {
		stride *= s.Workers
	}
	return (s.Samples + stride - 1) / stride
}

// Append appends to indices the samples of one worker in one step, which may be none
// in the last step. order is the epoch's permutation of the set.
func (s Schedule) Append(indices, order []int, step, worker int) []int {
	if s.Repeat {
		start := worker * s.Samples / s.Workers
		for p := step * s.Batch; p < min((step+1)*s.Batch, s.Samples); p++ {
			indices = append(indices, order[(start+p)%s.Samples])
		}
		return indices
	}
	begin := min((step*s.Workers+worker)*s.Batch, s.Samples)
	return append(indices, order[begin:min(begin+s.Batch, s.Samples)]...)
}
