package executor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

func TestExecutorComesBack(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("long", command("echo start >> "+y.path("starts")+"; while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done; exit 5"))
	y.job("short", command("while ! [ -e "+y.path("short-go")+" ]; do sleep 0.02; done"))
	y.plan(on("long", "cpu:0"), on("short", "cpu:1"))
	before := y.attempt("long", "running", isRunning(1))
	y.attempt("short", "running", isRunning(1))
	y.stop()
	y.touch("short-go")
	b := local.New(y.dir, local.Supervisor{}, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300})
	y.until("the short job's end", func() bool {
		s, err := b.Status(t.Context(), train.Attempt{Job: "short", Number: 1})
		y.must(err)
		return s.Phase == launch.Exited
	})
	if n := len(y.factsOf("short", event.FactSucceeded)); n != 0 {
		t.Fatalf("an end was published without an executor")
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
	if n := len(y.factsOf("long", event.FactStarted)); n != 1 {
		t.Errorf("%d facts of a start, want 1", n)
	}
}

func TestLostAttemptIsTriedAgainAndThenGivenUp(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	limit := 1
	spec := command("echo $$ > " + y.path("pid") + "$SWITCHYARD_ATTEMPT; exec sleep 1000")
	spec.MaxRestarts = &limit
	spec.BatchSize, spec.TrainingSetSize, spec.MaxEpochs = 1, 1, 3
	y.job("j1", spec)
	y.plan(on("j1", "cpu:0"))
	// First the supervisor is killed, then the program.
	first := y.attempt("j1", "running", isRunning(1))
	y.must(unix.Kill(first.PID, unix.SIGKILL))
	if got := fact[event.AttemptLost](y, "j1", event.FactAttemptLost); !got.Exit.Lost || got.RetrySeconds != 1 || got.Attempt != 1 {
		t.Errorf("lost %+v", got)
	}
	second := y.attempt("j1", "running", isRunning(2))
	if lost := y.factsOf("j1", event.FactAttemptLost)[0].Time; second.StartedAt.Before(lost.Add(time.Second)) || second.LostInARow != 1 {
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
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("exec sleep 1000"))
	y.planAs(7, on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.stop()
	y.run()
	y.job("j0", command("true"))
	y.planAs(7, on("j1", "cpu:0"), on("j0", "cpu:1"))
	fact[event.Succeeded](y, "j0", event.FactSucceeded) // from here on it follows the plans one by one
	// A planner that lost its past starts from generation 1: its plan would stop the job.
	y.planAs(1)
	// A plan of another service is refused, and one whose generation is near the end of the range: either would make
	// the executor refuse all later plans.
	y.planner = "profiler"
	y.planAs(20)
	y.planner = "planner"
	y.planAs(1<<64 - 1)
	y.job("j2", command("true"))
	y.planAs(9, on("j1", "cpu:0"), on("j2", "cpu:1"))
	fact[event.Succeeded](y, "j2", event.FactSucceeded)
	if a := y.attempt("j1", "running", isRunning(1)); a.Stop != train.StopNone {
		t.Errorf("an older plan stopped the job: %+v", a)
	}
	if n := len(y.factsOf("j1", event.FactStopRequested)); n != 0 {
		t.Error("an older plan had the job asked to stop")
	}
}

func TestCrashBetweenTheStepsOfAStart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.stop()
	b := local.New(y.dir, local.Supervisor{}, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300})
	claimed := func(id train.JobID) train.Attempt {
		y.job(id, command("echo start >> "+y.path("starts-"+string(id))))
		capability, token, err := b.MakeSecrets(t.Context(), train.Attempt{Job: id, Number: 1})
		y.must(err)
		a := train.Attempt{
			Job: id, Number: 1, Node: "n1", Generation: 1, Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseClaimed,
			CapabilityHash: train.Hash(capability), TokenHash: train.Hash(token),
		}
		_, err = y.attempts.Swap(y.t.Context(), string(id), a, 0)
		y.must(err)
		return a
	}
	claimed("claimed")
	// Started, but not seen; and ended, but not seen.
	for _, id := range []train.JobID{"spawned", "over"} {
		a := claimed(id)
		s := launch.Setting{Job: id, Spec: command("echo start >> " + y.path("starts-"+string(id))), Attempt: a, Places: []launch.Place{{}}, Base: os.Environ(), Work: y.dir}
		y.must(b.Spawn(prepare.Compose(s, b.Layout, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300}, "[header]")))
		if id == "over" {
			y.until("its end", func() bool {
				s, err := b.Status(t.Context(), train.Attempt{Job: id, Number: 1})
				y.must(err)
				return s.Phase == launch.Exited
			})
		}
	}
	// Claimed over a data folder that no longer exists: it is unknown whether it ran.
	foreign := claimed("foreign")
	y.must(b.Forget(t.Context(), train.Attempt{Job: "foreign", Number: 1}))
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

func TestRecordedOutcomeIsPublishedByTheNextExecutor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.stop()
	y.job("j1", command("true"))
	_, err := y.attempts.Swap(y.t.Context(), "j1", train.Attempt{
		Job: "j1", Number: 1, Node: "n1", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseExited, Exit: &train.Exit{}, Outcome: train.OutcomeSucceeded,
	}, 0)
	y.must(err)
	y.run()
	fact[event.Succeeded](y, "j1", event.FactSucceeded)
	y.attempt("j1", "published", published)
}

