package servers

import (
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/lab/baselines"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// The cluster is that of the paper, 13 servers, with room for four containers of five cores each. A worker and a
// parameter server take a container each.
const (
	nodes      = 13
	containers = 4
)

// Policies are optimus, as the planner has it for live jobs, and those that the paper compares it with. Those start a
// server with each worker.
func Policies() []policy.Policy {
	return []policy.Policy{policy.Optimus{}, baselines.DRF{}, baselines.Tetris{}}
}

// request is what users of Tetris, which sizes nothing, ask for; most bounds what others give.
const (
	request = 4
	most    = 16
)

// Options are those of a run.
type Options struct {
	// Slot is the time between decisions, Restart what a changed job loses.
	Slot, Restart time.Duration
}

// Standard returns those of the paper: slots of ten minutes.
func Standard() Options { return Options{Slot: 10 * time.Minute, Restart: 30 * time.Second} }

// Result is what a policy made of a workload.
type Result struct {
	Policy   string        `json:"policy"`
	JCT      time.Duration `json:"jct_ns"`
	Makespan time.Duration `json:"makespan_ns"`
	Restarts int           `json:"restarts"`
}

// longest bounds a run: a policy that starves a job ends.
const longest = 1000 * time.Hour

// Run plays jobs under a policy.
func Run(jobs []Job, p policy.Policy, o Options) (Result, error) {
	r := newRun(jobs, p, o)
	for now := time.Duration(0); len(r.active) > 0; now += o.Slot {
		if now > longest {
			return Result{}, fmt.Errorf("policy %s: %d jobs have not ended after %s", p.Name(), len(r.active), longest)
		}
		r.decide(now)
		r.advance(now)
	}
	r.result.JCT /= time.Duration(len(jobs))
	return r.result, nil
}

// run is the state of a run.
type run struct {
	policy policy.Policy
	o      Options
	active []*playing
	nodes  []train.Node
	memory string
	result Result
}

// playing is a job while it is played.
type playing struct {
	Job

	id      train.JobID
	done    float64 // epochs
	seconds float64
	history curve.History
	known   map[train.Config]bool
	has     *state.Holding
	lost    time.Duration
	changes []time.Duration
}

func newRun(jobs []Job, p policy.Policy, o Options) *run {
	r := &run{policy: p, o: o, result: Result{Policy: p.Name()}}
	for i := range nodes {
		r.nodes = append(r.nodes, node(train.NodeID(fmt.Sprintf("n%02d", i)), !fills(p)))
	}
	for i, j := range jobs {
		one := &playing{Job: j, id: train.JobID(fmt.Sprintf("j%03d", i)), known: map[train.Config]bool{}}
		one.history.Kind = train.SpeedServersSync
		if j.Async {
			one.history.Kind = train.SpeedServersAsync
		}
		// The short runs on samples of the data before its first slot.
		for _, c := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {4, 2}, {2, 4}} {
			one.measure(c[0], c[1])
		}
		r.active = append(r.active, one)
	}
	return r
}

// fills reports whether a policy decides itself how many containers are servers.
func fills(p policy.Policy) bool { return p.Name() == policy.Optimus{}.Name() }

// node returns a server. For policies that start a server with each worker, half of its containers are for each.
func node(id train.NodeID, halved bool) train.Node {
	n := train.Node{ID: id, Cores: containers}
	kind, workers := train.KindCPU, containers
	if halved {
		kind, workers, n.Cores = train.KindGPU, containers/2, containers/2
	}
	for c := range workers {
		n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("%s:%d", kind, c)), Kind: kind, Core: c})
	}
	return n
}

// measure adds the step time of a configuration to the history of a job.
func (p *playing) measure(workers, servers int) {
	c := train.Config{Workers: workers, Servers: servers, Nodes: 1, LocalBatch: p.Batch}
	if p.known[c] {
		return
	}
	p.known[c] = true
	p.history.Steps = append(p.history.Steps, curve.StepSample{Config: c, StepSeconds: p.Truth.StepSeconds(c, p.Async)})
}

// epochSeconds is the true time of an epoch: a step of a synchronous job has a batch of each worker.
func (p *playing) epochSeconds(workers, servers int) float64 {
	step := p.Truth.StepSeconds(train.Config{Workers: workers, Servers: servers, LocalBatch: p.Batch}, p.Async)
	steps := float64(p.Samples) / float64(p.Batch)
	if !p.Async {
		steps /= float64(workers)
	}
	return steps * step
}

