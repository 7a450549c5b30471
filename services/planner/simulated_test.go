package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// TestLiveDecidesAsSimulated runs one workload twice in the simulator's world and time. Once the simulator asks
// plan.Decide. Once it plays admission, executor, node agent and profiler: it writes what these would into the
// buckets of a real bus, and does what the live planner publishes there. The state that the planner makes of the
// buckets must be the simulator's, field by field, and the same jobs must get the same devices and batches at the same
// moments.
func TestLiveDecidesAsSimulated(t *testing.T) {
	for _, policy := range []plan.Policy{plan.Switchyard{}, plan.Optimus{}, plan.SRTF{}} {
		t.Run(policy.Name(), func(t *testing.T) {
			all, err := settings.Of("--restart-price=30s", "--rescale-min-interval=60s", "--starvation-bound=30m", "--quota=ann=5")
			if err != nil {
				t.Fatal(err)
			}
			s := New(all.Planner)
			c := trafficJam(policy)
			c.State = s.terms()
			simulated := recordDecisions(t, c, func(now plan.State) train.Plan { return plan.Decide(now, policy) })
			live := newLiveWorld(t, s, policy)
			c.Show = func(r records.Records) { live.shown = r }
			decided := recordDecisions(t, c, live.decide)
			if rescales := changes(simulated); rescales < 10 {
				t.Fatalf("the simulated plans change %d times: there is nothing to compare", rescales)
			}
			for i := range simulated {
				if i >= len(decided) || simulated[i] != decided[i] {
					t.Fatalf("decision %d of %d\nsimulated %s\nlive      %s", i, len(simulated), simulated[i], slices.Concat(decided, make([]string, len(simulated)))[i])
				}
			}
			if live.learned < 10 && policy.Name() == plan.DefaultPolicy {
				t.Errorf("in %d states a job was known with its noise, speeds and progress: there is nothing to compare", live.learned)
			}
			if len(decided) != len(simulated) {
				t.Errorf("%d decisions live, %d simulated", len(decided), len(simulated))
			}
		})
	}
}

// recordDecisions runs the workload and prints each plan.
func recordDecisions(t *testing.T, c sim.Config, decide func(plan.State) train.Plan) []string {
	t.Helper()
	var decisions []string
	c.Decide = func(s plan.State, _ plan.Policy) train.Plan {
		made := decide(s)
		words := s.Now.UTC().Format(time.TimeOnly)
		for _, a := range made.Allocations {
			words += fmt.Sprintf(" %s:%s/%s/%v", a.Job, a.Node, train.JoinDevices(a.Devices), a.Batch)
		}
		decisions = append(decisions, words)
		return made
	}
	r, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Completed != r.Jobs {
		t.Fatalf("%d of %d jobs completed", r.Completed, r.Jobs)
	}
	return decisions
}

// changes counts the decisions that are not those before them.
func changes(decisions []string) int {
	n := 0
	for i := 1; i < len(decisions); i++ {
		_, before, _ := strings.Cut(decisions[i-1], " ")
		if _, now, _ := strings.Cut(decisions[i], " "); now != before {
			n++
		}
	}
	return n
}

// trafficJam is two nodes of four devices and more jobs than fit. Plans are carried out at once: nobody is in the
// middle of leaving.
func trafficJam(policy plan.Policy) sim.Config {
	var jobs []sim.Arrival
	for i, batch := range []int{128, 256, 1024, 128, 512, 2048, 128, 256, 512, 128} {
		name, priority, tenant := "calm", train.DefaultPriority, "ann"
		if i%4 == 3 {
			name, priority, tenant = "urgent", 90, "bob"
		}
		jobs = append(jobs, sim.Arrival{Name: train.JobID(fmt.Sprintf("%s-%d", name, i)), Seconds: float64(170 * i), Source: recorded(name, tenant, priority, batch)})
	}
	for i, epochs := range []int{10, 20, 10} {
		id := train.JobID(fmt.Sprintf("adaptive-%d", i))
		jobs = append(jobs, sim.Arrival{Name: id, Seconds: float64(400 * i), Source: adaptiveJob(string(id), epochs)})
	}
	return sim.Config{
		Workload: sim.Workload{Name: "jam", Jobs: jobs}, Nodes: sim.Nodes([]sim.Pool{{Nodes: 2, Devices: 4}}), Policy: policy, AtOnce: true,
	}
}

// recorded is a job that was seen on one to four devices. A step takes a tenth of a second, a little more for each
// sample, and the network.
func recorded(name, tenant string, priority, batch int) *sim.Recorded {
	r := &sim.Recorded{
		Spec: train.Spec{
			Name: name, Tenant: tenant, Priority: &priority, BatchSize: batch, TrainingSetSize: 50 * batch, MaxEpochs: 100, MinDevices: 1, MaxDevices: 4,
			Strategy: train.StrategyAllReduce,
		},
		Priority: priority, Epochs: 100, StartSeconds: 30,
	}
	for devices := 1; devices <= 4; devices++ {
		steps, seconds := (50+devices-1)/devices, 0.1+0.0005*float64(batch)
		if devices > 1 {
			seconds += 0.03
		}
		r.Seen = append(r.Seen, sim.RecordedEpoch{EpochRecord: curve.EpochRecord{
			Epoch: devices, Seconds: float64(steps) * seconds, Steps: steps, Config: train.Config{Workers: devices, Nodes: 1, LocalBatch: batch},
		}})
	}
	return r
}

