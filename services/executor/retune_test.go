package executor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// setting stores the wanted system parameters of a job.
func (y *yard) setting(job train.JobID, generation uint64, values map[string]float64) {
	y.t.Helper()
	kv, err := bus.OpenKV[train.Setting](y.t.Context(), y.bus, contract.Settings)
	y.must(err)
	_, err = kv.Modify(y.t.Context(), string(job), func(s *train.Setting) (bool, error) {
		*s = train.Setting{Job: job, Experiment: "e", Generation: generation, Values: values}
		return true, nil
	})
	y.must(err)
}

// retuned waits until a fact says that an attempt has a setting, with nothing pending.
func (y *yard) retuned(job train.JobID, attempt int, generation uint64, wanted map[string]float64) train.Applied {
	y.t.Helper()
	var found train.Applied
	y.until(fmt.Sprintf("attempt %d of %s has setting %d", attempt, job, generation), func() bool {
		last := false
		subject := event.Subject{Entity: "tune", ID: "e", Fact: event.FactRetuned, Version: 1}.String()
		y.must(y.bus.Stored(y.t.Context(), event.StreamTune, []string{subject}, y.began, func(m bus.Message) {
			b, err := event.Decode[event.Retuned](m.Data)
			if a := b.Applied; err == nil && a.Attempt == attempt && a.Generation == generation && len(a.Pending(wanted)) == 0 {
				found, last = a, true
			}
		}))
		return last
	})
	return found
}

// leaves plays code that hears it has to stop and leaves at the end of an epoch.
func (y *yard) leaves(job train.JobID, attempt, epochs int) {
	y.t.Helper()
	_, err := y.reports.Modify(y.t.Context(), contract.ReportKey(job, attempt), func(r *train.AttemptReport) (bool, error) {
		*r = train.AttemptReport{Job: job, Attempt: attempt, Spoke: true, StopAnswered: true, EpochsDone: epochs}
		return true, nil
	})
	y.must(err)
	y.touch(fmt.Sprintf("leave-%d", attempt))
}

// A running job needs a restart for its wanted parameters: it leaves at the end of its epoch and is started again
// with them, once, whenever executors are killed.
func TestAJobIsStartedAgainWithOtherParameters(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.stop()
	script := fmt.Sprintf(`echo $SWITCHYARD_ATTEMPT:$SWITCHYARD_PARAM_MEMORY_MIB >> %s; while ! [ -e %s-$SWITCHYARD_ATTEMPT ]; do sleep 0.05; done`, y.path("ledger"), y.path("leave"))
	y.job("a", command(script))
	settings := []map[string]float64{{"memory_mib": 512}, {"memory_mib": 1024}, {"memory_mib": 2048}}
	y.setting("a", 1, settings[0])
	y.plan(on("a", "cpu:0"))
	// Each executor is killed after one change of the attempt's record, so each step is done by another one.
	killed := func(until string, holds func() bool) {
		t.Helper()
		for n := 0; !holds(); n++ {
			if n > 60 {
				t.Fatalf("%d executors have not come to: %s", n, until)
			}
			cmd := exec.Command("/proc/self/exe", executorArgument, "--nats", y.server.URL(), "--data-dir", y.dir, "--node", "n1")
			cmd.Stderr = testLog{t}
			y.must(cmd.Start())
			before := y.revision("a")
			y.until("a change, or "+until, func() bool { return y.revision("a") != before || holds() })
			y.must(cmd.Process.Kill())
			_ = cmd.Wait()
		}
	}
	record := func(holds func(train.Attempt) bool) func() bool {
		return func() bool {
			e, err := y.attempts.Get(t.Context(), "a")
			return err == nil && holds(e.Value)
		}
	}
	for i, values := range settings[1:] {
		killed("it runs", record(isRunning(i+1)))
		y.setting("a", uint64(i+2), values)
		killed("it is asked to leave", record(func(a train.Attempt) bool { return a.Stop == train.StopRetune }))
		y.leaves("a", i+1, i+1)
		killed("it has left", record(func(a train.Attempt) bool { return a.Number == i+2 }))
	}
	killed("it runs", record(isRunning(3)))
	y.run()
	if got := y.retuned("a", 3, 3, settings[2]); got.Values["memory_mib"] != 2048 || !slices.Equal(got.Restarts, []string{"memory_mib"}) {
		t.Errorf("applied %+v", got)
	}
	if got := fact[event.Preempted](y, "a", event.FactPreempted); got.Cause != train.StopRetune || got.EpochsDone != 2 || got.Forced {
		t.Errorf("preempted %+v", got)
	}
	y.touch("leave-3")
	fact[event.Succeeded](y, "a", event.FactSucceeded)
	ledger, err := os.ReadFile(y.path("ledger"))
	y.must(err)
	if got := strings.Fields(string(ledger)); !slices.Equal(got, []string{"1:512", "2:1024", "3:2048"}) {
		t.Errorf("started as %q", got)
	}
}

