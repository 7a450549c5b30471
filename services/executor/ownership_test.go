package executor

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// readyz returns what the newest executor of the yard answers.
func (y *yard) readyz() string {
	y.t.Helper()
	r, err := http.NewRequestWithContext(y.t.Context(), http.MethodGet, "http://"+y.http.String()+"/readyz", nil)
	y.must(err)
	answer, err := http.DefaultClient.Do(r)
	y.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	y.must(err)
	return string(text)
}

func TestAnExecutorWithTheNameOfAnotherOneLeavesItsJobsAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.job("j", command("while ! [ -e "+y.path("go")+" ]; do sleep 0.02; done"))
	y.plan(on("j", "cpu:0"))
	y.attempt("j", "running", isRunning(1))
	first := y.dir
	y.dir = t.TempDir()
	y.run()
	y.until("the second executor stands by", func() bool {
		if lost := y.factsOf("j", "attempt_lost"); len(lost) > 0 {
			t.Fatal("the second executor ended the attempt of the first one")
		}
		return strings.Contains(y.readyz(), "another executor with the same node name works in") && strings.Contains(y.readyz(), first)
	})
	y.touch("go")
	if a := y.attempt("j", "over", published); a.Number != 1 || a.Outcome != train.OutcomeSucceeded {
		t.Errorf("attempt %d ended as %s, want success of attempt 1", a.Number, a.Outcome)
	}
}

func TestAnExecutorThatWasTakenOverStandsBy(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	records, err := bus.OpenKV(t.Context(), y.bus, contract.Executors)
	y.must(err)
	y.until("the executor says that it acts for n1", func() bool {
		e, err := records.Get(t.Context(), "n1")
		return err == nil && strings.HasSuffix(e.Value.Owner.Place, y.dir)
	})
	y.must(records.Put(t.Context(), "n1", contract.ExecutorOwner{
		Machine: "n1", Owner: train.Owner{ID: "other", Place: "elsewhere:/data"}, SeenAt: time.Now().UTC(),
	}))
	y.until("it stands by", func() bool { return strings.Contains(y.readyz(), "works in elsewhere:/data") })
}
