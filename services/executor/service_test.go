package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

func TestMain(m *testing.M) {
	local.RunIfAsked(os.Args)
	os.Exit(m.Run())
}

// yard is a bus with an executor beside it; the test plays the other services.
type yard struct {
	t      *testing.T
	ctx    context.Context
	server *busserver.Server
	bus    *bus.Bus
	dir    string
	// stop ends the executor that runs now.
	stop func()

	attempts *bus.KV[train.Attempt]
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	reports  *bus.KV[train.AttemptReport]

	plans    uint64
	lastPlan uint64

	mu    sync.Mutex
	facts []bus.Message
}

func newYard(t *testing.T, args ...string) *yard {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	y := &yard{t: t, ctx: ctx, server: bustest.Start(t), dir: t.TempDir()}
	y.bus = bustest.Connect(t, y.server, "admission")
	var errs [4]error
	y.attempts, errs[0] = bus.OpenKV[train.Attempt](ctx, y.bus, event.BucketAttempts)
	y.jobs, errs[1] = bus.OpenKV[train.Job](ctx, y.bus, event.BucketJobs)
	y.nodes, errs[2] = bus.OpenKV[train.Node](ctx, y.bus, event.BucketNodes)
	y.reports, errs[3] = bus.OpenKV[train.AttemptReport](ctx, y.bus, event.BucketReports)
	y.must(errors.Join(errs[:]...))
	var follower conc.WaitGroup
	follow, stop := context.WithCancel(ctx)
	follower.Go(func() {
		_ = y.bus.Follow(follow, event.StreamJobs, nil, 1, func(m bus.Message) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.facts = append(y.facts, m)
		})
	})
	t.Cleanup(func() { stop(); follower.Wait() })
	_, err := y.nodes.Swap(ctx, "n1", train.Node{
		ID: "n1", Cores: 2, JobAPI: "127.0.0.1:1", Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU, Core: 1}},
	}, 0)
	y.must(err)
	t.Cleanup(y.killAll)
	y.run(args...)
	return y
}

