package tune

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Beat is a heartbeat of one of the jobs.
type Beat struct {
	Job     train.JobID
	Attempt int
	// At is the time at which the node agent received it.
	At time.Time
	// Generation and MicroBatch are those under which the job runs; 0 if it does not report them.
	Generation uint64
	MicroBatch int
	// Step counts all optimizer steps. The last Steps of them took StepSeconds each. If Steps is 0 the job reports
	// only the mean of its whole run.
	Step, Steps int
	StepSeconds float64
}

// A mean step time needs at least this many steps and this much time.
const (
	leastSteps   = 5
	leastSeconds = 3.0
)

// measure returns the mean step time of each job since all of them run as requested. missing names a job whose time
// is not known yet. The first heartbeat of each covers earlier steps and warming up, and does not count.
func (r *Record) measure(beats []Beat) (seconds []float64, missing train.JobID) {
	own := make([][]Beat, len(r.Sharers))
	var from time.Time
	for i, s := range r.Sharers {
		own[i] = r.beatsOf(i, beats)
		if s.Fixed {
			continue
		}
		if len(own[i]) == 0 {
			return nil, s.Job
		}
		if first := own[i][0].At; first.After(from) {
			from = first
		}
	}
	seconds = make([]float64, len(r.Sharers))
	for i, s := range r.Sharers {
		if s.Silent {
			continue
		}
		for len(own[i]) > 0 && own[i][0].At.Before(from) {
			own[i] = own[i][1:]
		}
		mean, enough := meanStep(own[i])
		if !enough {
			return nil, s.Job
		}
		seconds[i] = mean
	}
	return seconds, ""
}

// beatsOf returns the heartbeats of a job that ran as requested.
func (r *Record) beatsOf(i int, beats []Beat) []Beat {
	var own []Beat
	s := r.Sharers[i]
	for _, b := range beats {
		asRequested := s.Fixed || b.Generation == r.Generation && b.MicroBatch == r.Tenants[i].MicroBatch
		if b.Job == s.Job && b.Attempt == s.Attempt && asRequested {
			own = append(own, b)
		}
	}
	return own
}

// meanStep returns the mean time of the steps after the first heartbeat.
func meanStep(beats []Beat) (seconds float64, enough bool) {
	if len(beats) < 2 {
		return 0, false
	}
	first, last := beats[0], beats[len(beats)-1]
	steps, sum := 0, 0.0
	for _, b := range beats[1:] {
		steps += b.Steps
		sum += float64(b.Steps) * b.StepSeconds
	}
	elapsed := last.At.Sub(first.At).Seconds()
	if steps == 0 {
		steps, sum = last.Step-first.Step, elapsed
	}
	if steps < leastSteps || elapsed < leastSeconds || !(sum > 0) {
		return 0, false
	}
	return sum / float64(steps), true
}
