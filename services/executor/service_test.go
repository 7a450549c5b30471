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
	server *busserver.Server
	bus    *bus.Bus
	// dir is the executor's data folder, store the server's.
	dir   string
	store string
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
	ctx := t.Context()
	y := &yard{t: t, dir: t.TempDir(), store: t.TempDir()}
	y.serve(0)
	t.Cleanup(func() { y.server.Stop() })
	y.bus = bustest.Connect(t, y.server, "admission")
	var errs [4]error
	y.attempts, errs[0] = bus.OpenKV[train.Attempt](ctx, y.bus, event.BucketAttempts)
	y.jobs, errs[1] = bus.OpenKV[train.Job](ctx, y.bus, event.BucketJobs)
	y.nodes, errs[2] = bus.OpenKV[train.Node](ctx, y.bus, event.BucketNodes)
	y.reports, errs[3] = bus.OpenKV[train.AttemptReport](ctx, y.bus, event.BucketReports)
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
	_, err := y.nodes.Swap(ctx, "n1", train.Node{
		ID: "n1", Cores: 2, JobAPI: "127.0.0.1:1", Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU, Core: 1}},
	}, 0)
	y.must(err)
	t.Cleanup(y.killAll)
	y.run(args...)
	return y
}

// serve starts the server over what it stored before.
func (y *yard) serve(port int) {
	y.t.Helper()
	s, err := busserver.Start(busserver.Options{Dir: y.store, Port: port})
	y.must(err)
	y.server = s
}

// killAll ends what the test left behind.
func (y *yard) killAll() {
	b := local.New(y.dir)
	found, err := b.Find()
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
	ctx, cancel := context.WithCancel(context.WithoutCancel(y.t.Context()))
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
	patience := time.NewTimer(time.Minute)
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
		return true, nil
	})
	y.must(err)
}

