// Package sharing lets the real planner and profiler learn on a real bus which jobs get on with each other. The test
// plays admission, the executor and the training code, in virtual time.
package sharing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/profiler"
)

// rates returns the fraction of its own speed that a program keeps beside another.
func rates() map[[2]string]float64 {
	return map[[2]string]float64{{"a", "b"}: 0.3, {"b", "a"}: 0.4, {"a", "c"}: 0.9, {"c", "a"}: 0.8}
}

// world is a node with two GPUs, and the jobs on it.
type world struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the test's own
	url      string
	bus      *bus.Bus
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	attempts *bus.KV[train.Attempt]
	reports  *bus.KV[train.AttemptReport]
	// now is the time in which jobs train: long ago, so that for the planner nothing has just begun.
	now     time.Time
	clock   *time.Ticker
	running map[train.JobID]train.Attempt
	alive   map[train.JobID]train.Job
}

func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	server := bustest.Start(t)
	w := &world{
		t: t, ctx: ctx, url: server.URL(), bus: bustest.Connect(t, server, "test"), now: time.Now().Add(-24 * time.Hour), clock: time.NewTicker(50 * time.Millisecond),
		running: map[train.JobID]train.Attempt{}, alive: map[train.JobID]train.Job{},
	}
	t.Cleanup(w.clock.Stop)
	w.jobs, w.nodes = open[train.Job](w, contract.Jobs), open[train.Node](w, contract.Nodes)
	w.attempts, w.reports = open[train.Attempt](w, contract.Attempts), open[train.AttemptReport](w, contract.Reports)
	return w
}

func open[T any](w *world, bucket contract.Bucket[T]) *bus.KV[T] {
	w.t.Helper()
	kv, err := bus.OpenKV(w.ctx, w.bus, bucket)
	if err != nil {
		w.t.Fatal(err)
	}
	return kv
}

func put[T any](w *world, kv *bus.KV[T], key string, value T) {
	w.t.Helper()
	if _, err := kv.Modify(w.ctx, key, func(v *T) (bool, error) { *v = value; return true, nil }); err != nil {
		w.t.Fatal(err)
	}
}

