package planner

import (
	"context"
	"log/slog"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
)

const (
	// recordsWaiting is how many inputs wait to be stored. Each holds a whole state in memory, so there are few: where plans follow each other
	// faster than they are stored, some go unrecorded.
	recordsWaiting = 4
	// recordTimeout bounds the storing of one input.
	recordTimeout = 10 * time.Second
	// drainTimeout bounds, for all together, the storing of what still waits when the planner ends.
	drainTimeout = 2 * time.Second
)

// recorder stores what plans were decided on. It works beside the loop, so that nothing waits for it, and what goes wrong with it stops nothing.
type recorder struct {
	bus    *bus.Bus
	log    *slog.Logger
	meters *meters
	queue  chan Input
}

func newRecorder(b *bus.Bus, log *slog.Logger, m *meters) *recorder {
	return &recorder{bus: b, log: log, meters: m, queue: make(chan Input, recordsWaiting)}
}

// record hands over the input of a plan that was published. It does not wait. What the state refers to must not change any more.
func (r *recorder) record(in Input) {
	select {
	case r.queue <- in:
	default:
		r.lost(in, "plans follow each other too fast")
	}
}

func (r *recorder) lost(in Input, why any) {
	r.meters.unrecorded.Inc()
	r.log.Warn("input of a plan is not recorded", "generation", in.Generation, "error", why)
}

// run stores until ctx ends, and then what still waits.
func (r *recorder) run(ctx context.Context) error {
	// An end in the middle would leave half of the parts.
	storing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTimeout, end) })()
	for {
		select {
		case in := <-r.queue:
			r.store(storing, in)
			continue
		case <-ctx.Done():
		}
		select {
		case in := <-r.queue:
			r.store(storing, in)
		default:
			return nil
		}
	}
}

func (r *recorder) store(ctx context.Context, in Input) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	facts, err := in.facts()
	if err == nil {
		err = r.bus.Publish(ctx, facts...)
	}
	if err != nil {
		r.lost(in, err)
		return
	}
	r.meters.recorded.Inc()
}
