package energy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// hour is the time when the tests' intervals begin.
var hour = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// interval is the n-th second of a node.
func interval(node train.NodeID, boot string, n uint64, meters []event.Meter, users ...event.Use) event.Measured {
	from := hour.Add(time.Duration(n-1) * time.Second)
	return event.Measured{Node: node, BootID: boot, Sequence: n, From: from, To: from.Add(time.Second), Meters: meters, Users: users}
}

func factOf(m event.Measured, key string) event.Fact {
	return event.Fact{
		Subject: event.Subject{Entity: "energy", ID: string(m.Node), Fact: event.FactMeasured, Version: 1},
		Key:     fmt.Sprintf("node/%s/%s/%d%s", m.Node, m.BootID, m.Sequence, key), Body: m, Source: "nodeagent",
	}
}

func cpu(energy, idle unit.Energy, busy float64) []event.Meter {
	return []event.Meter{{Component: "cpu", Method: "modelled", Energy: energy, Idle: idle, Busy: busy, Capacity: 2}}
}

// books is the service on its own bus, started and stopped at will.
type books struct {
	t    *testing.T
	bus  *bus.Bus
	url  string
	stop func()
	jobs *bus.KV[train.Job]
}

func newBooks(t *testing.T) *books {
	b := bustest.Connect(t, bustest.Start(t), "test")
	jobs, err := bus.OpenKV[train.Job](within(t), b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	return &books{t: t, bus: b, url: b.URL(), jobs: jobs}
}

// start runs the service as its process would.
func (k *books) start() { k.startWith(New(settings.Energy{})) }

func (k *books) startWith(s *Service) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	common := run.Common{NATS: k.url, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: k.t.TempDir(), Node: "n1"}
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, io.Discard, func(net.Addr) {}, s); err != nil {
			k.t.Error(err)
		}
	})
	k.stop = func() { cancel(); running.Wait() }
	k.t.Cleanup(k.stop)
}

func (k *books) publish(facts ...event.Fact) {
	k.t.Helper()
	if err := k.bus.Publish(within(k.t), facts...); err != nil {
		k.t.Fatal(err)
	}
}

func (k *books) job(j train.Job) {
	k.t.Helper()
	_, err := k.jobs.Modify(within(k.t), string(j.ID), func(known *train.Job) (bool, error) { *known = j; return true, nil })
	if err != nil {
		k.t.Fatal(err)
	}
}

// await follows a key of the ledger until it satisfies wanted.
func await[T any](k *books, key string, wanted func(T) bool) T {
	k.t.Helper()
	ctx, cancel := context.WithCancel(within(k.t))
	defer cancel()
	kv, err := bus.OpenKV(ctx, k.bus, contract.Bucket[T](contract.Books))
	if err != nil {
		k.t.Fatal(err)
	}
	var last T
	met := false
	// Every key of the bucket arrives; those of the other kind decode into values that are ignored.
	if err := kv.Watch(ctx, func(e bus.Entry[T], _ bool) {
		if e.Key != key || met {
			return
		}
		if last = e.Value; wanted(last) {
			met = true
			cancel()
		}
	}, nil); err != nil {
		k.t.Fatal(err)
	}
	if !met {
		k.t.Fatalf("%s stayed %+v", key, last)
	}
	return last
}

