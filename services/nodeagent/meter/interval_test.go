package meter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestClock(t *testing.T) {
	start := time.Now()
	c := newClock(time.Second, start)
	edge := start.Round(0)
	for i, step := range []struct {
		after    time.Duration
		measured bool
		gap      time.Duration
	}{
		{time.Second, true, 0},
		{1100 * time.Millisecond, true, 0},
		{29 * time.Second, true, 0}, // slow, but no counter wraps in that time
		{31 * time.Second, false, 0},
		{40 * time.Second, false, 0},
		{time.Second, true, 71 * time.Second},
		{time.Second, true, 0},
		{0, false, 0},
	} {
		start = start.Add(step.after)
		from, to, gap, measured := c.tick(start)
		if !from.Equal(edge) || to.Sub(from) != step.after || measured != step.measured || gap != step.gap {
			t.Errorf("step %d: from %s to %s, gap %s, measured %v", i, from, to, gap, measured)
		}
		edge = to
	}
}

func TestClockAfterSleep(t *testing.T) {
	start := time.Now()
	c := newClock(time.Second, start)
	// While the machine slept for an hour, its monotonic clock stood still; Round strips it, as the kernel's step of
	// the wall clock would show.
	c.last = c.last.Add(-time.Hour).Round(0)
	_, to, _, measured := c.tick(start.Round(0))
	if measured || to.Sub(start.Round(0)) != time.Hour {
		t.Errorf("to %s, measured %v", to, measured)
	}
}

func TestIntervalsFollowAWallClockThatWasSet(t *testing.T) {
	for _, c := range []struct{ ahead, begins time.Duration }{
		{time.Hour, 0}, // it was an hour fast until it was set back
		{-20 * time.Second, 0},
		{maxDrift / 2, maxDrift / 2}, // so little that it is left as it is
		{-maxDrift / 2, -maxDrift / 2},
	} {
		start := time.Now()
		k := newClock(time.Second, start)
		k.edge = k.edge.Add(c.ahead)
		now := start.Add(time.Second)
		from, to, gap, measured := k.tick(now)
		if ahead := from.Sub(start.Round(0)); ahead != c.ahead || to.Sub(from) != time.Second || gap != 0 || !measured {
			t.Errorf("%s ahead: the first is from %s to %s, gap %s, measured %v", c.ahead, from, to, gap, measured)
		}
		from, to, gap, measured = k.tick(now.Add(time.Second))
		if begins := from.Sub(now.Round(0)); begins != c.begins || to.Sub(from) != time.Second || gap != 0 || !measured {
			t.Errorf("%s ahead: the second is from %s to %s, gap %s, measured %v", c.ahead, from, to, gap, measured)
		}
	}
}

func TestTicksAreAlignedAndDoNotDrift(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(1_772_366_400_000 + int64(ms)) }
	for _, c := range []struct{ now, want int }{
		{0, 1000},
		{1, 999},
		{400, 600},
		{500, 500},
		{501, 1499},
		{999, 1001}, // more than half an interval late: the tick after the next
	} {
		if got := untilTick(at(c.now), time.Second); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("at %d ms: %s, want %d ms", c.now, got, c.want)
		}
	}
	// Ticks that each come up to 30 ms late for an hour stay on whole seconds.
	now := at(0)
	for i := range 3600 {
		now = now.Add(untilTick(now, time.Second))
		if want := at(1000 * (i + 1)); !now.Equal(want) {
			t.Fatalf("tick %d at %s, want %s", i, now, want)
		}
		now = now.Add(time.Duration(i%30) * time.Millisecond)
	}
}

func TestEpochsArePublishedWithTheirInterval(t *testing.T) {
	r := newRecorder(t)
	start := time.Now()
	r.clock = newClock(r.config.Interval, start)
	for i, at := range []time.Duration{-time.Hour, 10 * time.Millisecond, time.Hour} {
		r.Mark(event.EpochMark{Job: "a", EpochsDone: i + 1, At: start.Add(at).Round(0)})
	}
	r.close(start.Add(20 * time.Millisecond))
	f, _ := r.queue.first()
	m, _ := f.Body.(event.Measured)
	if len(m.Epochs) != 3 || !m.Epochs[0].At.Equal(m.From) || m.Epochs[1].At.Sub(m.From) != 10*time.Millisecond || !m.Epochs[2].At.Equal(m.To) {
		t.Errorf("%+v", m.Epochs)
	}
	r.queue.drop()
	r.close(start.Add(40 * time.Millisecond))
	f, _ = r.queue.first()
	if m, _ := f.Body.(event.Measured); len(m.Epochs) != 0 {
		t.Errorf("%+v were published twice", m.Epochs)
	}
}

