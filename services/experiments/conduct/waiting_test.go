package conduct

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Concurrent waits, and waits beside a training trial, are not added up.
func TestTheExperimentWaitsOnce(t *testing.T) {
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(second float64) time.Time { return began.Add(time.Duration(second * float64(time.Second))) }
	// A trial is decided, runs from a time on, and ends epochs of 10 s at some times.
	trial := func(decided, run float64, ends ...float64) contract.Trial {
		one := contract.Trial{DecidedAt: at(decided), State: search.Ended}
		if run > 0 {
			one.RunAt = at(run)
		}
		for i, end := range ends {
			one.Done = append(one.Done, contract.TrialEpoch{Epoch: i + 1, At: at(end), Seconds: 10})
		}
		return one
	}
	for _, tc := range []struct {
		name   string
		trials []contract.Trial
		want   float64
	}{
		{"one after the other", []contract.Trial{trial(0, 5, 16, 26), trial(26, 30, 40)}, 9},
		{"both wait at once", []contract.Trial{trial(0, 5, 16), trial(0, 8, 18)}, 5},
		{"one waits while the other trains", []contract.Trial{trial(0, 2, 12, 22), trial(0, 20, 30)}, 2},
		{"a paused trial does not end the wait", []contract.Trial{trial(0, 1, 11, 111), trial(20, 90, 100)}, 1 + 70},
		{"one never runs", []contract.Trial{trial(0, 0)}, 200},
		{"none", nil, 0},
	} {
		r := New("exp", experiment(search.Random, file.V1, 2), "", began)
		r.Trials, r.EndedAt, r.State = tc.trials, at(200), Finished
		if got := r.QueueSeconds(); got != tc.want {
			t.Errorf("%s: %g s, want %g", tc.name, got, tc.want)
		}
	}
}

// Progress leaves out trials that cannot be the best.
func TestProgressLeavesOutWhatDoesNotCount(t *testing.T) {
	most := 1.0
	e := experiment(search.Random, file.V1, 3)
	e.Constraints = []contract.Constraint{{Metric: "gib", Max: &most}}
	r := New("exp", e, "", time.Time{})
	done := func(accuracy, gib float64) []contract.TrialEpoch {
		return []contract.TrialEpoch{{Epoch: 1, At: time.Unix(int64(100*accuracy), 0), Metrics: map[string]float64{"accuracy": accuracy, "gib": gib}}}
	}
	r.Trials = []contract.Trial{
		{ID: 0, State: search.Ended, Done: done(0.5, 1)}, {ID: 1, State: search.Ended, Done: done(0.6, 2)}, {ID: 2, State: search.Failed, Done: done(0.7, 1)},
	}
	if got := r.Progress(); len(got) != 1 || got[0].Value != 0.5 {
		t.Errorf("progress %+v", got)
	}
}
