package conduct

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Jobs report many metrics; a record stores only those that matter for decisions.
func TestRecordsKeepWhatIsCompared(t *testing.T) {
	e := experiment(search.Random, file.PipeTune, 1)
	most := 1.0
	e.Constraints = []contract.Constraint{{Metric: "loss", Max: &most}, {Metric: "memory_mib", Max: &most}}
	w := newWorld(t, e)
	w.hear(func(*Record) {})
	ended := event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10, Loss: new(0.5), Metrics: map[string]float64{"accuracy": 0.9, "top5": 0.99, "norm": 3}}
	w.hear(func(r *Record) { r.EpochEnded("exp-t0", ended, w.now.Add(time.Minute)) })
	if diff := cmp.Diff(map[string]float64{"accuracy": 0.9, "loss": 0.5}, w.record.Trials[0].Done[0].Metrics); diff != "" {
		t.Error(diff)
	}
}

// A learnt signature is in the ground truth; a continued trial is still of its kind.
func TestSignaturesAreKeptOnce(t *testing.T) {
	w := newWorld(t, experiment(search.ASHA, file.PipeTune, 4))
	w.busy = 2
	promoted := 0
	for w.hear(func(*Record) {}); !w.record.Over(); w.next() {
		for i := range w.record.Trials {
			trial := &w.record.Trials[i]
			if trial.Learnt == 0 || trial.Profile == nil {
				continue
			}
			if trial.State != search.Running && len(trial.Profile.Signature) > 0 || trial.Profile.BusyCores != 2 {
				t.Fatalf("trial %d, learnt, has the profile %+v", i, trial.Profile)
			}
			if trial.State == search.Running && len(trial.Profile.Signature) == 0 && w.record.pipelined(trial, w.known).Kind != "" {
				promoted++
			}
		}
	}
	if promoted == 0 {
		t.Error("no trial that was promoted is of a kind")
	}
}

// An experiment whose record grows too large stops while there is room to record what follows.
func TestALargeRecordStopsTheExperiment(t *testing.T) {
	for _, concurrency := range []int{1, 6} {
		e := experiment(search.Random, file.PipeTune, 8)
		e.Concurrency, e.Job.MaxEpochs, e.Search.MaxEpochs = concurrency, 2, 2
		e.Space = append(e.Space,
			contract.Parameter{Name: "prompt", Kind: search.Choice, Values: []contract.Value{contract.Text(strings.Repeat("x", 900<<10))}})
		w := newWorld(t, e)
		w.run()
		data, err := json.Marshal(w.record)
		if err != nil || len(data) > event.MaxStoredBytes {
			t.Fatalf("a record of %d bytes (%v)", len(data), err)
		}
		if n := len(w.record.Trials); w.record.State != Stopped || !strings.Contains(w.record.Message, "3 MiB") || n < 2 && concurrency < 6 || n > 3 {
			t.Errorf("%d at a time: %s: %s after %d trials", concurrency, w.record.State, w.record.Message, n)
		}
		for _, trial := range w.record.Trials {
			if trial.JobState == "" || trial.State == search.Running {
				t.Errorf("trial %d is %s, its job %q", trial.ID, trial.State, trial.JobState)
			}
		}
	}
	if r := New("exp", experiment(search.Random, file.PipeTune, 1), "", time.Time{}); r.Decide(profile.Store{}, time.Time{}) != nil || r.State != Running {
		t.Errorf("a small record: %s", r.State)
	}
}