func (p *playing) job(o Options, sized bool, now time.Duration) state.Job {
	least, largest := 1, most
	if !sized {
		least, largest = request, request
	}
	model := curve.Refit(p.history)
	j := state.Job{
		ID: p.id, Priority: 50, SubmittedAt: time.Unix(0, 0).Add(p.At), EpochsDone: int(p.done), RunSeconds: p.seconds, Model: &model, Planned: p.has,
		Spec: train.Spec{
			Name: p.Name, Command: []string{p.Name}, BatchSize: p.Batch, TrainingSetSize: p.Samples, MaxEpochs: p.Epochs, MinDevices: least, MaxDevices: largest,
			Strategy: train.StrategyParameterServer, Launch: train.LaunchPerDevice, ParameterServers: &train.ServersSpec{Max: largest, Cores: 1, Async: p.Async},
		},
	}
	if p.has != nil {
		j.Running = &state.Running{Holding: *p.has, Seconds: max(p.seconds, 1), Epochs: max(int(p.done), 1), Spoke: true, Saved: true, AnyStep: true}
	}
	for _, at := range p.changes {
		if now-at < time.Hour {
			j.RecentRestarts++
		}
	}
	return j
}

// decide asks the planner, and gives each job what it says.
func (r *run) decide(now time.Duration) {
	s := state.State{
		Now: time.Unix(0, 0).Add(now), Nodes: r.nodes, Memory: r.memory, IntervalSeconds: r.o.Slot.Seconds(),
		Tuning: state.Tuning{RestartSeconds: r.o.Restart.Seconds(), YoungFactor: 0.95, YoungEpochs: 1, MaxRestartsPerHour: int(time.Hour / r.o.Slot)},
	}
	_, fixed := r.policy.(baselines.Tetris)
	for _, p := range r.active {
		if p.At <= now {
			s.Jobs = append(s.Jobs, p.job(r.o, !fixed, now))
		}
	}
	decided := plan.Decide(s, r.policy)
	r.memory = decided.Memory
	for _, p := range r.active {
		a, given := decided.Find(p.id)
		if given && !fills(r.policy) {
			a.Servers = besideWorkers(a.Places())
		}
		switch {
		case !given:
			p.has = nil
		case p.has == nil || !train.SamePlaces(a.Places(), places(p.has)) || !train.SameServers(a.Servers, p.has.Servers):
			if p.seconds > 0 {
				r.result.Restarts++
				p.changes = append(p.changes, now)
			}
			p.lost = r.o.Restart
			p.has = &state.Holding{Node: a.Node, Devices: a.Devices, Parts: a.Parts, Servers: a.Servers}
		}
	}
}

// besideWorkers starts a server with each worker.
func besideWorkers(parts []train.Part) []train.ServerPart {
	var all []train.ServerPart
	for _, part := range parts {
		all = append(all, train.ServerPart{Node: part.Node, Count: len(part.Devices)})
	}
	return all
}

func places(h *state.Holding) []train.Part {
	if len(h.Parts) > 0 {
		return h.Parts
	}
	return []train.Part{{Node: h.Node, Devices: h.Devices}}
}

// advance lets the jobs train for a slot.
func (r *run) advance(now time.Duration) {
	for _, p := range r.active {
		if p.has == nil {
			continue
		}
		workers, servers := 0, 0
		for _, part := range places(p.has) {
			workers += len(part.Devices)
		}
		for _, part := range p.has.Servers {
			servers += part.Count
		}
		p.measure(workers, servers)
		each := p.epochSeconds(workers, servers)
		left := time.Duration((float64(p.Epochs) - p.done) * each * float64(time.Second))
		trains := r.o.Slot - p.lost
		p.seconds += min(trains, left).Seconds()
		if left <= trains {
			end := now + p.lost + left
			r.result.JCT += end - p.At
			r.result.Makespan = max(r.result.Makespan, end)
			p.done = float64(p.Epochs)
			continue
		}
		p.done += trains.Seconds() / each
		p.lost = 0
	}
	r.active = slices.DeleteFunc(r.active, func(p *playing) bool { return p.done >= float64(p.Epochs) })
}
