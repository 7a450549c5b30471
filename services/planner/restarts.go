package planner

import "github.com/switchyard-dl/switchyard/libs/train"

// restartMean is the mean time for which an attempt that goes on held its devices before its processes ran, over the
// latest restarts. How long a job waited in the queue before that is no price of a restart: its devices worked for
// others.
type restartMean struct {
	counted    map[train.JobID]int // by job, the attempt that was counted
	sum, count float64
}

// remembered is about the number of restarts that count.
const remembered = 20

func (r *restartMean) see(a train.Attempt) {
	switch {
	case a.Phase == train.PhaseExited:
		delete(r.counted, a.Job)
		return
	case a.Number < 2 || a.ClaimedAt.IsZero() || a.StartedAt.IsZero() || r.counted[a.Job] == a.Number:
		return
	}
	r.counted[a.Job] = a.Number
	if r.count == remembered {
		r.sum, r.count = r.sum*(remembered-1)/remembered, remembered-1
	}
	r.sum += max(a.StartedAt.Sub(a.ClaimedAt).Seconds(), 0)
	r.count++
}

// seconds returns the mean; 0 before the first restart.
func (r *restartMean) seconds() float64 {
	if r.count == 0 {
		return 0
	}
	return r.sum / r.count
}
