package planner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
)

// bench is a bus with the records of the other services in a test's hands.
type bench struct {
	t      testing.TB
	ctx    context.Context //nolint:containedctx // the test's own
	server *busserver.Server
	bus    *bus.Bus
	jobs   *bus.KV[train.Job]
	nodes  *bus.KV[train.Node]
}

func newBench(t testing.TB) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx, server: bustest.Start(t)}
	b.bus = bustest.Connect(t, b.server, "test")
	b.jobs, b.nodes = openKV(b, contract.Jobs), openKV(b, contract.Nodes)
	return b
}

func openKV[T any](b *bench, bucket contract.Bucket[T]) *bus.KV[T] {
	b.t.Helper()
	kv, err := bus.OpenKV(b.ctx, b.bus, bucket)
	if err != nil {
		b.t.Fatal(err)
	}
	return kv
}

// serve runs the planner until the end of the test, or until stop is called.
func (b *bench) serve(args ...string) (stop func()) {
	b.t.Helper()
	all, err := settings.Of(args...)
	if err != nil {
		b.t.Fatal(err)
	}
	s := New(all.Planner)
	common := run.Common{NATS: b.server.URL(), HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.t.TempDir(), Node: "n"}
	if err := s.Validate(common); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- run.Together(ctx, common, io.Discard, func(net.Addr) {}, s) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func put[T any](b *bench, kv *bus.KV[T], key string, value T) {
	b.t.Helper()
	if _, err := kv.Modify(b.ctx, key, func(v *T) (bool, error) { *v = value; return true, nil }); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) node(devices int) {
	b.t.Helper()
	n := train.Node{ID: "a", SeenAt: time.Now()}
	for i := range devices {
		n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("cpu:%d", i)), Kind: train.KindCPU})
	}
	put(b, b.nodes, "a", n)
}

func admitted(id train.JobID, devices int) train.Job {
	spec := train.Spec{Name: "x", BatchSize: 32, TrainingSetSize: 3200, MaxEpochs: 5, MinDevices: devices}.WithDefaults()
	return train.Job{ID: id, Spec: spec, State: train.StateQueued, SubmittedAt: time.Unix(int64(len(id)), 0), AdmittedAt: time.Unix(9, 0)}
}

// await follows a stream until a message is as wanted, and returns all up to that one.
func (b *bench) await(stream string, wanted func(bus.Message) bool) []bus.Message {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var all []bus.Message
	found := false
	_ = b.bus.Follow(ctx, stream, nil, 1, func(m bus.Message) {
		if found {
			return
		}
		all = append(all, m)
		if wanted(m) {
			found = true
			cancel()
		}
	})
	if !found {
		b.t.Fatalf("%s: the message never came; there are %d", stream, len(all))
	}
	return all
}

func key(k string) func(bus.Message) bool { return func(m bus.Message) bool { return m.Key == k } }

