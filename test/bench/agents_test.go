package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// agentsVariable makes this program play the agents and executors of many nodes. In a process of its own, its processor
// time is apart from that of the services.
const agentsVariable = "SWITCHYARD_BENCH_AGENTS"

// agentsOptions is the value of agentsVariable.
type agentsOptions struct {
	URL, Keys string
	Nodes     int
	// Every is the interval of meters and heartbeats.
	Every time.Duration
	// NoOps ends each attempt as soon as it has started.
	NoOps bool
}

const (
	// devicesOfNode is how many GPUs each node has.
	devicesOfNode = 8
	// stepsOfBeat is how many steps there are between two heartbeats.
	stepsOfBeat = 10
)

// agents write what the agents and executors of nodes do: records of nodes every five seconds, an interval of the
// meters and a heartbeat of each job every Every, reports every five seconds, and attempts as plans say. Each agent has
// a connection and a key of its own, as on a machine of its own.
type agents struct {
	agentsOptions
	executor *bus.Bus
	attempts *bus.KV[train.Attempt]

	mu sync.Mutex
	// running are the attempts of each node, of has the node of each job.
	running map[train.NodeID][]train.Attempt
	of      map[train.JobID]train.NodeID
}

// playAgents works until it is killed.
func playAgents(text string) int {
	a := &agents{running: map[train.NodeID][]train.Attempt{}, of: map[train.JobID]train.NodeID{}}
	if err := json.Unmarshal([]byte(text), &a.agentsOptions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := a.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (a *agents) run(ctx context.Context) (err error) {
	if a.executor, err = bus.Connect(ctx, bus.Config{URL: a.URL, Keys: a.Keys, Name: "executor"}); err != nil {
		return err
	}
	if a.attempts, err = bus.OpenKV(ctx, a.executor, contract.Attempts); err != nil {
		return err
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	for i := range a.Nodes {
		work.Go(func(ctx context.Context) error { return a.node(ctx, i) })
	}
	work.Go(func(ctx context.Context) error {
		return a.executor.Follow(ctx, event.StreamPlans, []string{event.PlanSubject().String()}, 1, func(m bus.Message) {
			if decided, err := event.Decode[event.PlanDecided](m.Data); err == nil {
				a.follow(ctx, decided.Plan)
			}
		})
	})
	return work.Wait()
}

// follow starts what a plan places on the nodes.
func (a *agents) follow(ctx context.Context, p train.Plan) {
	starting := pool.New().WithMaxGoroutines(writers)
	for _, w := range p.Allocations {
		a.mu.Lock()
		_, known := a.of[w.Job]
		a.of[w.Job] = w.Node
		a.mu.Unlock()
		if known || len(w.Node) == 0 || w.Node[:4] != "node" {
			continue
		}
		starting.Go(func() { a.start(ctx, p.Generation, w) })
	}
	starting.Wait()
}

func (a *agents) start(ctx context.Context, generation uint64, w train.Allocation) {
	now := time.Now().UTC()
	attempt := train.Attempt{Job: w.Job, Number: 1, Node: w.Node, Generation: generation, Devices: w.Devices, Phase: train.PhaseRunning, ClaimedAt: now, StartedAt: now}
	fact := event.JobFact(w.Job, event.FactStarted, "attempt/1/started", event.Started{Attempt: 1, Generation: generation, Node: w.Node, Devices: w.Devices})
	err := a.attempts.Put(ctx, string(w.Job), attempt)
	if err == nil {
		err = a.executor.Publish(ctx, fact)
	}
	if err == nil && a.NoOps {
		err = a.end(ctx, attempt)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return
	case a.NoOps:
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[w.Node] = append(slices.Clone(a.running[w.Node]), attempt)
}

// end ends an attempt as an executor does after a process that returned 0.
func (a *agents) end(ctx context.Context, attempt train.Attempt) error {
	attempt.Phase, attempt.Outcome, attempt.Exit, attempt.ExitedAt, attempt.Published = train.PhaseExited, train.OutcomeSucceeded, &train.Exit{}, time.Now().UTC(), true
	if err := a.executor.Publish(ctx, event.OnceFact(attempt.Job, event.FactSucceeded, "end", event.Succeeded{Attempt: attempt.Number})); err != nil {
		return err
	}
	return a.attempts.Put(ctx, string(attempt.Job), attempt)
}

// machine is the i-th node.
func machine(i int) train.Node {
	n := train.Node{ID: train.NodeID(fmt.Sprintf("node-%04d", i)), BootID: "bench", Cores: 64, Memory: 512 * unit.GiB, JobAPI: "127.0.0.1:1"}
	for d := range devicesOfNode {
		n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU, Model: "H100", Memory: 80 * unit.GiB, IdleWatts: 70, BusyWatts: 700})
	}
	return n
}

// node plays one agent.
func (a *agents) node(ctx context.Context, i int) error {
	n := machine(i)
	agent, err := bus.Connect(ctx, bus.Config{URL: a.URL, Keys: string(identity.Keys(a.Keys).OfNode(string(n.ID))), Name: identity.Agent})
	if err != nil {
		return err
	}
	var nodes *bus.KV[train.Node]
	var reports *bus.KV[train.AttemptReport]
	if err := errors.Join(bus.Open(ctx, agent, contract.Nodes, &nodes), bus.Open(ctx, agent, contract.Reports, &reports)); err != nil {
		return err
	}
	nodes, reports = nodes.Own(), reports.Own() // as the agent's
	tick.Pause(ctx, a.Every*time.Duration(i)/time.Duration(a.Nodes))
	before, sequence := time.Now().UTC(), 0
	for now := range tick.Every(ctx, a.Every) {
		now = now.UTC()
		a.mu.Lock()
		running := a.running[n.ID]
		a.mu.Unlock()
		facts, slow := beats(running, sequence, now), (sequence+i)%max(int(5*time.Second/a.Every), 1) == 0
		if sequence++; sequence > 1 {
			facts = append(facts, measured(n, running, sequence, before, now))
		}
		before = now
		err := agent.PublishTogether(ctx, facts...)
		if slow {
			n.SeenAt = now
			err = nodes.Put(ctx, string(n.ID), n)
			for _, r := range running {
				report := train.AttemptReport{Job: r.Job, Attempt: 1, Spoke: true, Steps: train.Steps{Total: stepsOfBeat * sequence, Done: stepsOfBeat * sequence, Seconds: 0.1, At: now}}
				err = reports.Put(ctx, contract.ReportKey(r.Job, 1), report)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return nil
}

// beats are the heartbeats of the jobs of a node.
func beats(running []train.Attempt, sequence int, now time.Time) (facts []event.Fact) {
	loss, step := 1/float64(sequence+1), stepsOfBeat*sequence
	for _, r := range running {
		facts = append(facts, event.Fact{
			Subject: event.Subject{Entity: "sample", ID: string(r.Job), Fact: event.FactStepped, Version: 1}, Key: fmt.Sprintf("job/%s/attempt/1/step/%d/0", r.Job, step), Time: now,
			Body: event.Stepped{Job: r.Job, Attempt: 1, Step: step, Steps: stepsOfBeat, StepSeconds: 0.1, Samples: 320, Loss: &loss, Devices: len(r.Devices)},
		})
	}
	return facts
}

// measured is an interval of the meters of a node.
func measured(n train.Node, running []train.Attempt, sequence int, from, to time.Time) event.Fact {
	seconds := to.Sub(from).Seconds()
	m := event.Measured{Node: n.ID, BootID: n.BootID, Sequence: uint64(sequence), From: from, To: to, Meters: []event.Meter{
		{Component: event.ComponentCPU, Method: "rapl", Energy: unit.Energy(200 * seconds * float64(unit.Joule)), Capacity: 64 * seconds, Busy: 8 * seconds},
	}}
	for _, d := range n.Devices {
		m.Meters = append(m.Meters, event.Meter{Component: event.ComponentGPU, Device: d.ID, Method: "nvml_counter", Energy: unit.Energy(400 * seconds * float64(unit.Joule)), Idle: unit.Energy(70 * seconds * float64(unit.Joule)), Capacity: seconds})
	}
	for _, r := range running {
		m.Users = append(m.Users, event.Use{Job: r.Job, Attempt: 1, Component: event.ComponentCPU, Work: 4 * seconds})
		for _, d := range r.Devices {
			m.Users = append(m.Users, event.Use{Job: r.Job, Attempt: 1, Component: event.ComponentGPU, Device: d, Work: 0.9 * seconds, ContextSeconds: seconds})
		}
	}
	return event.Fact{
		Subject: event.Subject{Entity: "energy", ID: string(n.ID), Fact: event.FactMeasured, Version: 1}, Key: fmt.Sprintf("node/%s/%s/%d", n.ID, n.BootID, sequence), Time: to, Body: m,
	}
}
