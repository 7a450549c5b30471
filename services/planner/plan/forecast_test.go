package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Five equal jobs of one device each are queued together on two devices, and jobs like them took about two minutes.
// Nothing that any of them is shown contradicts what the others are.
func TestEqualJobsAreToldTheSame(t *testing.T) {
	now := time.Unix(10000, 0).UTC()
	s := State{Now: now, Nodes: []train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0"}, {ID: "gpu:1"}}}}}
	for i := range 5 {
		j := Job{
			ID: train.JobID(fmt.Sprintf("j%d", i)), Priority: 50, SubmittedAt: now.Add(time.Duration(i-100) * time.Second),
			Spec:  train.Spec{Name: "x", Command: []string{"train"}, BatchSize: 1, TrainingSetSize: 100, MaxEpochs: 10, EstimatedHours: 2}.WithDefaults(),
			Model: &train.Model{Kin: &train.Kin{Jobs: 2, Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: 1}, EpochSeconds: train.Span{Expected: 12, Low: 9, High: 16}}},
		}
		s.Jobs = append(s.Jobs, j)
	}
	for _, policy := range Policies() {
		p := Decide(s, policy)
		if len(p.Allocations) != 2 || len(p.Waiting) != 3 {
			t.Fatalf("%s: %d run and %d wait", policy.Name(), len(p.Allocations), len(p.Waiting))
		}
		for _, a := range p.Allocations {
			if f := a.Forecast.Finish; f == nil || f.Expected != 120 || f.Low != 90 || f.High < 160 || a.RemainingSeconds != 120 {
				t.Errorf("%s: %s ends in %+v, want 120 s (90 to 160)", policy.Name(), a.Job, f)
			}
		}
		for i, w := range p.Waiting {
			start, finish := w.Forecast.Start, w.Forecast.Finish
			want := 120 * float64(1+i/2)
			if start == nil || finish == nil || start.Expected != want || finish.Expected != want+120 || start.Low >= want || start.High <= want {
				t.Errorf("%s: %s starts in %+v and ends in %+v, want %v s and %v s", policy.Name(), w.Job, start, finish, want, want+120)
			}
			if len(w.Holders) != 2 || w.StartInSeconds != want {
				t.Errorf("%s: %s waits %v s for %v", policy.Name(), w.Job, w.StartInSeconds, w.Holders)
			}
		}
	}
}

// The time that a job has been in its epoch is taken off, and a job that should have ended is nearly there.
func TestAForecastCountsWhatHasRun(t *testing.T) {
	now := time.Unix(10000, 0).UTC()
	finish := func(seconds float64, spoke bool) train.Span {
		spec := train.Spec{Name: "x", Command: []string{"train"}, BatchSize: 1, TrainingSetSize: 100, MaxEpochs: 1}.WithDefaults()
		p := Decide(State{Now: now, Nodes: []train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0"}}}}, Jobs: []Job{{
			ID: "a", Priority: 50, Spec: spec, RunSeconds: seconds,
			Running: &Running{Holding: Holding{Node: "n", Devices: []train.DeviceID{"gpu:0"}}, Seconds: seconds, Spoke: spoke},
			Model:   &train.Model{Kin: &train.Kin{Jobs: 1, Config: spec.On(1, 1), EpochSeconds: train.Span{Expected: 100, Low: 80, High: 150}}},
		}}}, Switchyard{})
		return *p.Allocations[0].Forecast.Finish
	}
	for _, c := range []struct {
		seconds             float64
		spoke               bool
		expected, low, high float64
	}{{0, true, 100, 80, 150}, {60, true, 40, 20, 90}, {60, false, 40, 20, 90}, {100, true, 5, 0, 50}, {400, false, 20, 0, 200}} {
		got := finish(c.seconds, c.spoke)
		if got.Expected != c.expected || got.Low != c.low || got.High != c.high+3 { // 3 s to save and exit
			t.Errorf("after %v s: %+v, want %+v", c.seconds, got, c)
		}
	}
}
