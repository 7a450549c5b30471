package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
)

// executorArgument makes the test program an executor that can be killed.
const executorArgument = "__executor"

func TestMain(m *testing.M) {
	supervisor.RunIfAsked(os.Args)
	if len(os.Args) > 1 && os.Args[1] == executorArgument {
		os.Exit(run.Main(os.Args[2:], []string{"SWITCHYARD_JOB_MOUNTS=never"}, os.Stderr, settings.ExecutorSection, func(a *settings.All) run.Service { return New(a.Executor) }))
	}
	bustest.Parallel(6)
	os.Exit(m.Run())
}

// yard is a bus with an executor; the test plays the other services.
type yard struct {
	t      *testing.T
	server *busserver.Server
	bus    *bus.Bus
	// dir is the executor's data folder, store the server's.
	dir string
	// side is where jobs and tests meet: jobs do not see the data folder.
	side  string
	store string
	// node is the id that an executor is started with.
	node string
	// planner is the service that publishes plans.
	planner string
	// http is where the running executor tells its health.
	http net.Addr
	// stop ends the running executor.
	stop func()

	attempts *bus.KV[train.Attempt]
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	reports  *bus.KV[train.AttemptReport]

	began    time.Time
	plans    uint64
	lastPlan uint64

	mu    sync.Mutex
	facts []bus.Message
}

func newYard(t *testing.T, args ...string) *yard {
	t.Helper()
	return newYardIn(t, t.TempDir(), args...)
}

// newYardIn is newYard with a data folder.
func newYardIn(t *testing.T, dir string, args ...string) *yard {
	t.Helper()
	ctx := t.Context()
	y := &yard{t: t, dir: dir, side: t.TempDir(), store: t.TempDir(), node: "n1", planner: "planner", began: time.Now()}
	y.serve(0)
	t.Cleanup(func() { y.server.Stop() })
	y.bus = bustest.Connect(t, y.server, "admission")
	var errs [4]error
	y.attempts, errs[0] = bus.OpenKV(ctx, y.bus, contract.Attempts)
	y.jobs, errs[1] = bus.OpenKV(ctx, y.bus, contract.Jobs)
	y.nodes, errs[2] = bus.OpenKV(ctx, y.bus, contract.Nodes)
	y.reports, errs[3] = bus.OpenKV(ctx, y.bus, contract.Reports)
	y.must(errors.Join(errs[:]...))
	var follower conc.WaitGroup
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	follower.Go(func() {
		_ = y.bus.Follow(follow, event.StreamJobs, nil, 1, func(m bus.Message) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.facts = append(y.facts, m)
		})
	})
	t.Cleanup(func() { stop(); follower.Wait() })
	first, last := cores(t)
	_, err := y.nodes.Swap(ctx, "n1", train.Node{
		ID: "n1", Cores: 2, JobAPI: "127.0.0.1:1", Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU, Core: first}, {ID: "cpu:1", Kind: train.KindCPU, Core: last}},
	}, 0)
	y.must(err)
	t.Cleanup(y.killAll)
	y.run(args...)
	return y
}

// agent starts an agent of the node that answers so. Without it, the agent is away.
func (y *yard) agent(answer http.HandlerFunc) {
	y.t.Helper()
	agent := httptest.NewServer(answer)
	y.t.Cleanup(agent.Close)
	_, err := y.nodes.Modify(y.t.Context(), "n1", func(n *train.Node) (bool, error) {
		n.JobAPI = strings.TrimPrefix(agent.URL, "http://")
		return true, nil
	})
	y.must(err)
}

// serve starts the server over what it stored before.
func (y *yard) serve(port int) {
	y.t.Helper()
	s, err := busserver.Start(busserver.Options{Open: true, Dir: y.store, Port: port})
	y.must(err)
	y.server = s
}

// killAll ends what the test left behind. While it runs it writes into the folder, which is about to be removed.
func (y *yard) killAll() {
	b := local.New(y.dir, local.Supervisor{}, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300})
	found, err := b.Find(context.Background())
	y.must(err)
	for _, f := range found {
		y.until(fmt.Sprintf("nothing of %s is left", f.Job), func() bool {
			left, err := b.Sweep(context.Background(), train.Attempt{Job: f.Job, Number: f.Number})
			return err == nil && left == 0
		})
	}
}

func (y *yard) must(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

// run starts an executor over the yard's data folder.
func (y *yard) run(args ...string) {
	y.t.Helper()
	all, err := settings.Of(append([]string{"--kill-after=300ms"}, args...)...)
	y.must(err)
	s := New(all.Executor)
	common := run.Common{NATS: y.server.URL(), HTTP: "127.0.0.1:0", LogLevel: "debug", LogFormat: "text", DataDir: y.dir, Node: y.node}
	y.must(s.Validate(common))
	ctx, cancel := context.WithCancel(context.WithoutCancel(y.t.Context()))
	var done conc.WaitGroup
	listening := make(chan net.Addr, 1)
	done.Go(func() {
		defer close(listening)
		if err := run.Together(ctx, common, testLog{y.t}, func(a net.Addr) { listening <- a }, s); err != nil {
			y.t.Errorf("executor: %v", err)
		}
	})
	y.http = <-listening
	y.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	y.t.Cleanup(y.stop)
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

var _ io.Writer = testLog{}

func testLogger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(testLog{t}, nil))
}

