package energy

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// asService is the argument with which this test's own program becomes the service, to be killed.
const asService = "as-the-service"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asService {
		os.Exit(run.Main(os.Args[2:], os.Environ(), os.Stderr, settings.EnergySection, func(a *settings.All) run.Service { return New(a.Energy) }))
	}
	os.Exit(m.Run())
}

// second is the n-th second of a node in which a job uses 10 uJ; an epoch may end in the middle of it.
func second(n uint64, attempt int, epochs ...int) event.Measured {
	m := interval("n1", "b", n, cpu(30, 10, 2), event.Use{Job: "a", Attempt: attempt, Component: "cpu", Work: 1})
	for _, done := range epochs {
		m.Epochs = append(m.Epochs,
			event.EpochMark{Job: "a", Attempt: attempt, EpochsDone: done, At: m.From.Add(500 * time.Millisecond)})
	}
	return m
}

func TestAnAccountTellsTheEnergyToItsTarget(t *testing.T) {
	l := open(t, newBooks(t))
	target := &train.TargetSpec{Metric: train.MetricLoss, AtMost: new(0.5)}
	l.jobs["a"] = train.Job{ID: "a", State: train.StateRunning, Spec: train.Spec{Energy: &train.EnergySpec{Target: target}}}
	for i, loss := range []float64{0.7, 0.4, 0.3} {
		m := second(uint64(i+1), 1, i+1)
		m.Epochs[0].Loss = &loss
		if err := l.take(within(t), message(t, m, uint64(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	account, _ := l.account("a")
	if to := account.ToTarget; to == nil || to.EpochsDone != 2 || to.Energy != 15 {
		t.Errorf("%+v of %d uJ: want 15 uJ, in epoch 2", to, account.Energy)
	}
}

func TestTheCourseOfAJob(t *testing.T) {
	k, ctx := newBooks(t), within(t)
	k.job(train.Job{ID: "a", State: train.StateRunning, EpochsDone: 4, Spec: train.Spec{TrainingSetSize: 50}})
	l := open(t, k)
	history := []train.Change{{Fact: event.FactAttemptLost, Attempt: 1}, {Fact: event.FactPreempted, Attempt: 2}}
	l.jobs["a"] = train.Job{ID: "a", State: train.StateRunning, EpochsDone: 3, Spec: train.Spec{TrainingSetSize: 50}, History: history}
	timeline := []event.Measured{
		second(1, 1), second(2, 1, 1), // epoch 1 ends at 15 uJ
		second(3, 1, 2), // epoch 2 at 25 uJ
		second(4, 1),    // then it is lost: 15 uJ since the last epoch
		second(5, 2, 2), // the second attempt trains epoch 2 again, 5 uJ, and stops when asked
		second(6, 3, 3), // 5 uJ were between its last epoch and its end
	}
	for i, m := range timeline {
		for range 2 { // each comes twice
			if err := l.take(ctx, message(t, m, uint64(i+1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := train.EnergyProgress{
		Job: "a", Attempt: 3, EpochsDone: 3, MostEpochs: 3, Marked: 55, Samples: 4 * 50,
		Losses: []train.Loss{{Attempt: 1, Energy: 15}, {Attempt: 1, Energy: 5}, {Attempt: 2, Energy: 5}},
	}
	for _, e := range []struct {
		attempt, done int
		used          unit.Energy
	}{{1, 1, 15}, {1, 2, 25}, {2, 2, 45}, {3, 3, 55}} {
		at := hour.Add(time.Duration(e.used) * 100 * time.Millisecond)
		want.Epochs = append(want.Epochs, train.EpochEnergy{Attempt: e.attempt, EpochsDone: e.done, At: at, Energy: e.used})
	}
	if diff := cmp.Diff(want, await(k, "course.a", func(c train.EnergyProgress) bool { return c.EpochsDone == 3 })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	account, _ := l.account("a")
	wasted := map[train.WasteCause]unit.Energy{train.WasteFailed: 20, train.WastePreempted: 5}
	if diff := cmp.Diff(wasted, account.Waste); diff != "" || account.Samples != 200 {
		t.Errorf("%d samples, waste (-want +got)\n%s", account.Samples, diff)
	}
	// A failed job has wasted all its energy.
	l.jobs["a"] = train.Job{ID: "a", State: train.StateFailed, History: history}
	account, _ = l.account("a")
	if diff := cmp.Diff(map[train.WasteCause]unit.Energy{train.WasteFailed: 60}, account.Waste); diff != "" {
		t.Errorf("failed (-want +got)\n%s", diff)
	}
}

// TestKilledInTheMiddle kills the service repeatedly while intervals come: no microjoule and no epoch is lost or
// counted twice.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	k.job(train.Job{ID: "a", State: train.StateRunning})
	const rounds, perRound = 3, 20
	folder, sequence := t.TempDir(), uint64(0)
	for round := range rounds {
		child := exec.Command(os.Args[0], asService, "--nats", k.url, "--http", "127.0.0.1:0", "--log-level", "error",
			"--data-dir", folder)
		child.Stderr = io.Discard
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for range perRound {
			sequence++
			epochs := []int{}
			if sequence%4 == 0 {
				epochs = []int{int(sequence / 4)}
			}
			m := second(sequence, 1, epochs...)
			k.publish(factOf(m, ""), factOf(m, "/again"))
		}
		least := sequence - perRound + 1
		if round == rounds-1 {
			least = sequence // the book is written last
		}
		await(k, "node.n1", func(b Book) bool { return b.Sequence >= least })
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // it was killed
	}
	l := open(t, k)
	account, found := l.account("a")
	if !found || account.Energy != unit.Energy(10*sequence) || account.Seconds != float64(sequence) {
		t.Errorf("%+v of %d seconds", account, sequence)
	}
	_, _, _, progress := l.look("a")
	if len(progress.Epochs) != int(sequence/4) || len(progress.Losses) != 0 {
		t.Errorf("%d epochs and losses %v, want %d and none", len(progress.Epochs), progress.Losses, sequence/4)
	}
	for i, e := range progress.Epochs {
		if want := unit.Energy(40*(i+1) - 5); e.EpochsDone != i+1 || e.Energy != want {
			t.Errorf("epoch %d: %s", i+1, fmt.Sprintf("%+v, want %d uJ", e, want))
		}
	}
	if book := Book(l.nodeBooks["n1"].value); book.Missing != 0 || book.GapSeconds != 0 || book.Totals["cpu"].Measured != unit.Energy(30*sequence) {
		t.Errorf("%+v", book)
	}
}
