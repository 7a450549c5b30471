package planner

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestPredictionsAreCounted: the first prediction of each start and end counts, once, by where it happened.
func TestPredictionsAreCounted(t *testing.T) {
	at := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	after := func(seconds float64) time.Time { return at.Add(time.Duration(seconds * float64(time.Second))) }
	m := newMeters(prometheus.NewRegistry())
	f := newVerifier(m)
	see := func(j train.Job) { f.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false) }
	soon := &train.Span{Expected: 20, Low: 10, High: 30}
	waits := func(at time.Time, jobs ...train.JobID) {
		p := train.Plan{DecidedAt: at}
		for _, j := range jobs {
			p.Waiting = append(p.Waiting, train.Waiting{Job: j, Forecast: train.Forecast{Start: soon, Finish: &train.Span{Expected: 120, Low: 100, High: 140}}})
		}
		f.predicted(p)
	}
	runs := func(at time.Time, jobs ...train.JobID) {
		p := train.Plan{DecidedAt: at}
		for _, j := range jobs {
			p.Allocations = append(p.Allocations, train.Allocation{Job: j, Forecast: train.Forecast{Finish: &train.Span{Expected: 100, Low: 90, High: 110}}})
		}
		f.predicted(p)
	}
	waits(at, "a", "b", "c", "d")
	waits(after(9), "a", "b") // a later prediction of the same start
	runs(after(20), "a", "b", "c")
	for id, started := range map[train.JobID]float64{"a": 15, "b": 35, "c": 5} {
		see(train.Job{ID: id, State: train.StateRunning, StartedAt: after(started)})
		see(train.Job{ID: id, State: train.StateRunning, StartedAt: after(started)})
	}
	waits(after(50), "a") // it was preempted: its first start is over
	see(train.Job{ID: "a", State: train.StateQueued, StartedAt: after(15)})
	runs(after(60), "a")
	see(train.Job{ID: "a", State: train.StateSucceeded, StartedAt: after(15), FinishedAt: after(160)})
	see(train.Job{ID: "b", State: train.StateSucceeded, StartedAt: after(35), FinishedAt: after(115)})
	see(train.Job{ID: "c", State: train.StateFailed, StartedAt: after(5), FinishedAt: after(120)})
	see(train.Job{ID: "d", State: train.StateCancelled})
	got := map[string]float64{}
	for _, of := range []string{"start", "finish"} {
		for _, where := range []string{"before", "inside", "after"} {
			if n := testutil.ToFloat64(m.predictions.WithLabelValues(of, where)); n > 0 {
				got[of+" "+where] = n
			}
		}
	}
	want := map[string]float64{"start inside": 1, "start after": 1, "start before": 1, "finish inside": 1, "finish after": 1}
	if !maps.Equal(got, want) || len(f.first) > 0 {
		t.Errorf("counted %v, want %v; left %v", got, want, f.first)
	}
}
