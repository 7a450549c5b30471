package meter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// pauseFactor and leastPause bound an interval: after a longer one a counter may have wrapped twice, so it counts as
// a gap.
const (
	pauseFactor = 10
	leastPause  = 30 * time.Second
)

// maxDrift is how far the bounds of intervals may be from the wall clock before they follow it.
const maxDrift = time.Second

// clock turns monotonic time into the bounds of consecutive intervals without gaps or overlaps. Only if the wall
// clock was set does an interval begin elsewhere than the previous one ended; its length does not change by that.
type clock struct {
	interval time.Duration
	last     time.Time // with its monotonic reading
	edge     time.Time // where the next interval begins
	gap      time.Duration
}

func newClock(interval time.Duration, now time.Time) *clock {
	return &clock{interval: interval, last: now, edge: now.Round(0)}
}

// tick ends the interval at now. If measured is false the time is a gap: the machine slept or this process did not
// run.
func (c *clock) tick(now time.Time) (from, to time.Time, gap time.Duration, measured bool) {
	elapsed, wall := now.Sub(c.last), now.Round(0).Sub(c.last.Round(0))
	c.last = now
	longest := max(pauseFactor*c.interval, leastPause)
	switch {
	case elapsed > longest:
		measured = false
	case wall-elapsed > longest:
		// The monotonic clock stands still while the machine sleeps, the wall clock does not.
		elapsed, measured = wall, false
	default:
		measured = elapsed > 0
	}
	from, to = c.edge, c.edge.Add(elapsed)
	if c.edge = to; now.Round(0).Sub(to).Abs() > maxDrift {
		c.edge = now.Round(0)
	}
	if !measured {
		c.gap += elapsed
		return from, to, 0, false
	}
	gap, c.gap = c.gap, 0
	return from, to, gap, true
}

// lost counts an interval that was measured and could not be kept as a gap.
func (c *clock) lost(d time.Duration) { c.gap += d }

// queueLimit bounds what waits for the bus: as much as the stream keeps at one interval per second.
const queueLimit = 3600

// queue holds intervals that the bus has not taken yet.
type queue struct {
	mu    sync.Mutex
	facts []event.Fact
	wake  tick.Signal
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.facts)
}

func (q *queue) put(f event.Fact) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.facts = append(q.facts, f)
	q.wake.Send()
}

func (q *queue) first() (event.Fact, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.facts) == 0 {
		return event.Fact{}, false
	}
	return q.facts[0], true
}

func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.facts = q.facts[1:]
}

// Recorder measures interval after interval and publishes them, numbered without gaps.
type Recorder struct {
	config RecorderConfig

	clock    *clock
	sequence uint64
	// blind is set if the last reading failed.
	blind bool
	queue queue
	power *prometheus.GaugeVec
	marks marks
}

// RecorderConfig is what a Recorder needs. Boot must differ from every earlier one on this node.
type RecorderConfig struct {
	Node     train.NodeID
	Boot     string
	Interval time.Duration
	Meter    *Meter
	Live     func() []train.Attempt
	// Used is called with the users of each reading.
	Used    func([]event.Use)
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// NewRecorder makes a recorder.
func NewRecorder(c RecorderConfig) *Recorder {
	auto := promauto.With(c.Metrics)
	r := &Recorder{
		config: c, queue: queue{wake: tick.NewSignal()},
		power: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "switchyard_nodeagent_power_watts", Help: "Mean power of the last interval by component, device and method.",
		}, []string{"component", "device", "method"}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "switchyard_nodeagent_intervals_waiting", Help: "Measured intervals that wait for the bus."},
		func() float64 { return float64(r.queue.len()) })
	return r
}

