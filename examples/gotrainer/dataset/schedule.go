package dataset

// Schedule determines the samples of each worker in an epoch: Samples samples, in steps in which each of Workers
// workers has a batch. Batches may differ from step to step.
type Schedule struct {
	Samples, Workers int
	// Repeat makes every worker go through the whole set in every epoch, each from its own start. Otherwise the epoch
	// is split, and every sample is used once.
	Repeat bool
}

// Done reports whether the epoch is over when each worker has had a number of samples.
func (s Schedule) Done(had int) bool {
	if !s.Repeat {
		had *= s.Workers
	}
	return had >= s.Samples
}

// Append appends to indices the samples of one worker in a step with batch samples for each, after each has had a
// number of samples; in the last step these may be fewer, or none. order is the epoch's permutation of the set.
func (s Schedule) Append(indices, order []int, had, batch, worker int) []int {
	if s.Repeat {
		start := worker * s.Samples / s.Workers
		for p := had; p < min(had+batch, s.Samples); p++ {
			indices = append(indices, order[(start+p)%s.Samples])
		}
		return indices
	}
	begin := min(had*s.Workers+worker*batch, s.Samples)
	return append(indices, order[begin:min(begin+batch, s.Samples)]...)
}