func (y *yard) change(id train.JobID, change func(*train.Job)) {
	y.t.Helper()
	_, err := y.jobs.Modify(y.t.Context(), string(id), func(j *train.Job) (bool, error) { change(j); return true, nil })
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
		e, err := y.attempts.Get(y.t.Context(), string(job))
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
	chunk, err := bus.Ask[train.LogRequest, train.LogChunk](y.t.Context(), y.bus, train.LogSubject("n1"), train.LogRequest{Job: "j1"})
	y.must(err)
	if !strings.Contains(string(chunk.Data), "hello from j1\n") || chunk.Next != chunk.Size {
		t.Errorf("log %q of %d, next %d", chunk.Data, chunk.Size, chunk.Next)
	}
	y.until("the end of the log", func() bool {
		chunk, err := bus.Ask[train.LogRequest, train.LogChunk](y.t.Context(), y.bus, train.LogSubject("n1"), train.LogRequest{Job: "j1", Offset: chunk.Next})
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

func TestPreemptionAndResumption(t *testing.T) {
	y := newYard(t)
	y.job("j1", command(`echo "attempt $SWITCHYARD_ATTEMPT restarted $JOB_RESTARTED done $EPOCHS_DONE"; while ! [ -e `+y.path("go")+`$SWITCHYARD_ATTEMPT ]; do sleep 0.02; done`))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.plan(on("j1", "cpu:0", "cpu:1"))
	if got := fact[event.StopRequested](y, "j1", event.FactStopRequested); got.Cause != train.StopRescale || got.Attempt != 1 {
		t.Errorf("stop requested %+v", got)
	}
	// The agent tells the code to stop, and the code leaves after its first epoch.
	_, err := y.reports.Swap(y.t.Context(), "j1.1", train.AttemptReport{Job: "j1", Attempt: 1, EpochsDone: 1, Spoke: true, StopAnswered: true}, 0)
	y.must(err)
	y.touch("go1")
	if got := fact[event.Preempted](y, "j1", event.FactPreempted); got.Cause != train.StopRescale || got.EpochsDone != 1 || got.Forced {
		t.Errorf("preempted %+v", got)
	}
	a := y.attempt("j1", "running again", isRunning(2))
	if a.StartedEpochs != 1 || len(a.Devices) != 2 || a.Generation != 2 {
		t.Errorf("second attempt %+v", a)
	}
	// Nobody told it to leave: an exit with status 0 is its end.
	y.touch("go2")
	got := fact[event.Succeeded](y, "j1", event.FactSucceeded)
	if got.Attempt != 2 || got.EpochsDone != 1 {
		t.Errorf("succeeded %+v", got)
	}
	data, err := os.ReadFile(local.Layout{DataDir: y.dir}.Output("j1"))
	y.must(err)
	for _, line := range []string{"attempt 1 restarted FALSE done 0\n", "attempt 2 restarted TRUE done 1\n"} {
		if !strings.Contains(string(data), line) {
			t.Errorf("log %q lacks %q", data, line)
		}
	}
}

func TestGraceRunsOut(t *testing.T) {
	y := newYard(t, "--stop-grace=50ms")
	y.job("j1", command("trap '' TERM; while :; do sleep 0.02; done"))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.plan()
	if got := fact[event.Preempted](y, "j1", event.FactPreempted); got.Cause != train.StopPreempt || !got.Forced {
		t.Errorf("preempted %+v", got)
	}
	y.attempt("j1", "told", told)
}

func TestCancel(t *testing.T) {
	y := newYard(t)
	y.job("waits", command("true"))
	y.job("runs", command("touch "+y.path("runs")+"; exec sleep 1000"))
	y.plan(on("runs", "cpu:0"))
	y.attempt("runs", "running", isRunning(1))
	for _, id := range []train.JobID{"waits", "runs"} {
		y.change(id, func(j *train.Job) { j.CancelRequested = true })
		fact[event.Cancelled](y, id, event.FactCancelled)
		if a := y.attempt(id, "told", told); a.Outcome != train.OutcomeCancelled {
			t.Errorf("%s: %+v", id, a)
		}
	}
	// A plan that came too late starts nothing.
	y.plan(on("waits", "cpu:0"))
	y.job("other", command("true"))
	y.plan(on("waits", "cpu:0"), on("other", "cpu:1"))
	fact[event.Succeeded](y, "other", event.FactSucceeded)
	if n := len(y.told("waits", event.FactStarted)); n != 0 {
		t.Error("a cancelled job was started")
	}
}

func TestLostAttemptIsTriedAgainAndThenGivenUp(t *testing.T) {
	y := newYard(t)
	limit := 1
	spec := command("echo $$ > " + y.path("pid") + "$SWITCHYARD_ATTEMPT; exec sleep 1000")
	spec.MaxRestarts = &limit
	spec.BatchSize, spec.TrainingSetSize, spec.MaxEpochs = 1, 1, 3
	y.job("j1", spec)
	y.plan(on("j1", "cpu:0"))
	// Once the supervisor is killed, once the program.
	first := y.attempt("j1", "running", isRunning(1))
	y.must(unix.Kill(first.PID, unix.SIGKILL))
	if got := fact[event.AttemptLost](y, "j1", event.FactAttemptLost); !got.Exit.Lost || got.RetrySeconds != 1 || got.Attempt != 1 {
		t.Errorf("lost %+v", got)
	}
	second := y.attempt("j1", "running", isRunning(2))
	if lost := y.told("j1", event.FactAttemptLost)[0].Time; second.StartedAt.Before(lost.Add(time.Second)) || second.LostInARow != 1 {
		t.Errorf("lost at %v, second attempt %+v: want it a second later", lost, second)
	}
	var pid int
	y.until("the program", func() bool {
		data, err := os.ReadFile(y.path("pid2"))
		n, scanErr := fmt.Sscan(string(data), &pid)
		return err == nil && n == 1 && scanErr == nil
	})
	y.must(unix.Kill(pid, unix.SIGKILL))
	if got := fact[event.Failed](y, "j1", event.FactFailed); got.Reason.Code != "TooManyRestarts" || got.Exit.Signal != "SIGKILL" || got.Attempt != 2 {
		t.Errorf("failed %+v", got)
	}
}

func TestOlderPlanIsRefused(t *testing.T) {
	y := newYard(t)
	y.job("j1", command("exec sleep 1000"))
	y.planAs(7, on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.stop()
	y.run()
	// A planner whose past was lost begins anew: its plan would stop the job.
	y.planAs(1)
	y.job("j2", command("true"))
	y.planAs(8, on("j1", "cpu:0"), on("j2", "cpu:1"))
	fact[event.Succeeded](y, "j2", event.FactSucceeded)
	if a := y.attempt("j1", "running", isRunning(1)); a.Stop != train.StopNone {
		t.Errorf("an older plan stopped the job: %+v", a)
	}
	if n := len(y.told("j1", event.FactStopRequested)); n != 0 {
		t.Error("an older plan had the job asked to stop")
	}
}

// Every way in which an executor can die between two steps of a start leaves exactly one start.
func TestCrashBetweenTheStepsOfAStart(t *testing.T) {
	y := newYard(t)
	y.stop()
	b := local.New(y.dir)
	claimed := func(id train.JobID) train.Attempt {
		y.job(id, command("echo start >> "+y.path("starts-"+string(id))))
		capability, token, err := b.Secrets(id, 1)
		y.must(err)
		a := train.Attempt{
			Job: id, Number: 1, Node: "n1", Generation: 1, Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseClaimed,
			CapabilityHash: hash(capability), TokenHash: hash(token),
		}
		_, err = y.attempts.Swap(y.t.Context(), string(id), a, 0)
		y.must(err)
		return a
	}
	claimed("claimed")
	// Started, not seen; and ended, not seen.
	for _, id := range []train.JobID{"spawned", "over"} {
		a := claimed(id)
		s := local.Setting{Job: id, Spec: command("echo start >> " + y.path("starts-"+string(id))), Attempt: a, Base: os.Environ(), Work: y.dir}
		y.must(b.Start(local.Compose(s, b.Layout, local.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300}, "[header]")))
		if id == "over" {
			y.until("its end", func() bool {
				s, err := b.Look(id, 1)
				y.must(err)
				return s.Phase == local.Exited
			})
		}
	}
	// Claimed over a data folder that is no more: it cannot be known whether it ran.
	foreign := claimed("foreign")
	y.must(b.Forget("foreign", 1))
	y.run()
	for _, id := range []train.JobID{"claimed", "spawned", "over"} {
		fact[event.Succeeded](y, id, event.FactSucceeded)
		starts, err := os.ReadFile(y.path("starts-" + string(id)))
		y.must(err)
		if string(starts) != "start\n" {
			t.Errorf("%s: %d starts, want one", id, strings.Count(string(starts), "start"))
		}
	}
	if got := fact[event.AttemptLost](y, "foreign", event.FactAttemptLost); !got.Exit.Lost || got.Attempt != foreign.Number {
		t.Errorf("foreign: %+v", got)
	}
}

func TestRecordedOutcomeIsToldByTheNextExecutor(t *testing.T) {
	y := newYard(t)
	y.stop()
	y.job("j1", command("true"))
	_, err := y.attempts.Swap(y.t.Context(), "j1", train.Attempt{
		Job: "j1", Number: 1, Node: "n1", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseExited, Exit: &train.Exit{}, Outcome: train.OutcomeSucceeded,
	}, 0)
	y.must(err)
	y.run()
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	y.attempt("j1", "told", told)
}

func TestStrayJobIsEnded(t *testing.T) {
	y := newYard(t)
	y.job("j1", command("exec sleep 1000"))
	y.plan(on("j1", "cpu:0"))
	a := y.attempt("j1", "running", isRunning(1))
	y.stop()
	entry, err := y.attempts.Get(y.t.Context(), "j1")
	y.must(err)
	y.must(y.attempts.Delete(y.t.Context(), "j1", entry.Revision))
	e, err := y.jobs.Get(y.t.Context(), "j1")
	y.must(err)
	y.must(y.jobs.Delete(y.t.Context(), "j1", e.Revision))
	y.run()
	y.until("the end of the stray job", func() bool {
		_, err := os.Stat(local.Layout{DataDir: y.dir}.Attempt("j1", a.Number))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestSecondExecutorStandsBy(t *testing.T) {
	y := newYard(t)
	y.job("j1", command("true"))
	y.plan(on("j1", "cpu:0"))
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	stopFirst := y.stop
	y.run() // the second one
	y.job("j2", command("true"))
	y.plan(on("j2", "cpu:0"))
	fact[event.Succeeded](y, "j2", event.FactSucceeded)
	stopFirst()
	y.job("j3", command("true"))
	y.plan(on("j3", "cpu:0"))
	fact[event.Succeeded](y, "j3", event.FactSucceeded)
}

// Jobs go on without a bus, and what happened to them meanwhile is told when it is back.
func TestBusGoesAway(t *testing.T) {
	y := newYard(t)
	y.job("ends", command("while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done; exit 4"))
	y.job("stays", command("exec sleep 1000"))
	y.plan(on("ends", "cpu:0"), on("stays", "cpu:1"))
	y.attempt("ends", "running", isRunning(1))
	before := y.attempt("stays", "running", isRunning(1))
	port := y.server.Port()
	y.server.Stop()
	y.touch("go")
	b := local.New(y.dir)
	y.until("the end of a job", func() bool {
		s, err := b.Look("ends", 1)
		y.must(err)
		return s.Phase == local.Exited
	})
	y.serve(port)
	if got := fact[event.Failed](y, "ends", event.FactFailed); got.Exit.Code != 4 {
		t.Errorf("failed %+v", got)
	}
	if after := y.attempt("stays", "running", isRunning(1)); after.PID != before.PID || after.Stop != train.StopNone {
		t.Errorf("the other job was %+v and is %+v", before, after)
	}
}

func TestSettings(t *testing.T) {
	for _, test := range []struct{ flag, want string }{
		{"--stop-grace=-1s", "--stop-grace -1s"},
		{"--kill-after=0s", "--kill-after 0s"},
		{"--heartbeat-steps=0", "--heartbeat-steps 0"},
		{"--python-path=libs", `--python-path "libs"`},
		{"--job-log-limit=0", "--job-log-limit 0"},
		{"--job-mounts=always", `--job-mounts "always"`},
	} {
		s := New()
		fs := pflag.NewFlagSet("executor", pflag.ContinueOnError)
		s.Flags(fs)
		if err := fs.Parse([]string{test.flag}); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(run.Common{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it named", test.flag, err)
		}
	}
}
