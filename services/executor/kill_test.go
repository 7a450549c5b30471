package executor

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Executors are killed again and again, each after another number of changes to the records. Every job is started
// once and ends once.
func TestKilledExecutorsLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.stop()
	const count = 16
	var ids []train.JobID
	for i := range count {
		id := train.JobID(fmt.Sprintf("j%02d", i))
		ids = append(ids, id)
		y.job(id, command("echo $SWITCHYARD_JOB/$SWITCHYARD_ATTEMPT >> "+y.path("ledger")))
	}
	random := rand.New(rand.NewPCG(1, 2))
	kills := 0
	for len(ids) > 0 {
		y.plan(on(ids[0], "cpu:0"), on(ids[min(1, len(ids)-1)], "cpu:1"))
		cmd := exec.Command("/proc/self/exe", executorArgument, "--nats", y.server.URL(), "--data-dir", y.dir, "--node", "n1")
		cmd.Stderr = testLog{t}
		y.must(cmd.Start())
		// It dies in the middle of something: after a few changes, each of which is a step of starting or ending
		// jobs.
		y.changes(ids, 1+random.IntN(5))
		y.must(cmd.Process.Kill())
		_ = cmd.Wait()
		kills++
		ids = slices.DeleteFunc(ids, func(id train.JobID) bool {
			e, err := y.attempts.Get(t.Context(), string(id))
			return err == nil && e.Value.Published
		})
	}
	t.Logf("%d executors were killed", kills)
	ledger, err := os.ReadFile(y.path("ledger"))
	y.must(err)
	lines := strings.Fields(string(ledger))
	slices.Sort(lines)
	for i, line := range lines {
		if want := fmt.Sprintf("j%02d/1", i); line != want {
			t.Fatalf("ledger %q: want %s at %d", lines, want, i)
		}
	}
	if len(lines) != count {
		t.Errorf("%d starts, want %d", len(lines), count)
	}
	for i := range count {
		id := train.JobID(fmt.Sprintf("j%02d", i))
		fact[event.Succeeded](y, id, event.FactSucceeded)
		if n := len(y.factsOf(id, event.FactSucceeded)); n != 1 {
			t.Errorf("%s succeeded %d times", id, n)
		}
		if n := len(y.factsOf(id, event.FactStarted)); n != 1 {
			t.Errorf("%s started %d times", id, n)
		}
	}
}

// changes waits until the records of jobs have changed n times, or nothing is left to change.
func (y *yard) changes(ids []train.JobID, n int) {
	y.t.Helper()
	revisions := func() (sum uint64, published int) {
		for _, id := range ids[:min(2, len(ids))] {
			if e, err := y.attempts.Get(y.t.Context(), string(id)); err == nil {
				sum += e.Revision
				if e.Value.Published {
					published++
				}
			}
		}
		return sum, published
	}
	last, _ := revisions()
	seen := 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		now, published := revisions()
		if now != last {
			last = now
			seen++
		}
		if seen >= n || published == min(2, len(ids)) {
			return
		}
		select {
		case <-y.t.Context().Done():
			return
		case <-tick.C:
		}
	}
}
