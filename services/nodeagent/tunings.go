package nodeagent

import (
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tunings are the micro-batches that the planner wants of jobs that share a device. Training code is told them with every answer, so nothing is lost with a
// message, a process or this agent.
type tunings struct {
	mu     sync.Mutex
	wanted map[string]standing
	// now is this node's clock.
	now func() time.Time
	// trials gives the micro-batch of a trial that has one of its own. It goes before.
	trials func(train.Attempt) (wanted train.TunedTenant, generation uint64, tuned bool)
}

// standing is a tuning, and when this agent saw that its micro-batches stand so. The record's own time is that of the planner's clock, and is not to be compared
// with times of this node.
type standing struct {
	train.Tuning
	seen time.Time
}

func newTunings(trials *wishes, now func() time.Time) *tunings {
	return &tunings{wanted: map[string]standing{}, now: now, trials: trials.microBatch}
}

func (t *tunings) see(e bus.Entry[train.Tuning], deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if deleted {
		delete(t.wanted, e.Key)
		return
	}
	next := standing{e.Value, t.now().UTC()}
	before, known := t.wanted[e.Key]
	if known && before.Generation == next.Generation && before.Settled.Code == next.Settled.Code {
		next.seen = before.seen
	}
	t.wanted[e.Key] = next
}

// since is when the micro-batches on an attempt's devices became what they are, or this agent came up: now where some are tried, zero where none ever were.
func (t *tunings) since(a train.Attempt, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last time.Time
	for _, d := range a.Devices {
		on, tuned := t.wanted[train.TuningKey(a.Node, d)]
		switch {
		case tuned && on.Settled.Code == "":
			return now
		case on.seen.After(last):
			last = on.seen
		}
	}
	return last
}

// of gives what is wanted of an attempt, and the generation of that; false where nothing is. Only attempts on one device are tuned by the planner.
func (t *tunings) of(a train.Attempt) (wanted train.TunedTenant, generation uint64, tuned bool) {
	if wanted, generation, tuned = t.trials(a); tuned {
		return wanted, generation, true
	}
	if len(a.Devices) != 1 {
		return train.TunedTenant{}, 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.wanted[train.TuningKey(a.Node, a.Devices[0])]
	wanted, tuned = on.Of(a.Job, a.Number)
	return wanted, on.Generation, tuned && wanted.MicroBatch > 0
}
