package planner

import (
	"context"
	"log/slog"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
)

const (
	// recordsWaiting is how many inputs wait to be stored. Each holds a whole state in memory, so there are few:
	// where plans follow each other faster than they are stored, some go unrecorded.
	recordsWaiting = 4
	// recordTimeout bounds the storing of one input.
	recordTimeout = 10 * time.Second
	// drainTimeout bounds, for all together, the storing of what still waits when the planner ends.
	drainTimeout = 2 * time.Second
)

// recorder stores the inputs of plans. It works beside the loop, so nothing waits for it, and its errors stop
// nothing.
type recorder struct {
	bus    *bus.Bus
	log    *slog.Logger
	meters *meters
	queue  chan decision.Input
}

func newRecorder(b *bus.Bus, log *slog.Logger, m *meters) *recorder {
	return &recorder{bus: b, log: log, meters: m, queue: make(chan decision.Input, recordsWaiting)}
}

// record hands over the input of a published plan. It does not wait. The caller must not change what the state
// refers to.
func (r *recorder) record(in decision.Input) {
	select {
	case r.queue <- in:
	default:
		r.lost(in, "plans follow each other too fast")
	}
}

func (r *recorder) lost(in decision.Input, why any) {
	r.meters.unrecorded.Inc()
	r.log.Warn("input of a plan is not recorded", "generation", in.Generation, "error", why)
}

// run stores until ctx ends, and then what is still queued.
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

func (r *recorder) store(ctx context.Context, in decision.Input) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	facts, err := in.Facts()
	if err == nil {
		err = r.bus.Publish(ctx, facts...)
	}
	if err != nil {
		r.lost(in, err)
		return
	}
	r.meters.recorded.Inc()
}
