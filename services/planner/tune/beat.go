package tune

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Beat is what one heartbeat of a tenant says.
type Beat struct {
	Job     train.JobID
	Attempt int
	// At is when the node's agent heard it.
	At time.Time
	// Generation and MicroBatch are what the job runs with; 0 where it does not say.
	Generation uint64
	MicroBatch int
	// Step counts all optimizer steps. The last Steps of them took StepSeconds each; a job of which Steps is 0 tells only the mean of its whole run.
	Step, Steps int
	StepSeconds float64
}

// What a mean step time rests on.
const (
	leastSteps   = 5
	leastSeconds = 3.0
)

// measure gives the mean step time of each tenant from when all of them ran as wanted; missing names one of which that is not known yet. The first heartbeat of
// each tells of steps before that, and of warming up.
func (r *Record) measure(beats []Beat) (seconds []float64, missing train.JobID) {
	own := make([][]Beat, len(r.Sharers))
	var from time.Time
	for i, s := range r.Sharers {
		for _, b := range beats {
			asWanted := s.Fixed || b.Generation == r.Generation && b.MicroBatch == r.Tenants[i].MicroBatch
			if b.Job == s.Job && b.Attempt == s.Attempt && asWanted {
				own[i] = append(own[i], b)
			}
		}
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

// meanStep is the mean time of the steps after the first heartbeat.
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
