package executor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// The host has another name: what runs here is still found, and devices that it holds are not given again.
func TestAnotherNodesDataFolderIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", command("exec sleep 1000"))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "running", isRunning(1))
	y.stop()
	common := run.Common{NATS: y.server.URL(), HTTP: "127.0.0.1:0", LogFormat: "text", DataDir: y.dir, Node: "n2"}
	s := New(settings.Executor{Backend: settings.BackendLocal, JobLogLimit: 1, KillAfter: time.Second})
	err := run.Together(t.Context(), common, testLog{t}, func(net.Addr) {}, s)
	if err == nil || !strings.Contains(err.Error(), `belongs to node "n1"`) {
		t.Fatalf("%v: want the folder refused", err)
	}
	y.node = ""
	y.run()
	y.change("j1", func(j *train.Job) { j.CancelRequested = true })
	fact[event.Cancelled](y, "j1", event.FactCancelled)
}

// An admitted folder becomes a link before the job starts.
func TestFolderThatBecameALink(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	dir := t.TempDir()
	for _, name := range []string{"custom", "elsewhere"} {
		y.must(os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	link := filepath.Join(dir, "link")
	y.must(os.Symlink("custom", link))
	y.must(os.Symlink(dir, filepath.Join(dir, "above")))
	for id, spec := range map[train.JobID]train.Spec{
		"custom": {CustomDir: link}, "snapshots": {SnapshotsDir: link}, "datasets": {DatasetsDir: link}, "work": {WorkDir: link},
		"above": {CustomDir: filepath.Join(dir, "above", "custom")},
	} {
		spec.Command = []string{"touch", y.path("ran")}
		y.job(id, spec)
		y.plan(on(id, "cpu:0"))
		if got := fact[event.Failed](y, id, event.FactFailed); !strings.Contains(got.Reason.Message, "was replaced by a symbolic link") {
			t.Errorf("%s: failed %+v", id, got)
		}
	}
	// Links on the way to the data folder are the operator's own.
	y.stop()
	data := filepath.Join(dir, "data")
	y.must(os.Symlink(y.dir, data))
	y.dir = data
	y.run()
	y.job("fine", command("cd ${SWITCHYARD_SNAPSHOTS_DIR:-/snapshots} && touch saved"))
	y.plan(on("fine", "cpu:0"))
	fact[event.Succeeded](y, "fine", event.FactSucceeded)
	if _, err := os.Stat(y.path("ran")); err == nil {
		t.Error("a program ran over a folder that leads elsewhere")
	}
}

// The records of jobs that ended long ago are deleted with their files; the jobs do not come back, and others stay.
func TestOldRecordsAreDeleted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	for _, id := range []train.JobID{"old", "new", "waits"} {
		y.job(id, command("echo $SWITCHYARD_JOB >> "+y.path("ledger")))
	}
	y.plan(on("old", "cpu:0"), on("new", "cpu:1"))
	for id, age := range map[train.JobID]time.Duration{"new": time.Minute, "old": 2 * time.Hour} {
		fact[event.Succeeded](y, id, event.FactSucceeded)
		y.attempt(id, "published", published)
		y.change(id, func(j *train.Job) { j.State, j.FinishedAt = train.StateSucceeded, time.Now().Add(-age) })
	}
	y.stop()
	y.run() // sees all records again
	y.until("the old record is gone", func() bool {
		_, err := y.attempts.Get(t.Context(), "old")
		return errors.Is(err, bus.ErrNotFound)
	})
	layout := installation.Layout{DataDir: y.dir}
	if _, err := os.Stat(filepath.Dir(layout.Attempt("old", 1))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of its attempts: %v, want it gone", err)
	}
	if _, err := os.Stat(layout.Output("old")); err != nil {
		t.Errorf("its log: %v", err)
	}
	y.plan(on("old", "cpu:0"), on("new", "cpu:1"), on("waits", "cpu:0"))
	y.plan(on("waits", "cpu:0"))
	fact[event.Succeeded](y, "waits", event.FactSucceeded)
	y.attempt("new", "still there", published)
	ledger, err := os.ReadFile(y.path("ledger"))
	y.must(err)
	lines := strings.Fields(string(ledger))
	slices.Sort(lines)
	if got := strings.Join(lines, " "); got != "new old waits" {
		t.Errorf("started %q", got)
	}
}

// An executor that comes back long after the end of an attempt gives the agent the whole time to read the output.
func TestAnExitCountsFromWhenItWasSeen(t *testing.T) {
	p := newCache(diff.Realm{Realm: train.Realm{Backend: train.BackendKubernetes}})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := train.Attempt{Job: "j", Number: 1, Backend: train.BackendKubernetes, LogFormat: train.LogBigDL, Phase: train.PhaseExited, Exit: &train.Exit{}}
	a.StartedAt, a.ExitedAt = now.Add(-2*time.Hour), now.Add(-time.Hour)
	p.store(a, 1)
	p.onJob(bus.Entry[*train.Job]{Key: "j", Value: &train.Job{ID: "j", State: train.StateRunning}, Revision: 1}, false)
	limits := diff.Limits{StopGrace: time.Minute}
	for after, want := range []int{0, 0, 1} {
		if actions := p.actions(p.take(now), now, limits, nil); len(actions) != want || want > 0 && actions[0].Kind != diff.Decide {
			t.Errorf("%d times 15 s after the exit was seen: %+v", after, actions)
		}
		now = now.Add(15 * time.Second)
	}
	a.Outcome = train.OutcomeSucceeded
	p.store(a, 2)
	p.actions(p.take(now), now, limits, nil)
	if len(p.tally.exitSeen) != 0 {
		t.Errorf("kept of what is decided: %v", p.tally.exitSeen)
	}
}

func TestCacheForgetsEndedJobs(t *testing.T) {
	p := newCache(diff.Realm{Realm: train.Realm{Machine: "n1"}})
	p.synced.attempts = true
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	job := func(revision uint64, state train.State) {
		p.onJob(bus.Entry[*train.Job]{Key: "j", Value: &train.Job{ID: "j", State: state, FinishedAt: now}, Revision: revision}, false)
	}
	a := train.Attempt{Job: "j", Number: 1, Node: "n1", Phase: train.PhaseRunning, Stop: train.StopPreempt}
	p.store(a, 5)
	job(1, train.StateRunning)
	limits := diff.Limits{StopGrace: time.Minute}
	p.actions(p.take(now), now, limits, nil)
	now = now.Add(time.Minute)
	if actions := p.actions(p.take(now), now, limits, nil); len(actions) != 1 || actions[0].Kind != diff.Kill {
		t.Errorf("a minute after the stop was seen: %+v", actions)
	}
	p.forgetAttempt("j", 4) // the deletion of an older record
	if got, revision := p.attempt("j"); got.Number != 1 || revision != 5 {
		t.Errorf("attempt %+v, revision %d: an old deletion took the newer record away", got, revision)
	}
	a.Phase, a.Outcome, a.Published = train.PhaseExited, train.OutcomePreempted, true
	p.store(a, 6)
	job(2, train.StateSucceeded)
	pass := func() (jobs []train.JobID, old int) {
		jobs = p.take(now)
		old = len(p.expired(jobs, now))
		p.actions(jobs, now, limits, nil)
		return jobs, old
	}
	pass()
	job(2, train.StateSucceeded)
	if jobs, _ := pass(); len(jobs) != 0 {
		t.Errorf("%v is looked at though the watch has repeated itself", jobs)
	}
	p.queue.resync = now.Add(2 * train.KeepEnded)
	now = now.Add(train.KeepEnded)
	if _, old := pass(); old != 1 {
		t.Errorf("%d old records when the time has come, want 1", old)
	}
	p.forgetAttempt("j", 7)
	pass()
	job(2, train.StateSucceeded)
	if jobs, _ := pass(); len(jobs) != 0 {
		t.Errorf("%v is looked at though nothing is left of it", jobs)
	}
	if len(p.jobs)+len(p.attempts)+len(p.tally.stopSeen)+len(p.tally.held)+p.tally.live != 0 {
		t.Errorf("still there: %+v, %+v, %+v, %+v, %d", p.jobs, p.attempts, p.tally.stopSeen, p.tally.held, p.tally.live)
	}
}

// A launch that fails is retried with growing delays, not at each look.
func TestFailedLaunchesWait(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.stop()
	b := local.New(y.dir, local.Supervisor{}, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300})
	capability, token, err := b.MakeSecrets(t.Context(), train.Attempt{Job: "j1", Number: 1})
	y.must(err)
	// A folder in the place of the supervisor's file: no supervisor can take the attempt over.
	blocked := filepath.Join(b.Attempt("j1", 1), "shim.json")
	y.must(os.MkdirAll(blocked, 0o700))
	a := train.Attempt{
		Job: "j1", Number: 1, Node: "n1", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseClaimed, CapabilityHash: train.Hash(capability), TokenHash: train.Hash(token),
	}
	log := testLogger(t)
	e := newStarter(&shared{log: log, cache: newCache(diff.Realm{Realm: train.Realm{Machine: "n1"}}), faults: newFaultLog(log)}, b, diff.Realm{Realm: train.Realm{Machine: "n1"}}, settings.Executor{})
	e.cache.jobs["j1"] = bus.Entry[*train.Job]{Value: &train.Job{ID: "j1", Spec: command("true")}}
	e.cache.realm.Nodes["n1"] = train.Node{ID: "n1", JobAPI: "127.0.0.1:1", Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}}}
	began := time.Now()
	for range 20 {
		_, err := e.launchWithBackoff(t.Context(), a, launch.Status{})
		y.must(err)
		y.until("the end of the supervisor", func() bool { starting, _ := b.Starting(train.Attempt{Job: "j1", Number: 1}); return !starting })
	}
	stderr, err := os.ReadFile(filepath.Join(b.Attempt("j1", 1), "shim.log"))
	y.must(err)
	// On a busy machine the looks last for several delays.
	most := 1
	for due := diff.RetryDelay(1); due <= time.Since(began); due += diff.RetryDelay(most) {
		most++
	}
	if n := strings.Count(string(stderr), "supervisor:"); n < 1 || n > most {
		t.Errorf("%d supervisors were started in 20 looks:\n%s", n, stderr)
	}
	y.must(os.Remove(blocked))
}

func TestFaultsAreNotRepeated(t *testing.T) {
	faults := newFaultLog(nil)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		job   train.JobID
		text  string
		after time.Duration
		want  bool
	}{
		{"a", "no disk", 0, true},
		{"b", "no disk", 0, true},
		{"a", "no disk", time.Second, false},
		{"b", "no bus", time.Second, false},
		{"b", "no bus", 3 * time.Second, true},
		{"a", "no disk", 29 * time.Second, false},
		{"a", "no disk", 30 * time.Second, true},
	} {
		if got := faults.shouldLog(test.job, test.text, now.Add(test.after)); got != test.want {
			t.Errorf("%s %q after %s: logged %t, want %t", test.job, test.text, test.after, got, test.want)
		}
	}
	for i := range 3 * maxFaults {
		faults.shouldLog(train.JobID(fmt.Sprint(i)), "no disk", now)
	}
	if len(faults.last) > maxFaults {
		t.Errorf("%d are remembered", len(faults.last))
	}
	if !faults.shouldLog("late", "no disk", now.Add(time.Hour)) {
		t.Error("old faults keep a new one from being logged")
	}
}