func TestBooksAreExactThroughRestartsAndRedelivery(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	const n = 60
	rng := rand.New(rand.NewPCG(1, 2))
	var all []event.Fact
	measured := unit.Energy(0)
	for i := range uint64(n) {
		meters := cpu(unit.Energy(rng.Int64N(50_000_000)), unit.Energy(rng.Int64N(20_000_000)), rng.Float64()*2)
		meters = append(meters,
			event.Meter{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: unit.Energy(rng.Int64N(300_000_000)), Idle: 60_000_000})
		for _, m := range meters {
			measured += m.Energy
		}
		all = append(all, factOf(interval("n1", "b1", i+1, meters,
			event.Use{Job: "a", Attempt: 1, Component: "cpu", Work: rng.Float64()}, event.Use{Job: "b", Attempt: 1, Component: "cpu", Work: rng.Float64()},
			event.Use{Job: "a", Attempt: 1, Component: "gpu", Device: "gpu:0", Work: rng.Float64()},
		), ""))
	}
	// An agent that missed an ack sends an interval again, beyond the stream's window of duplicates.
	again := all[7]
	again.Key += "/again"
	k.publish(slices.Concat(all[:20], []event.Fact{again}, all[20:])...)

	k.start()
	await(k, "node.n1", func(b Book) bool { return b.Sequence >= 10 })
	k.stop() // at whatever point it is
	k.start()
	await(k, "node.n1", func(b Book) bool { return b.Sequence == n })
	k.stop()

	// The consumer forgets everything: the whole stream is delivered again.
	forgetConsumer(t, k.url)
	k.start()
	k.publish(factOf(interval("n1", "b1", n+1, cpu(5, 5, 0)), ""))
	got := await(k, "node.n1", func(b Book) bool { return b.Sequence == n+1 })
	measured += 5

	sum, attributed := unit.Energy(0), unit.Energy(0)
	for component, t2 := range got.Totals {
		if t2.Measured != t2.Attributed+t2.Idle+t2.Unattributed {
			t.Errorf("%s: %+v does not add up", component, t2)
		}
		sum += t2.Measured
		attributed += t2.Attributed
	}
	if sum != measured {
		t.Errorf("booked %d uJ, measured %d", sum, measured)
	}
	jobs := got.Running["a"].Energy + got.Running["b"].Energy
	if jobs != attributed || attributed == 0 {
		t.Errorf("accounts hold %d uJ, attributed were %d", jobs, attributed)
	}
	if got.Missing != 0 || got.GapSeconds != 0 || got.Resets != 0 {
		t.Errorf("missing %d, gap %g s, resets %d: want none", got.Missing, got.GapSeconds, got.Resets)
	}
	account := await(k, "job.a", func(a train.Account) bool { return a.Seconds == n })
	if d := cmp.Diff(got.Running["a"].Energy, account.Energy); d != "" {
		t.Errorf("account of a (-book +copy)\n%s", d)
	}
	if want := []string{"modelled", "nvml_counter"}; !slices.Equal(account.Methods, want) || account.Final {
		t.Errorf("account %+v, want methods %v and not final", account, want)
	}
}

func forgetConsumer(t *testing.T, url string) {
	t.Helper()
	js := bustest.JetStream(t, url)
	if err := js.DeleteConsumer(within(t), event.StreamSamples, "energy"); err != nil {
		t.Fatal(err)
	}
}

func TestAnAccountIsClosedWithTheIntervalAfterTheEnd(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	end := hour.Add(1500 * time.Millisecond)
	use := event.Use{Job: "a", Attempt: 1, Component: "cpu", Work: 1}
	k.job(train.Job{ID: "a", State: train.StateRunning, EpochsDone: 2})
	k.publish(factOf(interval("n1", "b", 1, cpu(30, 10, 2), use), ""))
	k.start()
	running := await(k, "job.a", func(a train.Account) bool { return a.Energy == 10 && a.Epochs == 2 })
	if running.Final {
		t.Error("final while the job runs")
	}
	k.job(train.Job{ID: "a", State: train.StateSucceeded, EpochsDone: 3, FinishedAt: end})
	k.publish(factOf(interval("n1", "b", 2, cpu(30, 10, 2), use), ""))
	final := await(k, "job.a", func(a train.Account) bool { return a.Final })
	if want := (train.Account{
		Job: "a", Energy: 20, Components: map[string]unit.Energy{"cpu": 20}, Methods: []string{"modelled"}, Seconds: 2, Epochs: 3,
		Metering:  map[string]train.Metering{"cpu": {Methods: []string{"modelled"}, MeasuredSeconds: 2, ExpectedSeconds: 2}},
		MeanPower: 10, PeakPower: 10, Final: true,
	}); cmp.Diff(want, final) != "" {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, final))
	}
	reported := accounted(t, k, "a")
	if d := cmp.Diff(final, reported.Account); d != "" {
		t.Errorf("fact (-ledger +fact)\n%s", d)
	}
	// Later energy of the job has no account to go to.
	k.publish(factOf(interval("n1", "b", 3, cpu(30, 10, 2), use), ""))
	book := await(k, "node.n1", func(b Book) bool { return b.Sequence == 3 && len(b.Running) == 0 })
	if want := (contract.Totals{Measured: 90, Idle: 30, Attributed: 20, Unattributed: 40}); book.Totals["cpu"] != want {
		t.Errorf("%+v, want %+v", book.Totals["cpu"], want)
	}
}

func TestAnUnusableIntervalDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	k.start()
	stranger := factOf(interval("n1", "b", 7, cpu(1000, 0, 0)), "")
	stranger.Source = "stranger"
	k.publish(
		factOf(interval("n1", "b", 1, cpu(30, 10, 2), event.Use{Job: "../x", Component: "cpu", Work: 1}), ""), stranger,
		factOf(interval("n1", "b", 2, cpu(30, 10, 2)), ""),
	)
	book := await(k, "node.n1", func(b Book) bool { return b.Sequence == 2 })
	if want := (contract.Totals{Measured: 30, Idle: 10, Unattributed: 20}); book.Totals["cpu"] != want {
		t.Errorf("%+v, want %+v", book.Totals["cpu"], want)
	}
	if n, err := k.bus.LastSequence(within(t), event.StreamPoison); err != nil || n != 2 {
		t.Errorf("%d messages set aside, error %v", n, err)
	}
}

// TestAResumedJobHasOneAccount: what it uses after it was resumed adds to what it had used, over a restart of the
// service, too.
func TestAResumedJobHasOneAccount(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	use := event.Use{Job: "a", Attempt: 1, Component: "cpu", Work: 1}
	k.job(train.Job{ID: "a", State: train.StateFailed, EpochsDone: 2, FinishedAt: hour.Add(500 * time.Millisecond)})
	k.publish(factOf(interval("n1", "b", 1, cpu(30, 10, 2), use), ""))
	k.start()
	await(k, "job.a", func(a train.Account) bool { return a.Final && a.Energy == 10 })
	running := train.Job{ID: "a", State: train.StateRunning, EpochsDone: 2, Resumed: 1}
	k.job(running)
	await(k, "job.a", func(a train.Account) bool { return !a.Final && a.Energy == 10 })
	k.stop()
	k.start()
	use.Attempt = 2
	k.publish(factOf(interval("n1", "b", 2, cpu(30, 10, 2), use), ""))
	await(k, "job.a", func(a train.Account) bool { return a.Energy == 20 && !a.Final })
	running.State, running.FinishedAt, running.EpochsDone = train.StateSucceeded, hour.Add(2500*time.Millisecond), 3
	k.job(running)
	k.publish(factOf(interval("n1", "b", 3, cpu(30, 10, 2), use), ""))
	final := await(k, "job.a", func(a train.Account) bool { return a.Final && a.Energy == 30 })
	if final.Seconds != 3 || final.Epochs != 3 || final.Components["cpu"] != 30 || final.Waste[train.WasteFailed] >= final.Energy {
		t.Errorf("%+v", final)
	}
}

// accounted waits for the final fact of a job.
func accounted(t *testing.T, k *books, job train.JobID) event.Accounted {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var reported event.Accounted
	found := 0
	err := k.bus.Follow(ctx, event.StreamEnergy, []string{"yard.ledger." + string(job) + ".>"}, 1, func(m bus.Message) {
		body, err := event.Decode[event.Accounted](m.Data)
		if err != nil {
			t.Error(err)
		}
		reported = body
		found++
		cancel()
	})
	if err != nil || found != 1 {
		t.Fatalf("%d facts, error %v", found, err)
	}
	return reported
}

func TestAJobThatEndedBeforeAnyIntervalHasAnAccountOfNothing(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	k.publish(factOf(interval("n1", "b", 1, cpu(30, 10, 2)), ""))
	k.job(train.Job{ID: "quick", State: train.StateFailed, FinishedAt: hour})
	k.job(train.Job{ID: "refused", State: train.StateRejected, FinishedAt: hour})
	k.start()
	want := train.Account{Job: "quick", Methods: []string{"modelled"}, Final: true}
	if d := cmp.Diff(want, await(k, "job.quick", func(a train.Account) bool { return a.Final })); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	accounted(t, k, "quick")
	if l := open(t, k); l.isClosed("refused") || !l.isClosed("quick") {
		t.Error("want an account of quick and none of refused")
	}
}

