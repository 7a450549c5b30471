package cli

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// simulated is a run that is over.
type simulated struct {
	sim.Result
	history []allocated
	ticks   []sim.Tick
}

// allocated is a change of what a job holds.
type allocated struct {
	seconds   float64
	job       string
	devices   int
	placement string
	reason    string
}

// simulate runs each policy on each workload, as many at once as there are processors. Results are in the order of the policies, then of the workloads.
func (a *app) simulate(ctx context.Context, s simulation) ([]simulated, error) {
	bar := newProgress(a, s)
	runs := make([]simulated, len(s.policies)*len(s.workloads))
	p := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(goruntime.GOMAXPROCS(0))
	for i := range runs {
		c := s.config
		c.Policy, c.Workload = s.policies[i/len(s.workloads)], s.workloads[i%len(s.workloads)]
		p.Go(func(ctx context.Context) error {
			var err error
			runs[i], err = simulateOne(ctx, c, func(done int) { bar.set(i, done) })
			return err
		})
	}
	err := p.Wait()
	bar.clear()
	return runs, err
}

// simulateOne runs one policy on one workload and measures its decisions.
func simulateOne(ctx context.Context, c sim.Config, progress func(done int)) (simulated, error) {
	var one simulated
	var took []float64
	c.Decide = func(state plan.State, policy plan.Policy) train.Plan {
		start := time.Now()
		decided := plan.Decide(state, policy)
		took = append(took, float64(time.Since(start))/float64(time.Millisecond))
		return decided
	}
	holds := map[train.JobID]string{}
	c.Watch = func(t sim.Tick) bool {
		progress(t.Done)
		one.history = append(one.history, changes(holds, t)...)
		t.Plan = nil
		one.ticks = append(one.ticks, t)
		return ctx.Err() == nil
	}
	var err error
	if one.Result, err = sim.Run(c); err != nil {
		return one, err
	}
	slices.Sort(took)
	one.DecideMSP50, one.DecideMSP99 = sim.Percentile(took, 0.5), sim.Percentile(took, 0.99)
	return one, ctx.Err()
}

// changes are the allocations that a decision changed.
func changes(holds map[train.JobID]string, t sim.Tick) []allocated {
	if t.Plan == nil {
		clear(holds)
		return nil
	}
	var list []allocated
	listed := make(map[train.JobID]bool, len(t.Plan.Allocations))
	for _, a := range t.Plan.Allocations {
		placement, n := "", 0
		for _, p := range a.Places() {
			placement += fmt.Sprintf(" %s:%d", p.Node, len(p.Devices))
			n += len(p.Devices)
		}
		listed[a.Job] = true
		if holds[a.Job] != placement {
			holds[a.Job] = placement
			list = append(list, allocated{t.Seconds, string(a.Job), n, placement[1:], a.Reason.Code})
		}
	}
	for _, w := range t.Plan.Waiting {
		if holds[w.Job] != "" {
			list = append(list, allocated{seconds: t.Seconds, job: string(w.Job), reason: w.Blockers[0].Code})
		}
	}
	for job := range holds {
		if !listed[job] {
			delete(holds, job)
		}
	}
	return list
}

// simulationBar shows on a terminal how far all runs together have come.
type simulationBar struct {
	app     *app
	visible bool
	mu      sync.Mutex
	done    []int
	total   int
	start   time.Time
	shown   time.Time
}

func newProgress(a *app, s simulation) *simulationBar {
	bar := &simulationBar{app: a, visible: isTerminal(a.stderr), done: make([]int, len(s.policies)*len(s.workloads)), start: time.Now()}
	for _, w := range s.workloads {
		bar.total += len(w.Jobs) * len(s.policies)
	}
	bar.shown = bar.start
	return bar
}

// set notes how many jobs a run has completed.
func (p *simulationBar) set(run, done int) {
	if !p.visible {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[run] = done
	now := time.Now()
	if now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = now
	sum := 0
	for _, d := range p.done {
		sum += d
	}
	_, _ = fmt.Fprintf(p.app.stderr, "\r\x1b[K%s", simulationProgress(sum, p.total, now.Sub(p.start)))
}

func (p *simulationBar) clear() {
	if p.visible {
		_, _ = fmt.Fprint(p.app.stderr, "\r\x1b[K")
	}
}
