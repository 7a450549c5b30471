package nodeagent

import (
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tunings are the micro-batches that the planner wants of jobs that share a device. Every answer to training code
// repeats them, so nothing is lost with a message, a process or this agent.
type tunings struct {
	mu     sync.Mutex
	wanted map[string]observedTuning
	// now is this node's clock.
	now func() time.Time
	// trials returns the micro-batch of a trial with its own micro-batch. It takes precedence.
	trials func(train.Attempt) (wanted train.TunedJob, generation uint64, tuned bool)
}

// observedTuning is a tuning, and when this agent first saw its micro-batches. The record's own time comes from the
// planner's clock and cannot be compared with times of this node.
type observedTuning struct {
	train.Tuning
	seen time.Time
}

func newTunings(trials *trialSettings, now func() time.Time) *tunings {
	return &tunings{wanted: map[string]observedTuning{}, now: now, trials: trials.microBatch}
}

func (t *tunings) onTuning(e bus.Entry[train.Tuning], deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if deleted {
		delete(t.wanted, e.Key)
		return
	}
	next := observedTuning{e.Value, t.now().UTC()}
	before, known := t.wanted[e.Key]
	if known && before.Generation == next.Generation && before.Settled.Code == next.Settled.Code {
		next.seen = before.seen
	}
	t.wanted[e.Key] = next
}

// since returns when the micro-batches on an attempt's devices were last changed, or when this agent came up. It
// returns now while some are tried, and zero if none ever were.
func (t *tunings) since(a train.Attempt, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last time.Time
	for _, p := range a.Places() {
		for _, d := range p.Devices {
			on, tuned := t.wanted[train.TuningKey(p.Node, d)]
			switch {
			case tuned && on.Settled.Code == "":
				return now
			case on.seen.After(last):
				last = on.seen
			}
		}
	}
	return last
}

// of returns what is wanted of an attempt, and its generation; false if nothing is. The planner only tunes attempts
// on one device.
func (t *tunings) of(a train.Attempt) (wanted train.TunedJob, generation uint64, tuned bool) {
	if wanted, generation, tuned = t.trials(a); tuned {
		return wanted, generation, true
	}
	if len(a.Devices) != 1 {
		return train.TunedJob{}, 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.wanted[train.TuningKey(a.Node, a.Devices[0])]
	wanted, tuned = on.Of(a.Job, a.Number)
	return wanted, on.Generation, tuned && wanted.MicroBatch > 0
}