// An attempt may end before an executor records that it runs. Its experiment still learns what it was started with.
func TestTheSettingOfAShortAttemptIsPublished(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("a", command(fmt.Sprintf("while ! [ -e %s ]; do sleep 0.05; done", y.path("leave-1"))))
	y.plan(on("a", "cpu:0"))
	ran := y.attempt("a", "runs", isRunning(1))
	y.stop()
	wanted := map[string]float64{"cores": 1, "memory_mib": 512}
	_, err := y.attempts.Modify(t.Context(), "a", func(a *train.Attempt) (bool, error) {
		a.Phase, a.PID, a.PIDStart, a.BootID, a.StartedAt = train.PhaseClaimed, 0, 0, "", time.Time{}
		a.Setting = train.Setting{Job: "a", Experiment: "e", Generation: 1, Values: wanted}
		return true, nil
	})
	y.must(err)
	y.touch("leave-1")
	backend := local.New(y.dir, local.Supervisor{}, prepare.Bounds{})
	y.until("it has exited", func() bool {
		s, err := backend.Status(t.Context(), ran)
		y.must(err)
		return s.Phase == launch.Exited
	})
	y.run()
	if got := y.retuned("a", 1, 1, wanted); !maps.Equal(got.Values, wanted) || !got.At.Equal(ran.StartedAt) {
		t.Errorf("applied %+v to %+v", got, ran)
	}
}

// revision returns the revision of a job's attempt record.
func (y *yard) revision(job train.JobID) uint64 {
	y.t.Helper()
	e, err := y.attempts.Get(y.t.Context(), string(job))
	if errors.Is(err, bus.ErrNotFound) {
		return 0
	}
	y.must(err)
	return e.Revision
}

// Cores that only the program applies, such as those of Spark's executors, are none of its own processes: they need a
// restart, where other cores would be set at once.
func TestWhatOnlyTheProgramAppliesNeedsARestart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("a", command("sleep 1000"))
	kv, err := bus.OpenKV[train.Setting](t.Context(), y.bus, contract.Settings)
	y.must(err)
	y.must(kv.Put(t.Context(), "a", train.Setting{Job: "a", Experiment: "e", Generation: 1, Values: map[string]float64{"cores": 64}, AtStart: []string{"cores"}}))
	y.plan(on("a", "cpu:0"))
	if got := y.retuned("a", 1, 1, map[string]float64{"cores": 64}); got.Values["cores"] != 64 || len(got.Refused) > 0 {
		t.Errorf("applied %+v", got)
	}
	y.must(kv.Put(t.Context(), "a", train.Setting{Job: "a", Experiment: "e", Generation: 2, Values: map[string]float64{"cores": 32}, AtStart: []string{"cores"}}))
	y.attempt("a", "is asked to leave", func(a train.Attempt) bool { return a.Stop == train.StopRetune })
}

