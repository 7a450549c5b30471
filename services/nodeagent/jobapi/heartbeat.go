package jobapi

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
)

const (
	// beatSpacing is the least time between two published heartbeats of a process.
	beatSpacing = 500 * time.Millisecond
	// beatsQueued bounds what waits for the bus; the rest is dropped, because newer figures follow.
	beatsQueued = 256
)

// beat queues a heartbeat, or drops it. It never waits.
func (a *API) beat(c call, s event.Stepped) {
	if a.usesMemory != nil && s.MemoryBytes > 0 {
		a.usesMemory(c.session.attempt, s.MemoryBytes)
	}
	if !c.session.beatDue(int64(s.Rank), c.now) {
		return
	}
	attempt := c.session.attempt
	s.Job, s.Attempt, s.Devices = attempt.Job, attempt.Number, len(attempt.Devices)
	fact := event.Fact{
		Subject: event.Subject{Entity: "sample", ID: string(s.Job), Fact: event.FactStepped, Version: 1},
		Key:     fmt.Sprintf("job/%s/attempt/%d/step/%d/%d", s.Job, s.Attempt, s.Step, s.Rank),
		Time:    c.now, Body: s,
	}
	select {
	case a.beats <- fact:
	default:
		a.dropped.Inc()
	}
}

// RunHeartbeats publishes heartbeats until ctx ends. Those that the bus does not take are dropped.
func (a *API) RunHeartbeats(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case fact := <-a.beats:
			if err := publish(ctx, a.bus, fact); err != nil {
				a.dropped.Inc()
				a.log.Debug("heartbeat dropped", "key", fact.Key, "error", err)
			}
		}
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