func (y *yard) until(what string, holds func() bool) {
	y.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(3 * time.Minute)
	defer patience.Stop()
	for !holds() {
		select {
		case <-patience.C:
			y.t.Fatalf("waited too long for: %s", what)
		case <-tick.C:
		}
	}
}

// job admits a job.
func (y *yard) job(id train.JobID, spec train.Spec) {
	y.t.Helper()
	if spec.BatchSize == 0 {
		spec.BatchSize, spec.TrainingSetSize, spec.MaxEpochs = 1, 1, 3
	}
	_, err := y.jobs.Modify(y.t.Context(), string(id), func(j *train.Job) (bool, error) {
		j.ID, j.Spec, j.State = id, spec.WithDefaults(), train.StateQueued
		j.Seal = y.sign(*j)
		return true, nil
	})
	y.must(err)
}

// sign signs a job as admission does.
func (y *yard) sign(job train.Job) []byte {
	y.t.Helper()
	keys := identity.KeysOf(y.dir)
	seal, err := keys.Seal()
	if errors.Is(err, os.ErrNotExist) {
		seal, err = identity.NewSeal(0)
		err = errors.Join(err, seal.Keep(keys))
	}
	y.must(err)
	signature, err := seal.Sign(job)
	y.must(err)
	return signature
}

func (y *yard) change(id train.JobID, change func(*train.Job)) {
	y.t.Helper()
	_, err := y.jobs.Modify(y.t.Context(), string(id), func(j *train.Job) (bool, error) {
		change(j)
		j.Seal = y.sign(*j)
		return true, nil
	})
	y.must(err)
}

// plan publishes the next plan.
func (y *yard) plan(allocations ...train.Allocation) {
	y.t.Helper()
	y.plans++
	y.planAs(y.plans, allocations...)
}

func (y *yard) planAs(generation uint64, allocations ...train.Allocation) {
	y.t.Helper()
	sequence, err := y.bus.PublishAfter(y.t.Context(), event.Fact{
		Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: fmt.Sprintf("plan/%d/%d", generation, y.lastPlan),
		Source: y.planner, Body: event.PlanDecided{Plan: train.Plan{Generation: generation, Allocations: allocations}},
	}, y.lastPlan)
	y.must(err)
	y.lastPlan = sequence
}

func on(job train.JobID, devices ...train.DeviceID) train.Allocation {
	return train.Allocation{Job: job, Node: "n1", Devices: devices}
}

// fact waits for a fact of a job and decodes it.
func fact[T any](y *yard, job train.JobID, name string) T {
	y.t.Helper()
	var body T
	y.until(fmt.Sprintf("%s of %s", name, job), func() bool {
		found := y.factsOf(job, name)
		if len(found) == 0 {
			return false
		}
		var err error
		body, err = event.Decode[T](found[len(found)-1].Data)
		y.must(err)
		return true
	})
	return body
}

func (y *yard) factsOf(job train.JobID, name string) []bus.Message {
	y.mu.Lock()
	defer y.mu.Unlock()
	var found []bus.Message
	for _, m := range y.facts {
		if m.Parsed.ID == string(job) && m.Parsed.Fact == name {
			found = append(found, m)
		}
	}
	return found
}

// attempt waits until the record of a job's attempt fits.
func (y *yard) attempt(job train.JobID, what string, fits func(train.Attempt) bool) train.Attempt {
	y.t.Helper()
	var a train.Attempt
	y.until(fmt.Sprintf("attempt of %s: %s", job, what), func() bool {
		e, err := y.attempts.Get(y.t.Context(), string(job))
		a = e.Value
		return err == nil && fits(a) // it is not there yet, or the bus is busy
	})
	return a
}

func isRunning(n int) func(train.Attempt) bool {
	return func(a train.Attempt) bool { return a.Number == n && a.Phase == train.PhaseRunning }
}

func published(a train.Attempt) bool { return a.Published }

func command(script string) train.Spec { return train.Spec{Command: []string{"sh", "-c", script}} }

func (y *yard) path(name string) string { return filepath.Join(y.side, name) }

func (y *yard) touch(name string) {
	y.t.Helper()
	y.must(os.WriteFile(y.path(name), nil, 0o600))
}

// cores returns the first and the last processor that the test may use.
func cores(t *testing.T) (first, last int) {
	t.Helper()
	processors, err := proc.Processors()
	if err != nil {
		t.Fatal(err)
	}
	return processors[0], processors[len(processors)-1]
}