// The job may already have what is wanted after all, and a job that does not leave in time goes on with what it has.
func TestAJobThatIsNotStartedAgainGoesOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("a", command("sleep 1000"))
	small, large := map[string]float64{"memory_mib": 512}, map[string]float64{"memory_mib": 1024}
	y.setting("a", 1, small)
	y.plan(on("a", "cpu:0"))
	if got := y.retuned("a", 1, 1, small); got.Values["memory_mib"] != 512 {
		t.Errorf("applied %+v", got)
	}
	y.setting("a", 2, large)
	y.attempt("a", "is asked to leave", func(a train.Attempt) bool { return a.Stop == train.StopRetune })
	y.setting("a", 3, small)
	y.attempt("a", "goes on", func(a train.Attempt) bool { return a.Stop == train.StopNone && a.Stays == 0 })
	y.retuned("a", 1, 3, small)
	y.stop()
	y.run("--stop-grace=1s")
	y.setting("a", 4, large)
	y.attempt("a", "goes on", func(a train.Attempt) bool { return a.Stop == train.StopNone && a.Stays == 4 })
	if got := y.retuned("a", 1, 4, large); got.Refused["memory_mib"] == "" {
		t.Errorf("applied %+v", got)
	}
	if got := len(y.factsOf("a", event.FactStopWithdrawn)); got != 2 {
		t.Errorf("%d stops were withdrawn, want 2", got)
	}
	if a := y.attempt("a", "", func(train.Attempt) bool { return true }); a.Number != 1 || !a.Live() {
		t.Errorf("attempt %+v", a)
	}
}

// A job that was asked to leave for its parameters is asked again when its devices are given away. Its grace period
// counts from the first request.
func TestAPlanGoesBeforeARetune(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("a", command("sleep 1000"))
	y.setting("a", 1, map[string]float64{"memory_mib": 512})
	y.plan(on("a", "cpu:0"))
	y.attempt("a", "runs", isRunning(1))
	y.setting("a", 2, map[string]float64{"memory_mib": 1024})
	first := y.attempt("a", "is asked to leave", func(a train.Attempt) bool { return a.Stop == train.StopRetune })
	y.plan()
	then := y.attempt("a", "is asked for its devices", func(a train.Attempt) bool { return a.Stop == train.StopPreempt })
	if !then.StopSince.Equal(first.StopSince) {
		t.Errorf("asked at %s, and then at %s", first.StopSince, then.StopSince)
	}
	y.until("both were published", func() bool { return len(y.factsOf("a", event.FactStopRequested)) == 2 })
}

// A withdrawn setting makes no job leave.
func TestAWithdrawnSettingIsNoReasonToLeave(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("a", command("sleep 1000"))
	y.setting("a", 1, map[string]float64{"memory_mib": 512})
	y.plan(on("a", "cpu:0"))
	y.attempt("a", "runs", isRunning(1))
	y.setting("a", 2, map[string]float64{"memory_mib": 1024})
	y.attempt("a", "is asked to leave", func(a train.Attempt) bool { return a.Stop == train.StopRetune })
	kv, err := bus.OpenKV[train.Setting](t.Context(), y.bus, contract.Settings)
	y.must(err)
	wanted, err := kv.Get(t.Context(), "a")
	y.must(err)
	y.must(kv.Delete(t.Context(), "a", wanted.Revision))
	y.attempt("a", "goes on", func(a train.Attempt) bool { return a.Stop == train.StopNone })
}

// What prevented the last attempt is not requested again until another setting is wanted.
func TestForbiddenValuesAreNotRequestedAgain(t *testing.T) {
	forbidden := &train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{Code: launch.Forbidden}}
	for name, test := range map[string]struct {
		last   train.Attempt
		wanted uint64
		denied bool
	}{
		"the first attempt":                       {train.Attempt{}, 1, false},
		"nothing is wanted":                       {train.Attempt{Exit: forbidden}, 0, false},
		"the last one was forbidden":              {train.Attempt{Exit: forbidden, Setting: train.Setting{Generation: 1}}, 1, true},
		"it was forbidden with other values":      {train.Attempt{Exit: forbidden, Setting: train.Setting{Generation: 1}}, 2, false},
		"it ended otherwise":                      {train.Attempt{Exit: &train.Exit{Lost: true}, Setting: train.Setting{Generation: 1}}, 1, false},
		"it went without them":                    {train.Attempt{Exit: &train.Exit{Lost: true}, Setting: train.Setting{Generation: 1}, Stays: 1}, 1, true},
		"it did not leave for them, and was lost": {train.Attempt{Exit: &train.Exit{Lost: true}, Setting: train.Setting{Generation: 1}, Stays: 2}, 2, false},
	} {
		if got := denied(test.last, train.Setting{Generation: test.wanted}); got != test.denied {
			t.Errorf("%s: %t", name, got)
		}
	}
}