func TestStrayJobIsEnded(t *testing.T) {
	t.Parallel()
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
	js := y.jetStream()
	jobs, err := js.Stream(t.Context(), event.StreamJobs)
	y.must(err)
	y.must(jobs.Purge(t.Context())) // no fact speaks of it either
	y.run()
	y.until("the end of the stray job", func() bool {
		_, err := os.Stat(installation.Layout{DataDir: y.dir}.Attempt("j1", a.Number))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestSecondExecutorStandsBy(t *testing.T) {
	t.Parallel()
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

func TestBusGoesAway(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("ends", command("while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done; exit 4"))
	y.job("stays", command("exec sleep 1000"))
	y.plan(on("ends", "cpu:0"), on("stays", "cpu:1"))
	y.attempt("ends", "running", isRunning(1))
	before := y.attempt("stays", "running", isRunning(1))
	port := y.server.Port()
	y.server.Stop()
	y.touch("go")
	b := local.New(y.dir, local.Supervisor{}, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300})
	y.until("the end of a job", func() bool {
		s, err := b.Status(t.Context(), train.Attempt{Job: "ends", Number: 1})
		y.must(err)
		return s.Phase == launch.Exited
	})
	y.serve(port)
	if got := fact[event.Failed](y, "ends", event.FactFailed); got.Exit.Code != 4 {
		t.Errorf("failed %+v", got)
	}
	if after := y.attempt("stays", "running", isRunning(1)); after.PID != before.PID || after.Stop != train.StopNone {
		t.Errorf("the other job was %+v and is %+v", before, after)
	}
}

// An executor dies after it recorded that an attempt has to leave, and before it published so.
func TestRequestedStopIsPublishedByTheNextExecutor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("exec sleep 1000"))
	y.plan(on("j1", "cpu:0"))
	a := y.attempt("j1", "running", isRunning(1))
	y.stop()
	entry, err := y.attempts.Get(t.Context(), "j1")
	y.must(err)
	a.Stop, a.StopSince = train.StopPreempt, time.Now().UTC()
	_, err = y.attempts.Swap(t.Context(), "j1", a, entry.Revision)
	y.must(err)
	y.run()
	if got := fact[event.StopRequested](y, "j1", event.FactStopRequested); got.Cause != train.StopPreempt || got.Attempt != 1 {
		t.Errorf("stop requested %+v", got)
	}
}

func (y *yard) jetStream() jetstream.JetStream { return bustest.JetStream(y.t, y.server.URL()) }

// The records of attempts are lost while a job runs, while the executor works or while it is away. The job goes on, is
// not started twice, and its end is published.
func TestLostRecordsOfAttemptsAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		t.Run(fmt.Sprintf("live=%v", live), func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.job("j1", command("echo start >> "+y.path("starts")+"; while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done; exit 5"))
			y.job("j2", command("echo start >> "+y.path("starts")+"; exec sleep 1000"))
			y.plan(on("j1", "cpu:0"), on("j2", "cpu:1"))
			before := y.attempt("j1", "running", isRunning(1))
			y.attempt("j2", "running", isRunning(1))
			if !live {
				y.stop()
			}
			y.must(y.jetStream().DeleteKeyValue(t.Context(), string(contract.Attempts)))
			y.must(y.bus.Ensure(t.Context()))
			// The planner saw no attempts meanwhile, and gives the devices to others.
			y.job("j3", command("echo other >> "+y.path("starts")))
			y.plan(on("j1", "cpu:0"), on("j2", "cpu:1"))
			if !live {
				y.run()
			}
			after := y.attempt("j1", "running", isRunning(1))
			if after.PID != before.PID || after.Node != before.Node || !slices.Equal(after.Devices, before.Devices) || after.CapabilityHash != before.CapabilityHash ||
				after.TokenHash != before.TokenHash || after.Generation != before.Generation || after.Stop != train.StopNone {
				t.Errorf("the record was %+v and is %+v", before, after)
			}
			y.attempt("j2", "running", isRunning(1))
			y.touch("go")
			if got := fact[event.Failed](y, "j1", event.FactFailed); got.Attempt != 1 || got.Exit.Code != 5 {
				t.Errorf("failed %+v", got)
			}
			starts, err := os.ReadFile(y.path("starts"))
			y.must(err)
			if string(starts) != "start\nstart\n" {
				t.Errorf("starts %q, want each once", starts)
			}
		})
	}
}

// An attempt whose job has no record is left alone, whatever plans say.
func TestAnAttemptOfAJobWithoutARecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done; exit 5"))
	y.plan(on("j1", "cpu:0"))
	before := y.attempt("j1", "running", isRunning(1))
	y.stop()
	e, err := y.jobs.Get(t.Context(), "j1")
	y.must(err)
	y.must(y.jobs.Delete(t.Context(), "j1", e.Revision))
	y.plan()
	y.run()
	y.job("j2", command("true"))
	y.plan(on("j2", "cpu:1"))
	fact[event.Succeeded](y, "j2", event.FactSucceeded) // it works
	if after := y.attempt("j1", "running", isRunning(1)); after.Stop != train.StopNone || after.PID != before.PID {
		t.Errorf("the attempt without a job is %+v", after)
	}
	y.touch("go")
	y.attempt("j1", "exited", func(a train.Attempt) bool { return a.Phase == train.PhaseExited })
	y.job("j1", e.Value.Spec) // admission makes the record again
	if got := fact[event.Failed](y, "j1", event.FactFailed); got.Attempt != 1 {
		t.Errorf("failed %+v", got)
	}
}
