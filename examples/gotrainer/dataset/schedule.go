package dataset

// Schedule determines the samples of each worker in an epoch: Samples samples, in steps that Workers workers share out
// as evenly as they divide. Steps may differ in size.
type Schedule struct {
	Samples, Workers int
	// Repeat makes every worker go through the whole set in every epoch, each from its own start. Otherwise the epoch
	// is split, and every sample is used once.
	Repeat bool
}

// Done reports whether the epoch is over when the workers together have had a number of samples.
func (s Schedule) Done(had int) bool { return had >= s.total() }

// Steps returns how many steps of batch samples are left when the workers together have had a number of samples.
func (s Schedule) Steps(had, batch int) int { return max(s.total()-had+batch-1, 0) / batch }

// total returns the number of samples that the workers together have in an epoch.
func (s Schedule) total() int {
	if s.Repeat {
		return s.Samples * s.Workers
	}
	return s.Samples
}

// Append appends to indices the samples of one worker in a step of batch samples, after all have had a number of them;
// in the last step a worker may have fewer, or none. order is the epoch's permutation of the set.
func (s Schedule) Append(indices, order []int, had, batch, worker int) []int {
	if s.Repeat {
		start := worker * s.Samples / s.Workers
		for p := (had + worker) / s.Workers; p < min((had+batch+worker)/s.Workers, s.Samples); p++ {
			indices = append(indices, order[(start+p)%s.Samples])
		}
		return indices
	}
	begin := min(had+batch*worker/s.Workers, s.Samples)
	return append(indices, order[begin:min(had+batch*(worker+1)/s.Workers, s.Samples)]...)
}