// killAll ends what the test left behind.
func (y *yard) killAll() {
	b := local.New(y.dir)
	found, err := b.Alive()
	y.must(err)
	for _, f := range found {
		if s, err := b.Look(f.Job, f.Number); err == nil && s.PID != 0 {
			_ = unix.Kill(s.PID, unix.SIGKILL)
		}
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
	s := New()
	fs := pflag.NewFlagSet("executor", pflag.ContinueOnError)
	s.Flags(fs)
	y.must(fs.Parse(append([]string{"--kill-after=300ms"}, args...)))
	common := run.Common{NATS: y.server.URL(), HTTP: "127.0.0.1:0", LogLevel: "debug", LogFormat: "text", DataDir: y.dir, Node: "n1"}
	y.must(s.Validate(common))
	ctx, cancel := context.WithCancel(y.ctx)
	var done conc.WaitGroup
	done.Go(func() {
		if err := run.Together(ctx, common, testLog{y.t}, func(net.Addr) {}, s); err != nil {
			y.t.Errorf("executor: %v", err)
		}
	})
	y.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	y.t.Cleanup(y.stop)
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

var _ io.Writer = testLog{}

func (y *yard) until(what string, holds func() bool) {
	y.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-y.ctx.Done():
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
	_, err := y.jobs.Modify(y.ctx, string(id), func(j *train.Job) (bool, error) {
		j.ID, j.Spec, j.State = id, spec.WithDefaults(), train.StateQueued
		return true, nil
	})
	y.must(err)
}

func (y *yard) change(id train.JobID, change func(*train.Job)) {
	y.t.Helper()
	_, err := y.jobs.Modify(y.ctx, string(id), func(j *train.Job) (bool, error) { change(j); return true, nil })
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
	sequence, err := y.bus.PublishAfter(y.ctx, event.Fact{
		Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: fmt.Sprintf("plan/%d/%d", generation, y.lastPlan),
		Body: event.PlanDecided{Plan: train.Plan{Generation: generation, Allocations: allocations}},
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
		found := y.told(job, name)
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

func (y *yard) told(job train.JobID, name string) []bus.Message {
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
		e, err := y.attempts.Get(y.ctx, string(job))
		if errors.Is(err, bus.ErrNotFound) {
			return false
		}
		y.must(err)
		a = e.Value
		return fits(a)
	})
	return a
}

func isRunning(n int) func(train.Attempt) bool {
	return func(a train.Attempt) bool { return a.Number == n && a.Phase == train.PhaseRunning }
}

func told(a train.Attempt) bool { return a.Told }

func command(script string) train.Spec { return train.Spec{Command: []string{"sh", "-c", script}} }

func (y *yard) path(name string) string { return filepath.Join(y.dir, name) }

func (y *yard) touch(name string) {
	y.t.Helper()
	y.must(os.WriteFile(y.path(name), nil, 0o600))
}

func TestPlanToSuccess(t *testing.T) {
	y := newYard(t)
	y.job("j1", command("echo hello from $SWITCHYARD_JOB"))
	y.plan(on("j1", "cpu:0"))
	if got := fact[event.Started](y, "j1", event.FactStarted); got.Attempt != 1 || got.Node != "n1" || got.Generation != 1 || len(got.Devices) != 1 {
		t.Errorf("started %+v", got)
	}
	if got := fact[event.Succeeded](y, "j1", event.FactSucceeded); got.Attempt != 1 {
		t.Errorf("succeeded %+v", got)
	}
	a := y.attempt("j1", "told", told)
	if a.Outcome != train.OutcomeSucceeded || a.Exit == nil || a.PID == 0 || a.CapabilityHash == "" {
		t.Errorf("record %+v", a)
	}
	y.change("j1", func(j *train.Job) { j.State = train.StateSucceeded })
	chunk, err := bus.Ask[train.LogRequest, train.LogChunk](y.ctx, y.bus, train.LogSubject("n1"), train.LogRequest{Job: "j1"})
	y.must(err)
	if !strings.Contains(string(chunk.Data), "hello from j1\n") || chunk.Next != chunk.Size {
		t.Errorf("log %q of %d, next %d", chunk.Data, chunk.Size, chunk.Next)
	}
	y.until("the end of the log", func() bool {
		chunk, err := bus.Ask[train.LogRequest, train.LogChunk](y.ctx, y.bus, train.LogSubject("n1"), train.LogRequest{Job: "j1", Offset: chunk.Next})
		y.must(err)
		return chunk.Ended && len(chunk.Data) == 0
	})
	y.until("the private files are gone", func() bool {
		_, err := os.Stat(local.Layout{DataDir: y.dir}.Attempt("j1", 1))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestFailuresAreTold(t *testing.T) {
	y := newYard(t)
	y.job("status", command("echo no good; exit 3"))
	y.job("missing", train.Spec{Command: []string{"no-such-program"}})
	y.plan(on("status", "cpu:0"), on("missing", "cpu:1"))
	if got := fact[event.Failed](y, "status", event.FactFailed); got.Exit.Code != 3 || got.Exit.LogTail != "no good\n" || got.Reason.Code != "ExitStatus" {
		t.Errorf("status: %+v", got)
	}
	if got := fact[event.Failed](y, "missing", event.FactFailed); got.Exit.Message != "command not found: no-such-program" || got.Reason.Code != "NotStarted" {
		t.Errorf("missing: %+v", got)
	}
	// The devices are free again, and an image has nothing to run in here.
	y.job("image", train.Spec{Image: "some/image"})
	y.plan(on("image", "cpu:0"))
	if got := fact[event.Failed](y, "image", event.FactFailed); !strings.Contains(got.Reason.Message, "container runtime") {
		t.Errorf("image: %+v", got)
	}
	if n := len(y.told("missing", event.FactStarted)) + len(y.told("image", event.FactStarted)); n != 0 {
		t.Errorf("%d starts were told of programs that never ran", n)
	}
}

// An executor that is killed leaves its jobs running; the next one finds them, also those that ended meanwhile.
func TestExecutorComesBack(t *testing.T) {
	y := newYard(t)
	y.job("long", command("echo start >> "+y.path("starts")+"; while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done; exit 5"))
	y.job("short", command("while ! [ -e "+y.path("short-go")+" ]; do sleep 0.02; done"))
	y.plan(on("long", "cpu:0"), on("short", "cpu:1"))
	before := y.attempt("long", "running", isRunning(1))
	y.attempt("short", "running", isRunning(1))
	y.stop()
	y.touch("short-go")
	b := local.New(y.dir)
	y.until("the short job's end", func() bool {
		s, err := b.Look("short", 1)
		y.must(err)
		return s.Phase == local.Exited
	})
	if n := len(y.told("short", event.FactSucceeded)); n != 0 {
		t.Fatalf("an end was told without an executor")
	}
	y.run()
	fact[event.Succeeded](y, "short", event.FactSucceeded)
	if after := y.attempt("long", "running", isRunning(1)); after.PID != before.PID {
		t.Errorf("the supervisor changed from %d to %d", before.PID, after.PID)
	}
	y.touch("go")
	if got := fact[event.Failed](y, "long", event.FactFailed); got.Attempt != 1 || got.Exit.Code != 5 {
		t.Errorf("failed %+v", got)
	}
	starts, err := os.ReadFile(y.path("starts"))
	y.must(err)
	if string(starts) != "start\n" {
		t.Errorf("started %d times, want once", strings.Count(string(starts), "start"))
	}
	if n := len(y.told("long", event.FactStarted)); n != 1 {
		t.Errorf("%d facts of a start, want 1", n)
	}
}