// press stores what is published, or fails.
type press struct {
	fail  int
	facts chan event.Fact
}

func (p *press) Publish(ctx context.Context, facts ...event.Fact) error {
	if p.fail > 0 {
		p.fail--
		return errors.New("refused")
	}
	for _, f := range facts {
		select {
		case p.facts <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func newRecorder(t *testing.T) *Recorder {
	t.Helper()
	m, err := New(Config{Proc: root, Model: Model{Idle: unit.Watt}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return NewRecorder(RecorderConfig{
		Node: "n1", Boot: "b", Interval: 20 * time.Millisecond, Meter: m, Live: func() []train.Attempt { return nil }, Log: quiet(),
		Metrics: prometheus.NewRegistry(),
	})
}

func TestIntervalsFollowEachOther(t *testing.T) {
	r := newRecorder(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := &press{facts: make(chan event.Fact)}
	var running conc.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := r.Measure(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { _ = r.Publish(ctx, p) })
	var last event.Measured
	for n := range uint64(5) {
		f := <-p.facts
		m, ok := f.Body.(event.Measured)
		if !ok || m.Sequence != n+1 || f.Key != fmt.Sprintf("node/n1/b/%d", n+1) || f.Subject.String() != "yard.energy.n1.measured.v1" {
			t.Fatalf("%+v", f)
		}
		if n > 0 && !m.From.Equal(last.To) || !m.To.After(m.From) {
			t.Errorf("from %s to %s after %s", m.From, m.To, last.To)
		}
		want := event.Meter{Component: "cpu", Method: "modelled", Idle: unit.Watt.Over(m.To.Sub(m.From))}
		if diff := cmp.Diff(want, m.Meters[0], cmpopts.IgnoreFields(event.Meter{}, "Energy", "Busy", "Capacity")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		last = m
	}
}

func TestTheLastIntervalIsClosedAndFlushed(t *testing.T) {
	r := newRecorder(t)
	r.config.Interval = time.Hour // no tick of its own
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Measure(ctx); err != nil {
		t.Fatal(err)
	}
	p := &press{facts: make(chan event.Fact, 10)}
	if !r.Flush(t.Context(), p) || len(p.facts) != 1 || r.queue.len() != 0 {
		t.Errorf("%d facts, %d wait", len(p.facts), r.queue.len())
	}
}

func TestAQueueThatIsFullLeavesAGapAndNoHole(t *testing.T) {
	r := newRecorder(t)
	now := time.Now()
	r.clock = newClock(r.config.Interval, now)
	for range queueLimit + 2 {
		now = now.Add(time.Second)
		if r.queue.len() < queueLimit-1 {
			r.sequence++
			r.queue.put(event.Fact{})
			r.clock.tick(now)
			continue
		}
		r.close(now)
	}
	p := &press{facts: make(chan event.Fact, queueLimit)}
	r.Flush(t.Context(), p)
	r.close(now.Add(time.Second))
	f, _ := r.queue.first()
	m, ok := f.Body.(event.Measured)
	if !ok || m.Sequence != queueLimit+1 || m.GapSeconds != 2 {
		t.Errorf("%+v: want number %d after a gap of 2 s", m, queueLimit+1)
	}
}

// growing is a source of a counter.
type growing struct{ now, last unit.Energy }

func (g *growing) Method() string { return "growing" }

func (g *growing) Read(time.Duration) ([]Spent, error) {
	spent := g.now - g.last
	g.last = g.now
	return []Spent{{Component: event.ComponentCPU, Energy: spent}}, nil
}

func TestEnergyOfAFailedReadingIsNotBookedWithTheNext(t *testing.T) {
	r, g := newRecorder(t), &growing{}
	r.config.Meter.config.Sources = []Source{g}
	now := time.Now()
	r.clock = newClock(time.Second, now)
	tick := func(root proc.Root, after time.Duration) {
		r.config.Meter.config.Proc = root
		now, g.now = now.Add(after), g.now+unit.Energy(after.Seconds())*unit.Joule
		r.close(now)
	}
	const minute = 60 * time.Second
	broken := proc.Root(t.TempDir())
	tick(root, time.Second)
	tick(broken, time.Second)
	tick(broken, minute) // it slept, too: that is one gap
	tick(root, time.Second)
	tick(root, time.Second)
	p := &press{facts: make(chan event.Fact, 9)}
	r.Flush(t.Context(), p)
	if len(p.facts) != 2 {
		t.Fatalf("%d intervals, want the first and the last", len(p.facts))
	}
	for i, gapSeconds := range []float64{0, 62} {
		f := <-p.facts
		m, ok := f.Body.(event.Measured)
		if !ok || m.Sequence != uint64(i+1) || m.GapSeconds != gapSeconds || m.Meters[0].Method != "growing" || m.Meters[0].Energy != unit.Joule {
			t.Errorf("interval %d: %+v, want 1 J after a gap of %g s", i, m, gapSeconds)
		}
	}
}

func TestWhatTheBusRefusesDoesNotHoldUpTheRest(t *testing.T) {
	r := newRecorder(t)
	r.queue.put(event.Fact{Key: "1"})
	r.queue.put(event.Fact{Key: "2"})
	p := &press{fail: 1, facts: make(chan event.Fact, 2)}
	if !r.Flush(t.Context(), p) || (<-p.facts).Key != "2" {
		t.Error("want the second one")
	}
}

// A job that reports epochs in a loop, each with as many metrics as a request takes, costs no other job its energy.
func TestManyEpochsDoNotCostTheIntervalItsEnergy(t *testing.T) {
	r := newRecorder(t)
	start := time.Now()
	r.clock = newClock(time.Second, start)
	metrics := map[string]float64{}
	for i := range 60 {
		metrics[fmt.Sprintf("%0124d", i)] = 0.5
	}
	for _, job := range []train.JobID{"flood", "flood2", "flood3"} {
		for i := range 1000 {
			r.Mark(event.EpochMark{Job: job, Attempt: 1, EpochsDone: i + 1, At: start.Add(time.Duration(i) * time.Millisecond).Round(0), Metrics: metrics})
		}
	}
	r.Mark(event.EpochMark{Job: "honest", Attempt: 1, EpochsDone: 7, At: start.Add(time.Millisecond).Round(0), Metrics: map[string]float64{"accuracy": 0.9}})
	r.close(start.Add(time.Second))
	f, _ := r.queue.first()
	m, _ := f.Body.(event.Measured)
	body, err := f.Encode()
	if err != nil || len(body) > event.MaxBodyBytes/2 {
		t.Errorf("%d bytes, error %v", len(body), err)
	}
	newest := map[train.JobID]event.EpochMark{}
	for i, e := range m.Epochs {
		newest[e.Job] = e
		if i > 0 && e.At.Before(m.Epochs[i-1].At) {
			t.Errorf("epoch %d of %s is before the one in front of it", e.EpochsDone, e.Job)
		}
	}
	if newest["honest"].Metrics["accuracy"] != 0.9 || newest["flood"].EpochsDone != 1000 || len(newest["flood3"].Metrics) != len(metrics) {
		t.Errorf("the newest are %+v", newest)
	}
}

// pickyPress refuses what the bus would.
type pickyPress struct{ press }

func (p *pickyPress) Publish(ctx context.Context, facts ...event.Fact) error {
	for _, f := range facts {
		if _, err := f.Encode(); err != nil {
			return err
		}
	}
	return p.press.Publish(ctx, facts...)
}

func TestAnIntervalThatIsTooLargeGoesWithoutItsEpochs(t *testing.T) {
	r := newRecorder(t)
	body := event.Measured{Node: "n1", Meters: []event.Meter{{Component: "cpu", Energy: unit.Joule}}}
	for range event.MaxBodyBytes / 64 {
		body.Epochs = append(body.Epochs, event.EpochMark{Job: "a", Attempt: 1, EpochsDone: 1})
	}
	r.queue.put(event.Fact{Key: "1", Body: body})
	p := &pickyPress{press{facts: make(chan event.Fact, 1)}}
	if !r.Flush(t.Context(), p) || len(p.facts) != 1 {
		t.Fatal("the interval was dropped")
	}
	if m, _ := (<-p.facts).Body.(event.Measured); len(m.Epochs) != 0 || len(m.Meters) != 1 {
		t.Errorf("%d epochs, %d meters", len(m.Epochs), len(m.Meters))
	}
}
