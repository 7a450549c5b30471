package planner

import "github.com/switchyard-dl/switchyard/libs/train"

// restartMean is the mean time from the end of an attempt that was asked to leave to the start of the next one,
// over the latest restarts.
type restartMean struct {
	left       map[train.JobID]train.Attempt
	sum, count float64
}

// remembered is about the number of restarts that count.
const remembered = 20

func (r *restartMean) see(a train.Attempt) {
	if a.Phase == train.PhaseExited {
		if a.Outcome == train.OutcomePreempted && !a.ExitedAt.IsZero() {
			r.left[a.Job] = a
		}
		return
	}
	before, left := r.left[a.Job]
	if !left || a.StartedAt.IsZero() {
		return
	}
	delete(r.left, a.Job)
	if a.Number != before.Number+1 {
		return
	}
	if r.count == remembered {
		r.sum, r.count = r.sum*(remembered-1)/remembered, remembered-1
	}
	r.sum += max(a.StartedAt.Sub(before.ExitedAt).Seconds(), 0)
	r.count++
}

// seconds returns the mean; 0 before the first restart.
func (r *restartMean) seconds() float64 {
	if r.count == 0 {
		return 0
	}
	return r.sum / r.count
}
