package nodeagent

import (
	"context"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// trialSettings holds what is wanted of the jobs of trials: how far they may train for now, and the system parameters
// that an agent applies. Training code that has got that far has to stop at its next question, so no unwanted epoch is
// trained.
type trialSettings struct {
	mu     sync.Mutex
	wanted map[train.JobID]train.Setting
	synced *tick.Latch
}

// settingsTimeout is how long training code waits for an agent that has just started: within it the agent has read
// the settings, or the bus is unreachable.
const settingsTimeout = 5 * time.Second

func newTrialSettings() *trialSettings {
	return &trialSettings{wanted: map[train.JobID]train.Setting{}, synced: tick.NewLatch()}
}

func (s *trialSettings) onSetting(e bus.Entry[train.Setting], deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if deleted {
		delete(s.wanted, train.JobID(e.Key))
		return
	}
	s.wanted[train.JobID(e.Key)] = e.Value
}

// paused reports whether a job with this many finished epochs has to leave.
func (s *trialSettings) paused(ctx context.Context, job train.JobID, epochsDone int) bool {
	within, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	s.synced.Wait(within)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[job].Pauses(epochsDone)
}

// microBatch returns the micro-batch for the attempt of a trial, and its generation; false if none is wanted.
func (s *trialSettings) microBatch(a train.Attempt) (wanted train.TunedJob, generation uint64, tuned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	setting := s.wanted[a.Job]
	wanted, tuned = setting.MicroBatch(a.DeviceCount())
	return wanted, setting.Generation, tuned
}

// watts returns what each GPU of a trial's job may draw; 0 if no limit is wanted.
func (s *trialSettings) watts(job train.JobID) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[job].Values[train.SettingPowerLimit]
}