func decode[T any](t testing.TB, m bus.Message) T {
	t.Helper()
	body, err := event.Decode[T](m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestPlansAreMadeWhenSomethingChanges(t *testing.T) {
	b := newBench(t)
	b.node(2)
	put(b, b.jobs, "j", admitted("j", 1))
	b.serve()
	facts := b.await(event.StreamJobs, key("plan/1/job/j/planned"))
	if told := decode[event.Planned](t, facts[0]); len(facts) != 1 || told.Generation != 1 || told.Node != "a" || !slices.Equal(told.Devices, []train.DeviceID{"cpu:0"}) || told.Reason.Message == "" || told.PowerWatts != 10 {
		t.Fatalf("facts %+v, told %+v", facts, told)
	}
	// Words in the register change nothing, nor does a job that is not admitted yet; the next plan is that of the
	// job after them.
	same := admitted("j", 1)
	same.Message = "starts on cpu:0"
	put(b, b.jobs, "j", same)
	early := admitted("early", 1)
	early.State = train.StateSubmitted
	put(b, b.jobs, "early", early)
	large := admitted("large", 2)
	large.SubmittedAt = time.Now()
	put(b, b.jobs, "large", large)
	facts = b.await(event.StreamJobs, key("plan/2/job/large/queued"))
	if told := decode[event.Queued](t, facts[1]); len(facts) != 2 || told.Position != 1 || told.Blockers[0].Code != explain.WaitingForDevices {
		t.Fatalf("%d facts, told %+v", len(facts), told)
	}
	plans := b.await(event.StreamPlans, key("plan/2"))
	decided := decode[event.PlanDecided](t, plans[1])
	if len(plans) != 2 || decided.Generation != 2 || decided.Policy != plan.DefaultPolicy || len(decided.Allocations) != 1 || len(decided.Waiting) != 1 || decided.DecidedAt.IsZero() {
		t.Fatalf("%d plans, newest %+v", len(plans), decided)
	}
	// An ended job makes room.
	gone := admitted("j", 1)
	gone.State = train.StateSucceeded
	put(b, b.jobs, "j", gone)
	b.await(event.StreamJobs, key("plan/3/job/large/planned"))
}

func TestFactsOfANewestPlanAreToldAfterACrash(t *testing.T) {
	b := newBench(t)
	b.node(1)
	put(b, b.jobs, "j", admitted("j", 1))
	put(b, b.jobs, "next", admitted("next", 1))
	// A planner published this plan and was killed before it told anybody.
	p := train.Plan{
		Generation: 7, Policy: "optimus", Allocations: []train.Allocation{{Job: "j", Node: "a", Devices: []train.DeviceID{"cpu:0"}}},
		Waiting: []train.Waiting{{Job: "next", Blockers: []train.Reason{{Code: explain.WaitingForDevices, Message: "waits"}}}},
	}
	if _, err := b.bus.PublishAfter(b.ctx, decision.Fact(p), 0); err != nil {
		t.Fatal(err)
	}
	b.serve()
	told := map[string]bool{} // in any order: they are about different jobs
	b.await(event.StreamJobs, func(m bus.Message) bool {
		told[m.Key] = true
		return told["plan/7/job/j/planned"] && told["plan/7/job/next/queued"]
	})
	if len(told) != 2 {
		t.Fatalf("facts %v", told)
	}
	// The same decision is not published again.
	put(b, b.jobs, "third", admitted("third", 1))
	if plans := b.await(event.StreamPlans, key("plan/8")); len(plans) != 2 {
		t.Fatalf("%d plans", len(plans))
	}
}

// newLoop is a planner's loop without its watches, on a cache of one node and one job.
func newLoop(t testing.TB, b *bench, name string) *loop {
	t.Helper()
	m := newMeters(prometheus.NewRegistry())
	known := newCache()
	known.observeNode(time.Now(), bus.Entry[train.Node]{Key: "a", Value: train.Node{ID: "a", SeenAt: time.Now(), Devices: []train.Device{{ID: "cpu:0"}}}}, false)
	known.observeJob(bus.Entry[*train.Job]{Key: "j", Value: new(admitted("j", 1))}, false)
	own, log := bustest.Connect(t, b.server, name), slog.New(slog.DiscardHandler)
	return &loop{
		bus: own, log: log, meters: m, cache: known, recorder: newRecorder(own, log, m), policy: plan.Optimus{}, now: time.Now, published: map[train.JobID]publication{}, verifier: newVerifier(m),
	}
}

func TestTwoPlannersOneLosesAndDecidesAgain(t *testing.T) {
	b := newBench(t)
	first, second := newLoop(t, b, "planner"), newLoop(t, b, "planner-2")
	for _, l := range []*loop{first, second} {
		if err := l.load(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*loop{first, second} {
		if err := l.round(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if second.last.Generation != 1 || second.sequence != first.sequence {
		t.Fatalf("the second planner is at generation %d: the same decision needs no plan of its own", second.last.Generation)
	}
	// The second one knows more and publishes; the first one finds out when its own plan is refused.
	for _, l := range []*loop{second, first} {
		l.cache.observeJob(bus.Entry[*train.Job]{Key: "k", Value: new(admitted("k", 1))}, false)
	}
	if err := second.round(b.ctx); err != nil {
		t.Fatal(err)
	}
	first.cache.observeJob(bus.Entry[*train.Job]{Key: "l", Value: new(admitted("l", 1))}, false)
	if err := first.round(b.ctx); err != nil {
		t.Fatal(err)
	}
	plans := b.await(event.StreamPlans, key("plan/3"))
	if newest := decode[event.PlanDecided](t, plans[2]); len(plans) != 3 || len(newest.Waiting) != 2 {
		t.Fatalf("%d plans, newest %+v", len(plans), newest)
	}
}

func TestALongLineFitsIntoOneMessage(t *testing.T) {
	p := train.Plan{Generation: 1, Policy: "optimus"}
	for i := range 1000 {
		p.Allocations = append(p.Allocations, train.Allocation{
			Job: train.JobID(fmt.Sprintf("running-%05d", i)), Node: "node-1", Devices: []train.DeviceID{train.DeviceID(fmt.Sprintf("gpu:%d", i))},
			Reason: train.Reason{Code: explain.Kept, Message: "keeps 1 device"},
		})
	}
	for i := range 10_000 {
		p.Waiting = append(p.Waiting, train.Waiting{Job: train.JobID(fmt.Sprintf("waiting-%05d", i)), Blockers: []train.Reason{{Code: "C", Message: "needs 2 devices on one node"}}})
	}
	stored := decision.Fitting(p)
	if _, err := decision.Fact(stored).Encode(); err != nil {
		t.Fatal(err)
	}
	if len(stored.Allocations) != 1000 || len(stored.Waiting) == 0 || stored.Waiting[0].Job != "waiting-00000" || len(p.Waiting) != 10_000 {
		t.Fatalf("%d allocations and %d waiting stored, %d left in the decision", len(stored.Allocations), len(stored.Waiting), len(p.Waiting))
	}
}

func TestLongLineIsToldInPortions(t *testing.T) {
	l := &loop{cache: newCache(), published: map[train.JobID]publication{}, newest: newest{known: true}}
	for i := range factsAtOnce + 20 {
		j := admitted(train.JobID(fmt.Sprintf("j%05d", i)), 1)
		l.cache.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false)
		l.last.Waiting = append(l.last.Waiting, train.Waiting{Job: j.ID, Blockers: []train.Reason{{Code: "C"}}})
	}
	total := 0
	for _, want := range []int{factsAtOnce, 20, 0} {
		facts, sent, more := l.news()
		for _, s := range sent {
			l.published[s.job] = s
		}
		total += len(facts)
		if len(facts) != want || more != (want == factsAtOnce) {
			t.Fatalf("%d facts, more %v: want %d", len(facts), more, want)
		}
	}
}

// TestTheReasonsOfACrowdWait: while many jobs come, only allocations are published, and why a job waits that has lost
// its own. The next round publishes why the new ones wait.
func TestTheReasonsOfACrowdWait(t *testing.T) {
	b := newBench(t)
	l := newLoop(t, b, "planner")
	for i := range crowd + 1 {
		j := admitted(train.JobID(fmt.Sprintf("j%05d", i)), 1)
		l.cache.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false)
	}
	l.published["j00001"] = publication{"j00001", event.FactPlanned, "a cpu:0"}
	for _, want := range []int{2, crowd + 2, crowd + 2} {
		if err := l.round(b.ctx); err != nil {
			t.Fatal(err)
		}
		if fact := l.published["j00001"].fact; fact != event.FactQueued {
			t.Errorf("the newest fact about the job that lost its device is %q", fact)
		}
		if len(l.published) != want {
			t.Fatalf("facts about %d jobs are published, want %d", len(l.published), want)
		}
	}
}

func TestStateOfThePicture(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := newCache()
	see := func(j train.Job) { p.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false) }
	try := func(a train.Attempt) { p.observeAttempt(bus.Entry[train.Attempt]{Key: string(a.Job), Value: a}, false) }
	devices := []train.Device{{ID: "cpu:0"}, {ID: "cpu:1"}}
	for id, age := range map[train.NodeID]time.Duration{"fresh": time.Second, "stale": time.Minute, "lost": time.Hour, "idle": time.Minute} {
		p.observeNode(now, bus.Entry[train.Node]{Key: string(id), Value: train.Node{ID: id, SeenAt: now.Add(-age), Devices: devices}}, false)
	}
	p.silence.since["lost"] = -time.Hour
	running := admitted("running", 1)
	running.State, running.EpochsDone, running.RunSeconds = train.StateRunning, 4, 100
	over, early, ended := admitted("over", 1), admitted("early", 1), admitted("ended", 1)
	early.State, ended.State = train.StateSubmitted, train.StateFailed
	for _, j := range []train.Job{running, over, early, ended} {
		see(j)
	}
	try(train.Attempt{
		Job: "running", Number: 2, Node: "stale", Devices: []train.DeviceID{"cpu:1"}, Phase: train.PhaseRunning, Stop: train.StopRescale,
		StartedAt: now.Add(-30 * time.Second), StartedEpochs: 3,
	})
	try(train.Attempt{Job: "over", Number: 1, Phase: train.PhaseExited, Outcome: train.OutcomeSucceeded})
	p.observeReport(bus.Entry[train.AttemptReport]{Key: "running.1", Value: train.AttemptReport{Job: "running", Attempt: 1, EpochsDone: 3, Spoke: true}}, false)
	p.observeReport(bus.Entry[train.AttemptReport]{Key: "running.2", Value: train.AttemptReport{Job: "running", Attempt: 2, EpochsDone: 5, Spoke: true}}, false)
	p.observeModel(bus.Entry[train.Model]{Key: "running", Value: train.Model{Job: "running", EpochsSeen: 5}}, false)

	s := p.state(now, train.Plan{}, false, plan.State{})
	offered := s.Offered()
	if len(offered) != 2 || len(s.Jobs) != 1 {
		t.Fatalf("%d nodes and %d jobs: want the fresh node, the stale one with what runs there, and the running job", len(offered), len(s.Jobs))
	}
	for _, n := range offered {
		if want := map[train.NodeID]int{"fresh": 2, "stale": 1}[n.ID]; len(n.Devices) != want {
			t.Errorf("node %s has %d devices, want %d", n.ID, len(n.Devices), want)
		}
	}
	j := s.Jobs[0]
	if j.EpochsDone != 5 || j.RunSeconds != 130 || j.Model == nil || j.Running == nil || j.Planned == nil {
		t.Fatalf("job %+v", j)
	}
	if r := j.Running; r.Node != "stale" || !r.StopPending || !r.Spoke || r.Epochs != 2 || r.Seconds != 30 {
		t.Errorf("running %+v", r)
	}
	// Where there has been a plan, what it leaves out holds nothing.
	if s := p.state(now, train.Plan{}, true, plan.State{}); s.Jobs[0].Planned != nil {
		t.Errorf("planned %+v by a plan that does not list it", s.Jobs[0].Planned)
	}
}

func TestRestartPriceIsTheMeanTimeToStart(t *testing.T) {
	p := newCache()
	try := func(a train.Attempt) { p.observeAttempt(bus.Entry[train.Attempt]{Key: string(a.Job), Value: a}, false) }
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for i, start := range []int64{2, 4} {
		job := train.JobID(fmt.Sprintf("j%d", i))
		try(train.Attempt{Job: job, Number: 1, Phase: train.PhaseRunning, ClaimedAt: at(1), StartedAt: at(10)})
		try(train.Attempt{Job: job, Number: 1, Phase: train.PhaseExited, Outcome: train.OutcomePreempted, ClaimedAt: at(1), StartedAt: at(10), ExitedAt: at(20)})
		// It waited in the queue for longer than its restart took.
		try(train.Attempt{Job: job, Number: 2, Phase: train.PhaseClaimed, ClaimedAt: at(100)})
		for range 3 { // a watch repeats itself
			try(train.Attempt{Job: job, Number: 2, Phase: train.PhaseRunning, ClaimedAt: at(100), StartedAt: at(100 + start)})
		}
	}
	if got := p.state(at(200), train.Plan{}, false, plan.State{}).Tuning.RestartSeconds; got != 3 {
		t.Errorf("restart price %v s, want the mean of 2 and 4", got)
	}
	if got := p.state(at(200), train.Plan{}, false, plan.State{Tuning: plan.Tuning{RestartSeconds: 9}}).Tuning.RestartSeconds; got != 9 {
		t.Errorf("restart price %v s, want what was set", got)
	}
}

func TestWrongFlagsAreAllNamed(t *testing.T) {
	_, err := settings.Of("--policy=lifo", "--plan-interval=1ms", "--restart-price=-1s", "--rescale-min-interval=0", "--max-restarts-per-hour=-1")
	if err == nil {
		t.Fatal("no error")
	}
	for _, flag := range []string{"--policy", "--plan-interval", "--restart-price", "--rescale-min-interval", "--max-restarts-per-hour"} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not named in: %v", flag, err)
		}
	}
}

func TestTheConfigurationKnowsThePolicies(t *testing.T) {
	if !slices.Equal(settings.Policies(), plan.PolicyNames()) || settings.DefaultPolicy != plan.DefaultPolicy {
		t.Errorf("%v, want %v", settings.Policies(), plan.PolicyNames())
	}
}

// TestAnOrderIsFollowed: the planner plans nothing on a node that an operator has cordoned, and says why. It sets aside
// a request that nobody can read.
func TestAnOrderIsFollowed(t *testing.T) {
	b := newBench(t)
	b.node(2)
	b.serve()
	order := func(fact string, body any) {
		if err := b.bus.Publish(b.ctx, event.NodeRequestFact("a", fact, time.Now(), body)); err != nil {
			t.Fatal(err)
		}
	}
	order(event.FactDrainRequested, []int{1})
	b.await(event.StreamPoison, func(bus.Message) bool { return true })
	order(event.FactCordonRequested, event.CordonRequested{NodeRequest: event.NodeRequest{By: "ops", Reason: "kernel upgrade"}})
	put(b, b.jobs, "j", admitted("j", 1))
	facts := b.await(event.StreamJobs, func(m bus.Message) bool {
		return m.Parsed.Fact == event.FactQueued && decode[event.Queued](t, m).Blockers[0].Code == train.NodeCordoned
	})
	told := decode[event.Queued](t, facts[len(facts)-1])
	if want := "needs 1 device, and node a is cordoned by ops: kernel upgrade"; told.Blockers[0].Message != want {
		t.Errorf("it waits since %q, want %q", told.Blockers[0].Message, want)
	}
	order(event.FactResumeRequested, event.ResumeRequested{})
	b.await(event.StreamJobs, func(m bus.Message) bool { return m.Parsed.Fact == event.FactPlanned })
}

// A node is removed on request if its agent is silent and no job has devices there. Its orders go with it.
func TestASilentNodeIsRemoved(t *testing.T) {
	b := newBench(t)
	attempts, err := bus.OpenKV(b.ctx, b.bus, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := bus.OpenKV(b.ctx, b.bus, contract.Eligibility)
	if err != nil {
		t.Fatal(err)
	}
	b.node(2)
	for _, id := range []train.NodeID{"busy", "gone"} {
		put(b, b.nodes, string(id), train.Node{ID: id, SeenAt: time.Now().Add(-time.Hour), Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}})
	}
	put(b, attempts, "j", train.Attempt{Job: "j", Number: 1, Phase: train.PhaseRunning, Node: "busy", Devices: []train.DeviceID{"gpu:0"}})
	put(b, orders, "gone", train.Eligibility{})
	b.serve()
	for _, id := range []train.NodeID{"a", "busy", "gone", "never"} {
		if err := b.bus.Publish(b.ctx, event.NodeRequestFact(id, event.FactRemoveRequested, time.Now(), event.RemoveRequested{By: "ops"})); err != nil {
			t.Fatal(err)
		}
	}
	last, err := b.bus.LastSequence(b.ctx, event.StreamNodes)
	if err != nil {
		t.Fatal(err)
	}
	for range tick.Every(b.ctx, 20*time.Millisecond) { // "never" comes last, and leaves no record; "busy" does
		if e, err := orders.Get(b.ctx, "busy"); err == nil && e.Value.Sequence == last-2 {
			break
		}
	}
	for range tick.Every(b.ctx, 20*time.Millisecond) {
		if _, err := b.nodes.Get(b.ctx, "gone"); errors.Is(err, bus.ErrNotFound) {
			break
		}
	}
	for _, id := range []string{"a", "busy"} {
		if _, err := b.nodes.Get(b.ctx, id); err != nil {
			t.Errorf("a node that is in use: %v", err)
		}
		if e, err := orders.Get(b.ctx, id); err != nil || len(e.Value.Orders) > 0 {
			t.Errorf("orders of %s: %+v, %v", id, e.Value, err)
		}
	}
	if _, err := orders.Get(b.ctx, "gone"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("orders of the removed node: %v", err)
	}
	if b.ctx.Err() != nil {
		t.Error(b.ctx.Err())
	}
}

// TestANodeThatLosesJobsIsSetAside: three jobs are lost on one GPU in turn, so the planner plans nothing there, also
// after its restart, until an operator resumes it.
func TestANodeThatLosesJobsIsSetAside(t *testing.T) {
	b := newBench(t)
	gpus := []train.Device{{ID: "gpu:0", Kind: train.KindGPU}, {ID: "gpu:1", Kind: train.KindGPU}}
	put(b, b.nodes, "a", train.Node{ID: "a", SeenAt: time.Now(), Devices: gpus})
	began := time.Now().Add(-time.Minute)
	lose := func(job train.JobID, after int, exit train.Exit) {
		t.Helper()
		f := event.JobFact(job, event.FactAttemptLost, "attempt/1/end", event.AttemptLost{Attempt: 1, Exit: exit, Ran: event.Ran{
			Places: []train.Part{{Node: "a", Devices: []train.DeviceID{"gpu:0"}}}, ClaimedAt: began.Add(time.Duration(after) * time.Second),
		}})
		f.Time = began.Add(time.Duration(after+1) * time.Second)
		if err := b.bus.Publish(b.ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	stop := b.serve()
	for i, job := range []train.JobID{"j1", "j2", "own", "j3"} {
		exit := train.Exit{Lost: true}
		if job == "own" {
			exit = train.Exit{Code: 1}
		}
		lose(job, 2*i, exit)
	}
	facts := b.await(event.StreamNodes, key("node/a/set_aside/j3/1"))
	if told := decode[event.NodeSetAside](t, facts[0]); len(facts) != 1 || !slices.Equal(told.Devices, []train.DeviceID{"gpu:0"}) || !slices.Equal(told.Jobs, []train.JobID{"j1", "j2", "j3"}) {
		t.Errorf("%d facts, told %+v", len(facts), told)
	}
	stop()
	b.serve()
	put(b, b.jobs, "j", admitted("j", 2))
	queued := func(m bus.Message) bool {
		return m.Parsed.Fact == event.FactQueued && decode[event.Queued](t, m).Blockers[0].Code == train.NodeSetAside
	}
	waits := b.await(event.StreamJobs, queued)
	want := "needs 2 devices, and gpu:0 of node a is set aside until "
	if told := decode[event.Queued](t, waits[len(waits)-1]).Blockers[0]; !strings.HasPrefix(told.Message, want) || !strings.Contains(told.Message, "3 jobs were lost on it within an hour: j1 (the processes vanished)") {
		t.Errorf("it waits since %q, want %q", told.Message, want)
	}
	if err := b.bus.Publish(b.ctx, event.NodeRequestFact("a", event.FactResumeRequested, time.Now(), event.ResumeRequested{})); err != nil {
		t.Fatal(err)
	}
	b.await(event.StreamJobs, func(m bus.Message) bool { return m.Parsed.Fact == event.FactPlanned })
}
