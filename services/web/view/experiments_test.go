package view_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// The best of an experiment is by its objective and its constraints; its course has the energy of all trials, and its
// rungs count who came so far.
func TestAnExperimentIsSummedUp(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	most := 100.0
	epoch := func(n, minute int, loss, size, joules float64, paused bool) contract.TrialEpoch {
		return contract.TrialEpoch{
			Epoch: n, At: begin.Add(time.Duration(minute) * time.Minute), Seconds: 60, Joules: joules, Metrics: map[string]float64{"loss": loss, "size": size}, Paused: paused,
		}
	}
	r := contract.ExperimentRecord{
		ID: "e", SubmittedAt: begin, State: contract.ExperimentRunning,
		Experiment: contract.Experiment{
			Objective: contract.Objective{Metric: "loss", Minimise: true}, Constraints: []contract.Constraint{{Metric: "size", Max: &most}},
			Search: contract.SearchConfig{MaxEpochs: 3},
		},
		Trials: []contract.Trial{
			{ID: 0, Epochs: 1, State: contract.TrialPaused, Done: []contract.TrialEpoch{epoch(1, 1, 0.9, 10, 100, true)}},
			{ID: 1, Epochs: 3, State: contract.TrialRunning, Done: []contract.TrialEpoch{epoch(1, 2, 0.5, 10, 50, true), epoch(2, 4, 0.6, 10, 120, false)}},
			{ID: 2, Epochs: 1, State: contract.TrialPaused, Done: []contract.TrialEpoch{epoch(1, 3, 0.1, 1000, 70, true)}},
			{ID: 3, Epochs: 1, State: contract.TrialFailed, Done: []contract.TrialEpoch{epoch(1, 3, 0.1, 10, 30, false)}},
		},
	}
	e := view.DescribeExperiment(&r)
	if e.BestTrial == nil || *e.BestTrial != 1 || *e.Best != 0.6 || e.Running != 1 || e.Joules != 320 {
		t.Errorf("best %v of trial %v, %d run, %v J", e.Best, e.BestTrial, e.Running, e.Joules)
	}
	if !e.TrialList[2].Broken || e.TrialList[0].Broken || len(e.TrialList[1].Results) != 2 {
		t.Errorf("trials %+v", e.TrialList)
	}
	least := 0.5
	if diff := cmp.Diff([]view.Rung{{Epochs: 1, Reached: 4, WentOn: 1, Best: &least}, {Epochs: 3}}, e.Rungs); diff != "" {
		t.Error(diff)
	}
	want := []view.Improvement{
		{At: begin.Add(time.Minute), Seconds: 60, Joules: 100, Trial: 0, Value: 0.9}, {At: begin.Add(2 * time.Minute), Seconds: 120, Joules: 150, Trial: 1, Value: 0.5},
	}
	if diff := cmp.Diff(want, e.Course); diff != "" {
		t.Error(diff)
	}
	r.Experiment.Objective.Per = contract.PerEnergy
	if per := view.NewExperimentLine(&r); per.Best == nil || *per.Best != 0.6/120 { // only who came furthest compares
		t.Errorf("per joule: %+v", per.Best)
	}
}

// A trial that has diverged is not shown with the result that it had before.
func TestADivergedTrialHasNoValue(t *testing.T) {
	r := contract.ExperimentRecord{
		Experiment: contract.Experiment{Objective: contract.Objective{Metric: "loss", Minimise: true}},
		Trials: []contract.Trial{{State: contract.TrialEnded, Reason: "ended early", Done: []contract.TrialEpoch{
			{Epoch: 1, Metrics: map[string]float64{"loss": 0.99}}, {Epoch: 2, Metrics: map[string]float64{contract.NonfiniteSteps: 3}},
		}}},
	}
	shown := view.DescribeExperiment(&r).TrialList[0]
	if shown.Value != nil || len(shown.Results) != 1 || shown.Reason != "ended early; loss is no number" {
		t.Errorf("%+v", shown)
	}
}

// An objective per joule falls as a training goes on: only those that came furthest compare, at any time.
func TestTheCourseOfAnObjectivePerJouleEndsAtTheBest(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	epoch := func(n, minute int, accuracy float64) contract.TrialEpoch {
		at := begin.Add(time.Duration(minute) * time.Minute)
		return contract.TrialEpoch{Epoch: n, At: at, Seconds: 60, Joules: 10 * float64(n), Metrics: map[string]float64{"accuracy": accuracy}}
	}
	r := contract.ExperimentRecord{
		SubmittedAt: begin, Experiment: contract.Experiment{Objective: contract.Objective{Metric: "accuracy", Per: contract.PerEnergy}},
		Trials: []contract.Trial{
			{ID: 0, State: contract.TrialEnded, Done: []contract.TrialEpoch{epoch(1, 1, 0.5), epoch(2, 2, 0.6)}},
			{ID: 1, State: contract.TrialEnded, Done: []contract.TrialEpoch{epoch(1, 3, 0.9), epoch(2, 4, 0.75)}},
		},
	}
	e := view.DescribeExperiment(&r)
	var values []float64
	for _, better := range e.Course {
		values = append(values, better.Value)
	}
	if diff := cmp.Diff([]float64{0.05, 0.03, 0.0375}, values); diff != "" || *e.Best != 0.0375 {
		t.Errorf("best %v, course %s", *e.Best, diff)
	}
}