// liveWorld is the planner's loop on a real bus, and the records of the other services.
type liveWorld struct {
	*bench
	loop     *loop
	clock    time.Time
	attempts *bus.KV[train.Attempt]
	reports  *bus.KV[train.AttemptReport]
	models   *bus.KV[train.Model]
	// running is the newest attempt of each job that has not ended.
	running map[train.JobID]train.Attempt
	rounds  int
	// shown are the records of the simulated world.
	shown records.Records
	// learned counts the jobs, state by state, about which all was known that a batch is chosen by.
	learned int
}

func newLiveWorld(t *testing.T, s *Service, policy plan.Policy) *liveWorld {
	t.Helper()
	b := newBench(t)
	w := &liveWorld{
		bench: b, loop: newLoop(t, b, "planner"), attempts: openKV(b, contract.Attempts),
		reports: openKV(b, contract.Reports), models: openKV(b, contract.Models), running: map[train.JobID]train.Attempt{},
	}
	w.loop.cache, w.loop.policy, w.loop.terms = newCache(), policy, s.terms()
	w.loop.now = func() time.Time { return w.clock }
	watching := pool.New().WithContext(b.ctx).WithCancelOnError()
	if err := watch(b.ctx, w.loop.bus, w.loop.cache, new(grid), func(bus.Entry[*train.Job], bool) {}, watching); err != nil {
		t.Fatal(err)
	}
	return w
}

// decide tells the planner of the state of the world and lets it decide.
func (w *liveWorld) decide(s plan.State) train.Plan {
	w.t.Helper()
	w.clock = s.Now
	w.rounds++
	if w.rounds == 1 {
		for _, n := range s.Nodes {
			n.SeenAt = time.Now()
			put(w.bench, w.nodes, string(n.ID), n)
		}
	}
	gone := maps.Clone(w.running)
	for j := range w.shown.Jobs {
		w.write(*j)
		delete(gone, j.ID)
	}
	for id := range gone {
		w.end(id)
	}
	w.catchUp(len(s.Nodes))
	w.compare(s)
	if err := w.loop.round(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	m, err := w.bus.Last(w.ctx, event.StreamPlans, decision.Subject())
	if err != nil {
		w.t.Fatal(err)
	}
	return decode[event.PlanDecided](w.t, m).Plan
}

// compare checks that the planner has put together from the buckets what the world is like.
func (w *liveWorld) compare(want plan.State) {
	w.t.Helper()
	got := w.loop.cache.state(w.clock, w.loop.last, w.loop.known, w.loop.terms)
	ignored := cmp.Options{
		cmpopts.IgnoreFields(plan.State{}, "Memory"), cmpopts.IgnoreFields(train.Node{}, "SeenAt"), cmpopts.EquateEmpty(), cmpopts.EquateApprox(0, 1e-6),
		cmpopts.SortSlices(func(x, y plan.Job) bool { return x.ID < y.ID }), cmpopts.SortSlices(func(x, y train.Node) bool { return x.ID < y.ID }),
	}
	for _, j := range got.Jobs {
		if m := j.Model; j.Spec.AdaptiveBatch != nil && m != nil && m.Efficiency != nil && len(m.Ran) > 1 && m.Progress > 0 && m.StartSeconds > 0 {
			w.learned++
		}
	}
	if d := cmp.Diff(want, got, ignored); d != "" {
		w.t.Fatalf("round %d: the world (-) is not what the planner sees (+):\n%s", w.rounds, d)
	}
}

// write enters the records of a job into the buckets of the services that write them.
func (w *liveWorld) write(j train.Job) {
	key := string(j.ID)
	if a, tried := w.shown.Attempts[key]; tried {
		w.running[j.ID] = a
		put(w.bench, w.attempts, key, a)
		put(w.bench, w.reports, records.ReportKey(a), w.shown.Reports[records.ReportKey(a)])
	}
	if m, known := w.shown.Models[key]; known {
		put(w.bench, w.models, key, m)
	}
	put(w.bench, w.jobs, key, j)
}

// end notes that a job has succeeded.
func (w *liveWorld) end(id train.JobID) {
	a := w.running[id]
	a.Phase, a.Outcome = train.PhaseExited, train.OutcomeSucceeded
	put(w.bench, w.attempts, string(id), a)
	put(w.bench, w.jobs, string(id), train.Job{ID: id, State: train.StateSucceeded})
	delete(w.running, id)
}

// catchUp waits until the planner has seen all that was written: each bucket is seen in order, so a mark at the end
// of each will do.
func (w *liveWorld) catchUp(nodes int) {
	const mark = "mark"
	put(w.bench, w.jobs, mark, train.Job{ID: mark, State: train.StateSubmitted, Attempt: w.rounds})
	put(w.bench, w.attempts, mark, train.Attempt{Job: mark, Phase: train.PhaseExited, Number: w.rounds})
	put(w.bench, w.reports, contract.ReportKey(mark, 0), train.AttemptReport{Job: mark, EpochsDone: w.rounds})
	put(w.bench, w.models, mark, train.Model{Job: mark, EpochsSeen: w.rounds})
	p := w.loop.cache
	seen := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.missing) == 0 && len(p.nodes) == nodes && p.jobs[mark] != nil && p.jobs[mark].Attempt == w.rounds && p.attempts[mark].Number == w.rounds &&
			p.reports[contract.ReportKey(mark, 0)].EpochsDone == w.rounds && p.models[mark].EpochsSeen == w.rounds
	}
	for !seen() {
		select {
		case <-p.changed:
		case <-p.learned:
		case <-w.ctx.Done():
			w.t.Fatal("the planner never saw what was written")
		}
	}
}