// open returns the ledger without its loops.
func open(t *testing.T, k *books) *ledger {
	t.Helper()
	l, err := newLedger(within(t), k.bus, false, slog.New(slog.DiscardHandler), hour)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestALongQueueIsNotKept: the record of a job that waits is read once it uses energy, also before the register says
// that it has started.
func TestALongQueueIsNotKept(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	queued := train.Job{ID: "q", State: train.StateQueued, Spec: train.Spec{Name: "q", TrainingSetSize: 7}}
	k.job(queued)
	l := open(t, k)
	l.observe(bus.Entry[*train.Job]{Key: "q", Value: &queued}, false)
	if len(l.jobs) > 0 {
		t.Errorf("%d records are kept", len(l.jobs))
	}
	m := interval("n", "boot", 1, cpu(100, 0, 1), event.Use{Job: "q", Attempt: 1, Component: "cpu", Work: 1})
	if err := l.take(within(t), message(t, m, 1)); err != nil {
		t.Fatal(err)
	}
	if got := l.record("q").Spec.TrainingSetSize; got != 7 {
		t.Errorf("a record with a training set of %d", got)
	}
}

// message is a batch of one interval.
func message(t *testing.T, m event.Measured, sequence uint64) []bus.Message {
	t.Helper()
	f := factOf(m, "")
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return []bus.Message{{Subject: f.Subject.String(), Parsed: f.Subject, Key: f.Key, Sequence: sequence, Data: data, Source: f.Source}}
}

// When the register deletes a job, the ledger does too; the job's id may then be used again.
func TestAnAccountGoesWithTheRecordOfItsJob(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	k.start()
	for range 2 {
		k.job(train.Job{ID: "a", State: train.StateCancelled, FinishedAt: hour})
		await(k, "job.a", func(a train.Account) bool { return a.Final })
		e, err := k.jobs.Get(within(t), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := k.jobs.Delete(within(t), "a", e.Revision); err != nil {
			t.Fatal(err)
		}
		await(k, "job.a", func(a train.Account) bool { return a.Job == "" })
	}
}

func TestAJobIsDeletedBeforeItsAccountIsClosed(t *testing.T) {
	t.Parallel()
	k, ctx := newBooks(t), within(t)
	l := open(t, k)
	ended := bus.Entry[*train.Job]{Key: "a", Value: &train.Job{ID: "a", State: train.StateCancelled, FinishedAt: hour}}
	l.observe(ended, false)
	l.observe(bus.Entry[*train.Job]{Key: "a", Value: &train.Job{}}, true)
	for range 2 {
		if err := l.settle(ctx, hour.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := l.accounts.Get(ctx, "job.a"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("the account of the deleted job is still there: %+v, %v", a, err)
	}
	if len(l.forgotten)+len(l.closed) > 0 {
		t.Errorf("left: forgotten %v, closed %v", l.forgotten, l.closed)
	}
}

func TestClosingAnAccountCanBeRepeatedFromAnyPoint(t *testing.T) {
	k, ctx := newBooks(t), within(t)
	use := event.Use{Job: "a", Attempt: 1, Component: "cpu", Work: 2}
	l := open(t, k)
	if err := l.take(ctx, message(t, interval("n1", "b", 1, cpu(30, 10, 2), use), 1)); err != nil {
		t.Fatal(err)
	}
	// A process wrote the final account and died before it published it.
	account, _ := l.account("a")
	account.Final = true
	if err := l.accounts.Put(ctx, contract.AccountKey(account.Job), account); err != nil {
		t.Fatal(err)
	}
	l = open(t, k)
	if err := l.take(ctx, message(t, interval("n1", "b", 2, cpu(30, 10, 2), use), 2)); err != nil {
		t.Fatal(err)
	}
	l.observe(bus.Entry[*train.Job]{Key: "a", Value: &train.Job{ID: "a", State: train.StateSucceeded, FinishedAt: hour}}, false)
	for range 2 {
		if err := l.settle(ctx, hour); err != nil {
			t.Fatal(err)
		}
	}
	if reported := accounted(t, k, "a"); reported.Account.Energy != 20 {
		t.Errorf("published %d uJ, want the 20 that were final", reported.Account.Energy)
	}
	book := await(k, "node.n1", func(b Book) bool { return len(b.Running) == 0 })
	if want := (contract.Totals{Measured: 60, Idle: 20, Attributed: 20, Unattributed: 20}); book.Totals["cpu"] != want {
		t.Errorf("%+v, want %+v", book.Totals["cpu"], want)
	}
}

// TestAnAccountOfNothingIsPublishedByTheNextProcess: a process dies after it wrote a final account, and before it
// published it. The job used no energy, so it is in no book that would show this to the next process.
func TestAnAccountOfNothingIsPublishedByTheNextProcess(t *testing.T) {
	t.Parallel()
	k, ctx := newBooks(t), within(t)
	end := func(l *ledger) {
		l.observe(bus.Entry[*train.Job]{Key: "a", Value: &train.Job{ID: "a", State: train.StateCancelled, FinishedAt: hour}}, false)
	}
	nc, err := nats.Connect(k.url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err = errors.Join(err, js.DeleteStream(ctx, event.StreamEnergy)); err != nil {
		t.Fatal(err)
	}
	first, err := bus.Connect(ctx, bus.Config{URL: k.url, Name: "energy"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLedger(ctx, first, false, slog.New(slog.DiscardHandler), hour)
	if err != nil {
		t.Fatal(err)
	}
	end(l)
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := l.settle(soon, hour.Add(time.Minute)); err == nil {
		t.Fatal("an account was published without a stream")
	}
	first.Close()
	if err := k.bus.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	l = open(t, k)
	if !l.isClosed("a") {
		t.Fatal("the account was not written")
	}
	end(l)
	for range 2 {
		if err := l.settle(ctx, hour.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	accounted(t, k, "a")
	if l = open(t, k); len(l.closing.value.Jobs) > 0 {
		t.Errorf("being closed: %v, want none", l.closing.value.Jobs)
	}
}

func TestWhenAnAccountMayBeClosed(t *testing.T) {
	end := hour.Add(10 * time.Second)
	book := func(to time.Time, jobs ...train.JobID) Book {
		b := Book{To: to, Running: map[train.JobID]train.Account{}}
		for _, j := range jobs {
			b.Running[j] = train.Account{Job: j}
		}
		return b
	}
	for _, c := range []struct {
		name      string
		nodeBooks map[train.NodeID]Book
		heard     map[train.NodeID]time.Time
		now       time.Time
		want      bool
	}{
		{"a later interval was booked", map[train.NodeID]Book{"n1": book(end.Add(1), "a")}, nil, end, true},
		{"the end lies after the last interval", map[train.NodeID]Book{"n1": book(end, "a")}, map[train.NodeID]time.Time{"n1": end}, end.Add(5 * time.Second), false},
		{"the node fell silent", map[train.NodeID]Book{"n1": book(end, "a")}, map[train.NodeID]time.Time{"n1": end}, end.Add(6 * time.Second), true},
		{"a backlog is being booked", map[train.NodeID]Book{"n1": book(end, "a")}, map[train.NodeID]time.Time{"n1": end.Add(time.Hour)}, end.Add(time.Hour + time.Second), false},
		{"other nodes do not matter", map[train.NodeID]Book{"n1": book(end.Add(1), "a"), "n2": book(hour)}, map[train.NodeID]time.Time{"n2": end}, end, true},
		{"one of two nodes lags behind", map[train.NodeID]Book{"n1": book(end.Add(1), "a"), "n2": book(hour, "a")}, map[train.NodeID]time.Time{"n2": end}, end, false},
		{"the job was never seen, some node is later", map[train.NodeID]Book{"n1": book(end.Add(1))}, nil, end, true},
		{"nothing was ever measured, just now", nil, nil, end.Add(time.Second), false},
		{"nothing was ever measured", nil, nil, end.Add(6 * time.Second), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &ledger{
				heard: c.heard, began: hour, nodeBooks: map[train.NodeID]*page[contract.Book]{}, places: map[train.JobID][]train.NodeID{},
				jobs: map[train.JobID]train.Job{"a": {FinishedAt: end}}, ended: map[train.JobID]struct{}{"a": {}},
			}
			for node, b := range c.nodeBooks {
				b.Node = node
				l.nodeBooks[node] = &page[contract.Book]{value: contract.Book(b)}
				l.place(b)
			}
			if due := l.due(c.now); len(due) == 1 != c.want {
				t.Errorf("due: %v, want %v", due, c.want)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	k, ctx := newBooks(t), within(t)
	l := open(t, k)
	for n := range uint64(2) {
		m := interval("n1", "b", 2*n+1, cpu(30*unit.Joule, 10*unit.Joule, 2), event.Use{Job: "a", Component: "cpu", Work: 1})
		if err := l.take(ctx, message(t, m, n+1)); err != nil {
			t.Fatal(err)
		}
	}
	want := `
# HELP switchyard_energy_gap_seconds_total Time between intervals in which nothing was measured.
# TYPE switchyard_energy_gap_seconds_total counter
switchyard_energy_gap_seconds_total 1
# HELP switchyard_energy_joules_total Energy booked, by component and use.
# TYPE switchyard_energy_joules_total counter
switchyard_energy_joules_total{component="cpu",kind="attributed"} 20
switchyard_energy_joules_total{component="cpu",kind="idle"} 20
switchyard_energy_joules_total{component="cpu",kind="unattributed"} 20
# HELP switchyard_energy_missing_intervals_total Intervals that were measured and never came.
# TYPE switchyard_energy_missing_intervals_total counter
switchyard_energy_missing_intervals_total 1
# HELP switchyard_energy_resets_total Readings left out because a counter was reset.
# TYPE switchyard_energy_resets_total counter
switchyard_energy_resets_total 0
`
	if err := testutil.CollectAndCompare(newCollector(l), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if got := slices.Sorted(maps.Keys(l.nodeBooks)); len(got) != 1 {
		t.Errorf("pages %v", got)
	}
}
