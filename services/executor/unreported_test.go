package executor

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// leaves is a program that ends while the agent is away, with reports in its folder, as the libraries leave them.
func leaves(status string, reports ...string) train.Spec {
	script := ""
	for i, r := range reports {
		path, body, _ := strings.Cut(r, " ")
		script += `echo '{"path":"/v1/jobs/'$JOB_UUID'/` + path + `","body":` + body + `}' > $SWITCHYARD_UNREPORTED/` + string(rune('1'+i)) + ".json; "
	}
	return command("[ $SWITCHYARD_ATTEMPT -gt 1 ] && exit 0; " + script + "exit " + status)
}

// TestWhatCodeCouldNotReportIsHandedOver: the end is recorded once the agent is back and has taken what was left for
// it, in order.
func TestWhatCodeCouldNotReportIsHandedOver(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j1", leaves("0", `checkpoints {"epochs_done":2,"path":"/x"}`, `epochs {"epochs_done":2}`, `end {"outcome":"finished","epochs_done":2}`))
	y.plan(on("j1", "cpu:0"))
	y.attempt("j1", "runs", isRunning(1))
	left := filepath.Join(y.dir, "jobs", "j1", "attempts", "1", "unreported")
	y.until("the program has ended", func() bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(left), "exit.json"))
		return err == nil
	})
	var mu sync.Mutex
	var got []string
	y.agent(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+filepath.Base(r.URL.Path))
		if !strings.HasPrefix(r.URL.Path, "/attempt/") || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request %s %v", r.URL.Path, r.Header)
		}
		if len(got) == 2 { // for a moment it has no bus
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	a := y.attempt("j1", "its end is published", published)
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(got, ", "); a.Unreported != nil || all != "POST checkpoints, POST epochs, POST epochs, POST end" {
		t.Errorf("%+v after %s", a.Unreported, all)
	}
}

// TestAnAgentThatStaysAwayCostsNoEpochs: what was left is folded into the end, and the job has a note that figures are
// missing.
func TestAnAgentThatStaysAwayCostsNoEpochs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("done", leaves("0", `epochs {"epochs_done":3}`, `end {"outcome":"finished","epochs_done":3}`))
	y.job("fails", leaves("3", `epochs {"epochs_done":1}`, `checkpoints {"epochs_done":2,"path":"/x"}`))
	y.plan(on("done", "cpu:0"), on("fails", "cpu:1"))
	if end := fact[event.Succeeded](y, "done", event.FactSucceeded); end.EpochsDone != 3 || !strings.Contains(end.Note, "2 reports of attempt 1 did not arrive") {
		t.Errorf("%+v", end)
	}
	if lost := fact[event.AttemptLost](y, "fails", event.FactAttemptLost); lost.EpochsDone != 2 || lost.Retry != 1 {
		t.Errorf("%+v", lost)
	}
	if next := y.attempt("fails", "is tried again", func(a train.Attempt) bool { return a.Number == 2 && a.Phase == train.PhaseExited }); next.StartedEpochs != 2 {
		t.Errorf("begins after epoch %d", next.StartedEpochs)
	}
}

// The bus was away for an hour. The job ended in the middle of it, and the agent holds the reports of its last epochs.
func TestAnEndWaitsForTheReportsOfAnOutage(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	spec := command("while ! [ -e " + y.path("go") + " ]; do sleep 0.02; done")
	spec.BatchSize, spec.TrainingSetSize, spec.MaxEpochs = 1, 1, 10
	y.job("j1", spec)
	y.plan(on("j1", "cpu:0"))
	a := y.attempt("j1", "runs", isRunning(1))
	report := train.AttemptReport{Job: "j1", Attempt: 1, EpochsDone: 5}
	revision, err := y.reports.Swap(t.Context(), contract.ReportKey("j1", 1), report, 0)
	y.must(err)
	y.stop()
	y.touch("go")
	folder := attempt.In(installation.Layout{DataDir: y.dir}, "j1", 1)
	y.until("the program has ended", folder.Ended)
	y.must(os.Remove(filepath.Join(folder.Path, "exit.json")))
	y.must(folder.End(attempt.End{ExitedAt: time.Now().Add(-30 * time.Minute), StartedAt: a.StartedAt}))
	holds := func(reports int) {
		_, err := y.nodes.Modify(t.Context(), "n1", func(n *train.Node) (bool, error) {
			n.SeenAt, n.ReportsWaiting = time.Now(), reports
			return true, nil
		})
		y.must(err)
	}
	holds(5)
	y.run()
	y.attempt("j1", "its end is seen", func(a train.Attempt) bool { return a.Phase == train.PhaseExited })
	report.EpochsDone = 10
	_, err = y.reports.Swap(t.Context(), contract.ReportKey("j1", 1), report, revision)
	y.must(err)
	holds(0)
	if end := fact[event.Succeeded](y, "j1", event.FactSucceeded); end.EpochsDone != 10 || end.Note != "" {
		t.Errorf("%+v", end)
	}
}
