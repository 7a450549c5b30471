package jobapi

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	s.Job, s.Attempt, s.Devices = attempt.Job, attempt.Number, attempt.DeviceCount()
	fact := event.Fact{
		Subject: event.Subject{Entity: "sample", ID: string(s.Job), Fact: event.FactStepped, Version: 1},
		Key:     fmt.Sprintf("job/%s/attempt/%d/step/%d/%d", s.Job, s.Attempt, s.Step, s.Rank),
		Time:    c.now, Body: s,
	}
	a.beats.add(fact)
}

// RunHeartbeats publishes heartbeats until ctx ends. Those that the bus does not take are dropped.
func (a *API) RunHeartbeats(ctx context.Context) error { return a.beats.run(ctx) }

// heartbeats are the heartbeats that wait for the bus.
type heartbeats struct {
	bus     *bus.Bus
	log     *slog.Logger
	queue   chan event.Fact
	dropped prometheus.Counter
}

func newHeartbeats(b *bus.Bus, log *slog.Logger) *heartbeats {
	return &heartbeats{
		bus: b, log: log, queue: make(chan event.Fact, beatsQueued),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "switchyard_nodeagent_heartbeats_dropped_total", Help: "Heartbeats that were dropped because the bus did not keep up or was unreachable.",
		}),
	}
}

// add queues a heartbeat, or drops it if too many wait.
func (h *heartbeats) add(fact event.Fact) {
	select {
	case h.queue <- fact:
	default:
		h.dropped.Inc()
	}
}

func (h *heartbeats) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case fact := <-h.queue:
			if err := h.publish(ctx, fact); err != nil {
				h.dropped.Inc()
				h.log.Debug("heartbeat dropped", "key", fact.Key, "error", err)
			}
		}
	}
}

func (h *heartbeats) publish(ctx context.Context, fact event.Fact) error {
	if err := h.bus.Ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	return h.bus.Publish(ctx, fact)
}