// serve runs planner and profiler until the returned function is called.
func (w *world) serve() (stop func()) {
	w.t.Helper()
	all, err := settings.Of("--refit-interval=100ms", "--starvation-bound=100h")
	if err != nil {
		w.t.Fatal(err)
	}
	services := []run.Service{planner.New(all.Planner), profiler.New(all.Profiler)}
	common := run.Common{NATS: w.url, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: w.t.TempDir(), Node: "n"}
	ctx, cancel := context.WithCancel(w.ctx)
	serving := pool.New().WithErrors()
	serving.Go(func() error { return run.Together(ctx, common, io.Discard, func(net.Addr) {}, services...) })
	return func() {
		cancel()
		if err := serving.Wait(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) publish(id train.JobID, fact, key string, body any) {
	w.t.Helper()
	f := event.JobFact(id, fact, key, body)
	kind, _ := event.Find(f.Subject)
	f.Source, f.Time = kind.Publisher, w.now
	if err := w.bus.Publish(w.ctx, f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) submit(id train.JobID, program string, gib int64) {
	w.t.Helper()
	spec := train.Spec{
		Name: string(id), Command: []string{program}, BatchSize: 32, TrainingSetSize: 3200, MaxEpochs: 10_000, AllowSharing: true, EstimatedMemoryMiB: gib << 10,
	}.WithDefaults()
	w.alive[id] = train.Job{ID: id, Spec: spec, State: train.StateQueued, SubmittedAt: time.Now(), AdmittedAt: time.Now()}
	w.publish(id, event.FactAdmitted, "admitted", event.Admitted{Spec: spec})
	put(w, w.jobs, string(id), w.alive[id])
}

// round advances the world by one epoch: it carries out the newest plan, and every running job finishes an epoch.
func (w *world) round() {
	w.t.Helper()
	select {
	case <-w.clock.C:
	case <-w.ctx.Done():
		w.t.Fatalf("time is up; running: %v", w.running)
	}
	devices := []train.Device{
		{ID: "gpu:0", Kind: train.KindGPU, Model: "M", Driver: "550", Memory: 16 * unit.GiB},
		{ID: "gpu:1", Kind: train.KindGPU, Model: "M", Driver: "550", Memory: 16 * unit.GiB},
	}
	put(w, w.nodes, "n", train.Node{ID: "n", SeenAt: time.Now(), Devices: devices})
	w.obey()
	w.now = w.now.Add(100 * time.Second)
	for id, a := range w.running {
		j := w.alive[id]
		j.EpochsDone++
		w.alive[id] = j
		step := 1.0
		for other, b := range w.running {
			if rate, known := rates()[[2]string{j.Spec.Command[0], w.alive[other].Spec.Command[0]}]; known && a.Devices[0] == b.Devices[0] {
				step /= rate
			}
		}
		w.publish(id, event.FactEpochEnded, fmt.Sprintf("epoch/%d", j.EpochsDone), event.EpochEnded{
			Attempt: a.Number, EpochsDone: j.EpochsDone, EpochSeconds: 100, StepSeconds: step, Devices: 1,
		})
		put(w, w.reports, contract.ReportKey(id, a.Number), train.AttemptReport{Job: id, Attempt: a.Number, EpochsDone: j.EpochsDone, Spoke: true})
	}
}

// plan returns the newest plan.
func (w *world) plan() train.Plan {
	w.t.Helper()
	m, err := w.bus.Last(w.ctx, event.StreamPlans, event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1})
	if errors.Is(err, bus.ErrNotFound) {
		return train.Plan{}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := event.Decode[event.PlanDecided](m.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Plan
}

// obey stops and starts jobs as the plan says.
func (w *world) obey() {
	w.t.Helper()
	p := w.plan()
	for id, a := range w.running {
		if planned, has := p.Find(id); has && slices.Equal(planned.Devices, a.Devices) {
			continue
		}
		w.publish(id, event.FactPreempted, fmt.Sprintf("attempt/%d", a.Number), event.Preempted{Attempt: a.Number})
		a.Phase, a.Outcome = train.PhaseExited, train.OutcomePreempted
		put(w, w.attempts, string(id), a)
		delete(w.running, id)
	}
	for _, planned := range p.Allocations {
		j, alive := w.alive[planned.Job]
		if _, runs := w.running[planned.Job]; runs || !alive {
			continue
		}
		j.Attempt++
		w.alive[j.ID] = j
		a := train.Attempt{
			Job: j.ID, Number: j.Attempt, Node: "n", Devices: planned.Devices, Memory: planned.Memory, Phase: train.PhaseRunning, StartedAt: w.now, StartedEpochs: j.EpochsDone,
		}
		w.publish(j.ID, event.FactStarted, fmt.Sprintf("attempt/%d/started", a.Number),
			event.Started{Attempt: a.Number, Node: "n", Devices: a.Devices})
		put(w, w.attempts, string(j.ID), a)
		w.running[j.ID] = a
	}
}

func (w *world) end(id train.JobID) {
	a := w.running[id]
	w.publish(id, event.FactSucceeded, "end", event.Succeeded{Attempt: a.Number, EpochsDone: w.alive[id].EpochsDone})
	a.Phase, a.Outcome = train.PhaseExited, train.OutcomeSucceeded
	put(w, w.attempts, string(id), a)
	put(w, w.jobs, string(id), train.Job{ID: id, State: train.StateSucceeded})
	delete(w.running, id)
	delete(w.alive, id)
}

// until advances until a condition holds.
func (w *world) until(so func() bool) {
	w.t.Helper()
	for !so() {
		w.round()
	}
}

// epochs advances by a number of epochs of a running job.
func (w *world) epochs(id train.JobID, n int) {
	w.t.Helper()
	from := w.alive[id].EpochsDone
	w.until(func() bool { return w.alive[id].EpochsDone >= from+n })
}

func (w *world) together(a, b train.JobID) bool {
	x, y := w.running[a], w.running[b]
	return x.Live() && y.Live() && x.Devices[0] == y.Devices[0]
}

// measured waits until the profiler has stored how a program runs beside another.
func (w *world) measured(self, other train.JobID) {
	w.t.Helper()
	meetings := open[curve.InterferenceRecord](w, contract.Interference)
	key := curve.InterferenceKey(&train.Device{Kind: train.KindGPU, Model: "M", Driver: "550"})
	kinds := curve.KindPair{Self: curve.KindOf(w.alive[self].Spec), Beside: curve.KindOf(w.alive[other].Spec)}
	w.until(func() bool {
		e, err := meetings.Get(w.ctx, key)
		return err == nil && slices.ContainsFunc(e.Value.Known.Samples(), func(met curve.InterferenceSample) bool { return met.KindPair == kinds })
	})
}

// Jobs that disturb each other are separated once that was measured, jobs that get on stay together, and after a
// restart the next ones are placed right at once.
func TestWhatWasMeasuredDecides(t *testing.T) {
	w := newWorld(t)
	stop := w.serve()
	w.submit("a0", "a", 8)
	w.until(func() bool { return w.running["a0"].Live() })
	w.epochs("a0", 3)
	w.end("a0")
	// A place beside b1 fits closer than one beside c1.
	w.submit("b1", "b", 8)
	w.submit("c1", "c", 6)
	w.until(func() bool { return w.running["b1"].Live() && w.running["c1"].Live() })
	w.epochs("b1", 3)
	w.submit("a1", "a", 8)
	w.until(func() bool { return w.together("a1", "b1") })
	w.until(func() bool { return w.together("a1", "c1") })
	w.measured("a1", "c1")
	w.epochs("a1", 10)
	if !w.together("a1", "c1") || w.alive["a1"].Attempt != 2 || w.alive["b1"].Attempt != 1 || w.alive["c1"].Attempt != 1 {
		t.Fatalf("attempts of a1, b1, c1: %d, %d, %d; want that a1 moved once, and stays beside c1",
			w.alive["a1"].Attempt, w.alive["b1"].Attempt, w.alive["c1"].Attempt)
	}
	w.end("a1")
	before := w.alone("a")
	stop()
	stop = w.serve()
	defer stop()
	w.submit("a2", "a", 8)
	w.until(func() bool { return w.running["a2"].Live() })
	w.epochs("a2", 5)
	if !w.together("a2", "c1") || w.alive["a2"].Attempt != 1 {
		t.Fatalf("a2 runs on %v in attempt %d; want it beside c1 from the first", w.running["a2"].Devices, w.alive["a2"].Attempt)
	}
	if again := w.alone("a"); before.Count == 0 || again.Count != before.Count {
		t.Errorf("program a was alone %d times before the restart, and %d times after it", before.Count, again.Count)
	}
	w.replays()
}

// alone returns the measurement of a program that had a device to itself.
func (w *world) alone(program string) curve.Pace {
	w.t.Helper()
	e, err := open[curve.InterferenceRecord](w, contract.Interference).Get(w.ctx,
		curve.InterferenceKey(&train.Device{Kind: train.KindGPU, Model: "M", Driver: "550"}))
	if err != nil {
		w.t.Fatal(err)
	}
	kind := curve.KindOf(train.Spec{Command: []string{program}, BatchSize: 32}.WithDefaults())
	i := slices.IndexFunc(e.Value.Alone, func(p curve.Pace) bool { return p.Self == kind })
	if i < 0 {
		return curve.Pace{}
	}
	return e.Value.Alone[i]
}

// replays checks that replaying the recorded input gives the newest plan again, byte for byte.
func (w *world) replays() {
	w.t.Helper()
	in, err := decision.ReadInput(w.ctx, w.bus, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(in.State.Interference) != 1 {
		w.t.Fatalf("the recorded input knows %d types of device", len(in.State.Interference))
	}
	want, err := decision.PublishedPlan(w.ctx, w.bus, in)
	if err != nil {
		w.t.Fatal(err)
	}
	policy, err := plan.Find(in.Policy)
	if err != nil {
		w.t.Fatal(err)
	}
	got, err := decision.EncodePlan(in.Decide(policy))
	if err != nil {
		w.t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		w.t.Errorf("from its input follows\n%s\nand not\n%s", got, want)
	}
}
