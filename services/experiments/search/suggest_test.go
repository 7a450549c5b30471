package search

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// A client that tells all trials gets the points that an experiment with the same settings would try.
func TestSuggestionsAreThoseOfAnExperiment(t *testing.T) {
	t.Parallel()
	space := Space{{Name: "x", Kind: Uniform, Low: -1, High: 1}, {Name: "kind", Kind: Choice, Values: []contract.Value{contract.Text("a"), contract.Text("b")}}}
	value := func(p contract.Value) float64 { x, _ := p.Float(); return (x - 0.3) * (x - 0.3) }
	for _, algorithm := range []contract.SearchAlgorithm{Random, Grid, GP} {
		s, err := New(space, contract.SearchConfig{Algorithm: algorithm, Trials: MostTrials, Seed: 7, MaxEpochs: 1})
		if err != nil {
			t.Fatal(err)
		}
		q := contract.SuggestionRequest{Space: space, Algorithm: algorithm, Seed: 7, Minimise: true}
		var trials []Trial
		best := math.Inf(1)
		for range 12 {
			suggestion, err := Suggest(q)
			if err != nil {
				t.Fatal(err)
			}
			actions := s.Next(trials, 1)
			if suggestion.Over != (len(actions) == 0) {
				t.Fatalf("%s after %d: over %v, the experiment does %v", algorithm, len(trials), suggestion.Over, actions)
			}
			if suggestion.Over {
				break
			}
			if diff := cmp.Diff(map[string]contract.Value(actions[0].Params), suggestion.Params, cmp.Comparer(func(a, b contract.Value) bool { return a == b })); diff != "" {
				t.Fatalf("%s: %s", algorithm, diff)
			}
			v := value(suggestion.Params["x"])
			best = min(best, v)
			q.Trials = append(q.Trials, contract.ToldTrial{Params: suggestion.Params, Value: &v})
			trials = append(trials, Trial{ID: len(trials), Params: suggestion.Params, Epochs: 1, State: Ended, Results: []Result{{Epoch: 1, Score: -v}}})
		}
		if algorithm == GP && best > 1e-3 {
			t.Errorf("gp: best %g", best)
		}
	}
}

func TestSuggestionsRefuse(t *testing.T) {
	t.Parallel()
	one := 1.0
	space := Space{{Name: "x", Kind: Uniform, High: 1}}
	for want, q := range map[string]contract.SuggestionRequest{
		"switchyard tune run":              {Space: space, Algorithm: ASHA},
		"needs a parameter":                {Algorithm: Random},
		"want at most 500":                 {Space: space, Algorithm: Random, Trials: make([]contract.ToldTrial, contract.MostTold+1)},
		"trials[0]: a trial that failed":   {Space: space, Algorithm: Random, Trials: []contract.ToldTrial{{Value: &one, Failed: true}}},
		"parameter x: want a range [low, ": {Space: Space{{Name: "x", Kind: Uniform, Low: 2, High: 1}}, Algorithm: Random},
	} {
		if _, err := Suggest(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// BenchmarkSuggest is the longest answer there is.
func BenchmarkSuggest(b *testing.B) {
	q := contract.SuggestionRequest{Space: Space{{Name: "x", Kind: Uniform, High: 1}, {Name: "y", Kind: LogUniform, Low: 1e-4, High: 1}}, Algorithm: GP}
	for i := range contract.MostTold {
		v := math.Sin(float64(i))
		q.Trials = append(q.Trials, contract.ToldTrial{Params: Space(q.Space).At(spread(1, i, 2)), Value: &v})
	}
	for b.Loop() {
		if _, err := Suggest(q); err != nil {
			b.Fatal(err)
		}
	}
}
