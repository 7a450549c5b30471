package jobapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// beatSpacing is the least time between two published heartbeats of a process.
const beatSpacing = 500 * time.Millisecond

// beats are the heartbeats that wait for the bus: the newest one of each process.
type beats struct {
	mu      sync.Mutex
	waiting map[process]event.Fact
	came    tick.Signal
}

// process is a process of an attempt.
type process struct {
	job           train.JobID
	attempt, rank int
}

func newBeats() *beats {
	return &beats{waiting: map[process]event.Fact{}, came: tick.NewSignal()}
}

// put adds a heartbeat, and reports whether an earlier one of the process still waited, which it replaces.
func (b *beats) put(of process, fact event.Fact) (replaced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, replaced = b.waiting[of]
	b.waiting[of] = fact
	b.came.Send()
	return replaced
}

// take returns the heartbeats that wait, and forgets them.
func (b *beats) take() []event.Fact {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := slices.Collect(maps.Values(b.waiting))
	clear(b.waiting)
	return taken
}

// beat queues a heartbeat. It never waits.
func (a *API) beat(c call, s event.Stepped) {
	if a.usesMemory != nil && s.MemoryBytes > 0 {
		a.usesMemory(c.session.attempt, s.MemoryBytes)
	}
	if !c.session.beatDue(int64(s.Rank), c.now) {
		return
	}
	attempt := c.session.attempt
	s.Job, s.Attempt, s.Devices = attempt.Job, attempt.Number, attempt.DeviceCount()
	fact := event.Fact{
		Subject: event.Subject{Entity: "sample", ID: string(s.Job), Fact: event.FactStepped, Version: 1},
		Key:     fmt.Sprintf("job/%s/attempt/%d/step/%d/%d", s.Job, s.Attempt, s.Step, s.Rank),
		Time:    c.now, Body: s,
	}
	if a.beats.put(process{s.Job, s.Attempt, s.Rank}, fact) {
		a.dropped.Inc()
	}
}

// RunHeartbeats publishes heartbeats until ctx ends. Those that the bus does not take are dropped, because newer
// figures follow. The bus may take a tenth of a second to store a message, so those of all processes go together.
func (a *API) RunHeartbeats(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.beats.came:
		}
		var publishing conc.WaitGroup
		for _, fact := range a.beats.take() {
			publishing.Go(func() {
				if err := publish(ctx, a.bus, fact); err != nil {
					a.dropped.Inc()
					a.log.Debug("heartbeat dropped", "key", fact.Key, "error", err)
				}
			})
		}
		publishing.Wait()
	}
}

func publish(ctx context.Context, b *bus.Bus, fact event.Fact) error {
	if err := b.Ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	return b.Publish(ctx, fact)
}
