package jobapi

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// stepsSpacing is the least time between two writes of an attempt's steps to its report.
const stepsSpacing = 10 * time.Second

// stepped is the part of a heartbeat that says how far the code is. Step counts over the whole job or attempt, and
// Steps are those since the last heartbeat.
type stepped struct {
	Step, Steps, Epoch int
	// EpochStep is nil in heartbeats of older libraries.
	EpochStep  *int64
	EpochSteps int
	Seconds    float64
}

// step takes in a heartbeat of rank 0 and returns how far the code is. For code that does not count the steps of its
// epoch, those since the last end of an epoch count.
func (s *session) step(b stepped, now time.Time) train.Steps {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.steps.Known() {
		s.steps = s.report.Steps // as an earlier agent noted it
	}
	began := s.steps.Total - s.steps.Done
	if !s.steps.Known() {
		began = max(b.Step-max(b.Steps, 1), 0)
	}
	done := max(b.Step-began, 0)
	if b.EpochStep != nil {
		done = int(*b.EpochStep)
	}
	s.steps = train.Steps{
		Epoch: b.Epoch, Done: done, Of: b.EpochSteps, Total: b.Step, Seconds: b.Seconds, At: now.UTC().Round(0),
	}
	return s.steps
}

// nextEpoch returns how far the code is after the end of an epoch; zero if it reports no steps.
func (s *session) nextEpoch(epochsDone int, now time.Time) train.Steps {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.steps.Known() {
		return train.Steps{}
	}
	s.steps.Epoch, s.steps.Done, s.steps.At = epochsDone, 0, now.UTC().Round(0)
	return s.steps
}

// noteSteps records how far the code is: the first time, every few seconds, and once after it was asked to stop, since
// the time until it has saved its state is then predicted from it.
func (a *API) noteSteps(ctx context.Context, c call, steps train.Steps, anyStep bool) {
	s := c.session
	attempt, report := s.current(), s.known()
	written := report.Steps
	asked := attempt.Stop != train.StopNone && written.At.Before(attempt.StopSince)
	news := asked || anyStep && !report.AnyStep
	if written.Known() && steps.At.Sub(written.At) < stepsSpacing && !news {
		return
	}
	a.note(ctx, s, train.AttemptReport{Spoke: !c.overheard, Steps: steps, AnyStep: anyStep})
}