// Measure closes an interval at every tick until ctx ends, and then the last one.
func (r *Recorder) Measure(ctx context.Context) error {
	if err := r.config.Meter.Begin(r.config.Live()); err != nil {
		return fmt.Errorf("begin to measure: %w", err)
	}
	r.clock = newClock(r.config.Interval, time.Now())
	timer := time.NewTimer(untilTick(time.Now(), r.config.Interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.close(time.Now())
			return nil
		case <-timer.C:
			r.close(time.Now())
			timer.Reset(untilTick(time.Now(), r.config.Interval))
		}
	}
}

// untilTick returns the time until the next whole multiple of the interval on the wall clock, so that intervals do
// not drift and those of all nodes are aligned. A multiple less than half an interval away is skipped: the timer may
// have been a little early.
func untilTick(now time.Time, interval time.Duration) time.Duration {
	next := now.Truncate(interval).Add(interval).Sub(now)
	if next < interval/2 {
		next += interval
	}
	return next
}

// Mark records the end of an epoch, to be published with the interval that contains it.
func (r *Recorder) Mark(m event.EpochMark) { r.marks.put(m) }

func (r *Recorder) close(now time.Time) {
	from, to, gap, measured := r.clock.tick(now)
	d, blind := to.Sub(from), r.blind
	if blind {
		// More time has passed since the last reading than in this interval, so this reading is only what the next
		// one is compared with.
		d = 0
	}
	reading, err := r.config.Meter.Read(d, r.config.Live())
	r.blind = err != nil
	if r.config.Used != nil {
		r.config.Used(reading.Users)
	}
	switch {
	case err != nil:
		r.config.Log.Error("interval not measured", "error", err)
	case !measured:
		r.config.Log.Warn("interval not measured: the machine or this process was paused", "seconds", to.Sub(from).Seconds())
	}
	if !measured {
		return // the clock has counted it
	}
	if err != nil || blind || r.queue.len() >= queueLimit {
		r.clock.lost(to.Sub(from) + gap)
		return
	}
	r.sequence++
	r.queue.put(event.Fact{
		Subject: event.Subject{Entity: "energy", ID: string(r.config.Node), Fact: event.FactMeasured, Version: 1},
		Key:     fmt.Sprintf("node/%s/%s/%d", r.config.Node, r.config.Boot, r.sequence),
		Time:    now,
		Body: event.Measured{
			Node: r.config.Node, BootID: r.config.Boot, Sequence: r.sequence, From: from, To: to, GapSeconds: gap.Seconds(),
			Meters: reading.Meters, Users: reading.Users, Epochs: r.marks.take(from, to), Counters: reading.Counters,
			CountersSeconds: reading.CountersOver.Seconds(),
		},
	})
	r.power.Reset()
	for _, m := range reading.Meters {
		seconds := to.Sub(from).Seconds()
		if m.CoveredSeconds != nil {
			seconds = *m.CoveredSeconds
		}
		if seconds > 0 {
			r.power.WithLabelValues(m.Component, string(m.Device), m.Method).Set(m.Energy.Joules() / seconds)
		}
	}
}

// publisher is the part of the bus that is needed.
type publisher interface {
	Publish(ctx context.Context, facts ...event.Fact) error
}

// Publish sends intervals in order until ctx ends.
func (r *Recorder) Publish(ctx context.Context, b publisher) error {
	for {
		if !r.Flush(ctx, b) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.queue.wake:
		}
	}
}

// Flush sends what waits; it returns false if ctx ended first.
func (r *Recorder) Flush(ctx context.Context, b publisher) bool {
	for {
		fact, found := r.queue.first()
		if !found {
			return true
		}
		err := b.Publish(ctx, fact)
		if m, is := fact.Body.(event.Measured); is && errors.Is(err, event.ErrTooLarge) {
			m.Epochs = nil // energy counts more: epochs are facts of their jobs as well
			fact.Body = m
			err = b.Publish(ctx, fact)
		}
		if err != nil {
			if ctx.Err() != nil {
				return false // it is sent again with the same key
			}
			r.config.Log.Error("interval dropped: the bus refuses it", "key", fact.Key, "error", err)
		}
		r.queue.drop()
	}
}
