package search

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

func choice(name string, values ...contract.Value) contract.Parameter {
	return contract.Parameter{Name: name, Kind: Choice, Values: values}
}

func mixed() Space {
	return Space{
		choice("optimizer", contract.Text("sgd"), contract.Text("adam")),
		{Name: "momentum", Kind: Uniform, Low: 0, High: 0.99, When: &contract.Condition{Parameter: "optimizer", In: []contract.Value{contract.Text("sgd")}}},
		{Name: "rate", Kind: LogUniform, Low: 1e-4, High: 1},
		{Name: "layers", Kind: Int, Low: 1, High: 4},
		{Name: "width", Kind: LogInt, Low: 8, High: 512},
		choice("batch", contract.Number(32), contract.Number(64), contract.Number(256)),
	}
}

func small() Space {
	return Space{choice("rate", contract.Number(0.001), contract.Number(0.01), contract.Number(0.1)), choice("batch", contract.Number(32), contract.Number(64), contract.Number(256), contract.Number(1024))}
}

func drawConfig(t *rapid.T) contract.SearchConfig {
	c := contract.SearchConfig{
		Algorithm: rapid.SampledFrom(Algorithms()).Draw(t, "algorithm"), Trials: rapid.IntRange(1, 20).Draw(t, "trials"),
		Seed: rapid.Uint64().Draw(t, "seed"), MaxEpochs: rapid.IntRange(1, 30).Draw(t, "epochs"), Reduction: rapid.IntRange(2, 4).Draw(t, "reduction"),
	}
	if c.Algorithm == ASHA || c.Algorithm == Hyperband {
		c.Sampler = rapid.SampledFrom([]contract.SearchAlgorithm{"", Random, GP}).Draw(t, "sampler")
	}
	if rapid.Bool().Draw(t, "median") {
		c.Median = &contract.MedianStopping{}
	}
	return c
}

// world is trials in some order of events: epochs end, trials fail or end by themselves.
type world struct {
	trials []Trial
	slots  int
}

// step advances one running trial; false if none runs.
func (w *world) step(r *rand.Rand) bool {
	running := slices.DeleteFunc(slices.Clone(w.trials), func(t Trial) bool { return t.State != Running })
	if len(running) == 0 {
		return false
	}
	t := &w.trials[running[r.IntN(len(running))].ID]
	switch chance := r.Float64(); {
	case chance < 0.03:
		t.State = Failed
		return true
	case chance < 0.05 && len(t.Results) > 0:
		t.State = Ended
		return true
	}
	epoch := len(t.Results) + 1
	score := r.NormFloat64()
	if r.Float64() < 0.05 {
		score = math.Inf(-1)
	}
	t.Results = append(t.Results, Result{Epoch: epoch, Score: score, Slack: []float64{r.NormFloat64() + 1}})
	if epoch == t.Epochs {
		t.State = Paused
	}
	return true
}

func (w *world) free() int {
	free := w.slots
	for _, t := range w.trials {
		if t.State == Running {
			free--
		}
	}
	return free
}

// apply carries out a searcher's actions, and fails on invalid ones.
func (w *world) apply(t *rapid.T, space Space, c contract.SearchConfig, actions []Action) {
	started := 0
	for _, a := range actions {
		switch a.Verb {
		case Start:
			if a.Trial != len(w.trials) || a.Epochs < 1 || a.Epochs > c.MaxEpochs || !slices.Contains(keys(space, a.Params), space.key(a.Params)) {
				t.Fatalf("start %+v beside %d trials", a, len(w.trials))
			}
			w.trials = append(w.trials, Trial{ID: a.Trial, Params: a.Params, Epochs: a.Epochs, State: Running})
			started++
		case Promote:
			trial := &w.trials[a.Trial]
			if trial.State != Paused || a.Epochs <= trial.Epochs || a.Epochs > c.MaxEpochs {
				t.Fatalf("promote %+v of %+v", a, trial)
			}
			trial.State, trial.Epochs = Running, a.Epochs
			started++
		case Stop:
			if w.trials[a.Trial].State != Running || a.Reason == "" {
				t.Fatalf("stop %+v of %+v", a, w.trials[a.Trial])
			}
			w.trials[a.Trial].State = Stopped
		}
	}
	if len(w.trials) > c.Trials {
		t.Fatalf("%d trials, want at most %d", len(w.trials), c.Trials)
	}
}

// keys returns the key of params if the space contains each of its values.
func keys(space Space, params Params) []string {
	legal := Params{}
	for _, p := range space {
		v, ok := params[p.Name]
		x, _ := v.Float()
		inRange := (p.Kind == Uniform || p.Kind == LogUniform) && x >= p.Low && x <= p.High
		if d := dimension(p); ok && (inRange || d.exists(legal) && d.at(d.unit(v)) == v) {
			legal[p.Name] = v
		}
	}
	if len(legal) != len(params) {
		return nil
	}
	return []string{space.key(legal)}
}

// Whatever happens to its trials, a search keeps to its bounds, gives the same answer when asked again with the content
// of a file, never repeats a point and comes to an end.
func TestSearchesAreSoundAndHaveNoMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.SampledFrom([]Space{mixed(), small()}).Draw(t, "space")
		c := drawConfig(t)
		s, err := New(space, c)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "world"), 1))
		w := &world{slots: rapid.IntRange(1, 4).Draw(t, "slots")}
		for range 20 * c.MaxEpochs * c.Trials {
			free := w.free()
			actions := s.Next(w.trials, free)
			again, err := New(space, c)
			if err != nil {
				t.Fatal(err)
			}
			if same := again.Next(remembered(t, w.trials), free); !reflect.DeepEqual(same, actions) {
				t.Fatalf("asked again: %s", cmp.Diff(actions, same, cmp.AllowUnexported(contract.Value{})))
			}
			w.apply(t, space, c, actions)
			if w.free() < 0 {
				t.Fatal("more trials run than may")
			}
			if !w.step(r) && len(actions) == 0 {
				if n := len(space.tried(w.trials)); n != len(w.trials) {
					t.Fatalf("%d trials of %d points", len(w.trials), n)
				}
				return
			}
		}
		t.Fatalf("no end after %d trials", len(w.trials))
	})
}

// remembered returns trials as read back from a file; JSON cannot represent some numbers, so no file holds such scores.
func remembered(t *rapid.T, trials []Trial) []Trial {
	copies := slices.Clone(trials)
	for i := range copies {
		copies[i].Results = slices.Clone(copies[i].Results)
		for j, r := range copies[i].Results {
			if math.IsInf(r.Score, -1) {
				copies[i].Results[j].Score = -math.MaxFloat64
			}
		}
	}
	text, err := json.Marshal(copies)
	if err != nil {
		t.Fatal(err)
	}
	var back []Trial
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for i := range back {
		for j := range back[i].Results {
			if back[i].Results[j].Score == -math.MaxFloat64 {
				back[i].Results[j].Score = math.Inf(-1)
			}
		}
	}
	return back
}

// run trains everything that a search starts, one trial at a time, to the score that f returns, and returns the trials.
func run(t *testing.T, space Space, c contract.SearchConfig, f func(p Params, epoch int) Result) []Trial {
	t.Helper()
	s, err := New(space, c)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{slots: 1}
	for {
		actions := s.Next(w.trials, 1)
		if len(actions) == 0 {
			return w.trials
		}
		for _, a := range actions {
			if a.Verb == Start {
				w.trials = append(w.trials, Trial{ID: a.Trial, Params: a.Params})
			}
			trial := &w.trials[a.Trial]
			trial.State, trial.Epochs = Paused, a.Epochs
			for e := len(trial.Results) + 1; e <= a.Epochs; e++ {
				result := f(trial.Params, e)
				result.Epoch = e
				trial.Results = append(trial.Results, result)
			}
		}
	}
}

// byRate is best in the middle of the rates.
func byRate(p Params, _ int) Result {
	x, _ := p["rate"].Float()
	return Result{Score: -math.Abs(math.Log10(x) + 2)}
}

func epochs(trials []Trial) map[int]int {
	counts := map[int]int{}
	for _, t := range trials {
		counts[t.Epochs]++
	}
	return counts
}

// Hyperband's brackets for 50 epochs and a factor of 4 are those of the published offline experiments: 4, 13 and 50
// epochs.
func TestHyperband(t *testing.T) {
	trials := run(t, mixed(),
		contract.SearchConfig{Algorithm: Hyperband, Trials: 16 + 6 + 3, MaxEpochs: 50, MinEpochs: 4, Reduction: 4, Seed: 1},
		byRate)
	want := []map[int]int{{4: 12, 13: 3, 50: 1}, {13: 5, 50: 1}, {50: 3}}
	for i, b := range [][]Trial{trials[:16], trials[16:22], trials[22:]} {
		if diff := cmp.Diff(want[i], epochs(b)); diff != "" {
			t.Errorf("bracket %d: epochs of its trials: %s", i, diff)
		}
	}
	most, _ := bestOf(trials[:16])
	if most.Epochs != 50 {
		t.Errorf("the best of the first bracket trained %d epochs", most.Epochs)
	}
}

// A job with one epoch left is never asked to stop, so no trial waits there.
func TestNoRungBeforeTheLastEpoch(t *testing.T) {
	for _, tc := range []struct {
		c    contract.SearchConfig
		want []int
	}{
		{contract.SearchConfig{MaxEpochs: 1}, []int{1}},
		{contract.SearchConfig{MaxEpochs: 2}, []int{2}},
		{contract.SearchConfig{MaxEpochs: 3, Reduction: 2}, []int{1, 3}},
		{contract.SearchConfig{MaxEpochs: 3}, []int{1, 3}},
		{contract.SearchConfig{MaxEpochs: 9}, []int{1, 3, 9}},
		{contract.SearchConfig{MaxEpochs: 50, MinEpochs: 4, Reduction: 4}, []int{4, 13, 50}},
	} {
		if diff := cmp.Diff(tc.want, config(tc.c).withDefaults().rungs()); diff != "" {
			t.Errorf("%+v: %s", tc.c, diff)
		}
	}
	for _, algorithm := range []contract.SearchAlgorithm{ASHA, Hyperband} {
		if trials := run(t, mixed(), contract.SearchConfig{Algorithm: algorithm, Trials: 9, MaxEpochs: 2}, byRate); epochs(trials)[2] != 9 {
			t.Errorf("%s: epochs %v", algorithm, epochs(trials))
		}
	}
}

func TestASHAPromotesTheBestThird(t *testing.T) {
	trials := run(t, mixed(), contract.SearchConfig{Algorithm: ASHA, Trials: 27, MaxEpochs: 9, Seed: 3}, byRate)
	for _, rung := range []struct{ epochs, least int }{{9, 3}, {3, 9}} {
		n := 0
		for _, x := range trials {
			if x.Epochs >= rung.epochs {
				n++
			}
		}
		if n < rung.least {
			t.Errorf("%d trials had %d epochs, want %d", n, rung.epochs, rung.least)
		}
	}
	if first, _ := bestOf(trials); first.Epochs != 9 {
		t.Errorf("the best trial had %d epochs", first.Epochs)
	}
	few := run(t, mixed(), contract.SearchConfig{Algorithm: ASHA, Trials: 4, MaxEpochs: 27, Seed: 3}, byRate)
	if epochs(few)[27] != 1 {
		t.Errorf("of four trials one trains to the end: %v", epochs(few))
	}
}

func TestGridTakesEveryPointOnce(t *testing.T) {
	trials := run(t, small(), contract.SearchConfig{Algorithm: Grid, Trials: 100, MaxEpochs: 1}, byRate)
	if len(trials) != 12 || trials[0].Params["batch"] != contract.Number(32) || trials[1].Params["batch"] != contract.Number(64) || trials[4].Params["rate"] != contract.Number(0.01) {
		t.Errorf("%d trials: %v", len(trials), trials)
	}
	points := run(t, mixed(), contract.SearchConfig{Algorithm: Grid, Trials: 1000, MaxEpochs: 1, Levels: 2}, byRate)
	if want := (2 + 1) * 2 * 2 * 2 * 3; len(points) != want { // only sgd has momentum
		t.Errorf("%d points of the mixed space, want %d", len(points), want)
	}
}

// Levels of whole numbers are as many as requested, or all, in ascending order from one end to the other.
func TestLevelsOfWholeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]contract.ParameterKind{Int, LogInt}).Draw(t, "kind")
		low := rapid.IntRange(1, 50).Draw(t, "low")
		span, n := rapid.IntRange(0, 200).Draw(t, "span"), rapid.IntRange(2, 250).Draw(t, "n")
		p := contract.Parameter{Name: "x", Kind: kind, Low: float64(low), High: float64(low + span)}
		var values []float64
		for _, v := range dimension(p).levels(n) {
			x, _ := v.Float()
			values = append(values, x)
		}
		if len(values) != min(n, span+1) || values[0] != p.Low || values[len(values)-1] != p.High {
			t.Fatalf("%d levels from %g to %g: %v", n, p.Low, p.High, values)
		}
		for i := 1; i < len(values); i++ {
			if values[i] <= values[i-1] {
				t.Fatalf("%v: want each more than the one before", values)
			}
		}
	})
	if points, ok := (Space{{Name: "x", Kind: LogInt, Low: 1, High: 10}}).Finite(50); !ok || len(points) != 10 {
		t.Errorf("all whole numbers from 1 to 10: %v, %t", points, ok)
	}
}

// No search ends before it has tried all values of a small range.
func TestSearchesTryAllWholeNumbers(t *testing.T) {
	space := Space{{Name: "x", Kind: LogInt, Low: 1, High: 10}}
	for _, algorithm := range []contract.SearchAlgorithm{Random, GP, Grid} {
		score := func(p Params, _ int) Result { return Result{Score: -number(p["x"])} }
		if trials := run(t, space, contract.SearchConfig{Algorithm: algorithm, Trials: 30, MaxEpochs: 1, Levels: 20}, score); len(trials) != 10 {
			t.Errorf("%s: %d trials, want 10", algorithm, len(trials))
		}
	}
}

func TestRandomTriesASmallSpaceWholly(t *testing.T) {
	if trials := run(t, small(), contract.SearchConfig{Algorithm: Random, Trials: 100, MaxEpochs: 1, Seed: 5}, byRate); len(trials) != 12 {
		t.Errorf("%d trials, want the 12 points", len(trials))
	}
}

func TestMedianStopping(t *testing.T) {
	results := func(scores ...float64) []Result {
		var list []Result
		for i, s := range scores {
			list = append(list, Result{Epoch: i + 1, Score: s})
		}
		return list
	}
	trials := []Trial{
		{ID: 0, Epochs: 4, State: Paused, Results: results(1, 2, 3, 4)},
		{ID: 1, Epochs: 4, State: Paused, Results: results(2, 2, 2, 2)},
		{ID: 2, Epochs: 4, State: Running, Results: results(1, 1.4)}, // the others had 1.5, 2 and 3 on average
		{ID: 3, Epochs: 4, State: Running, Results: results(3, 3)},
		{ID: 4, Epochs: 4, State: Running, Results: results(0)}, // one epoch is granted to it
	}
	c := contract.SearchConfig{Algorithm: Random, Trials: 5, MaxEpochs: 4, Median: &contract.MedianStopping{GraceEpochs: 2, Trials: 3}}
	s, err := New(small(), c)
	if err != nil {
		t.Fatal(err)
	}
	actions := s.Next(trials, 0)
	if len(actions) != 1 || actions[0].Verb != Stop || actions[0].Trial != 2 || !strings.Contains(actions[0].Reason, "median of 3 other trials 2") {
		t.Errorf("actions %+v", actions)
	}
}

// A Gaussian process finds a narrow optimum in fewer trials than the space has points, keeps a constraint, and avoids
// regions where trials fail.
func TestGaussianProcess(t *testing.T) {
	space := Space{{Name: "x", Kind: Uniform, Low: 0, High: 10}, {Name: "y", Kind: Uniform, Low: 0, High: 10}}
	xy := func(p Params) (x, y float64) { return number(p["x"]), number(p["y"]) }
	far := func(p Params) float64 {
		x, y := xy(p)
		return math.Hypot(x-7, y-3)
	}
	c := contract.SearchConfig{Algorithm: GP, Trials: 30, MaxEpochs: 1, Seed: 1}
	free := run(t, space, c, func(p Params, _ int) Result { return Result{Score: -far(p)} })
	if most, _ := bestOf(free); far(most.Params) > 0.2 {
		t.Errorf("best %v, want near (7, 3)", most.Params)
	}
	bound := run(t, space, c, func(p Params, _ int) Result {
		x, _ := xy(p)
		return Result{Score: -far(p), Slack: []float64{5 - x}}
	})
	most, _ := bestOf(bound)
	if x, y := xy(most.Params); x > 5 || x < 4.5 || math.Abs(y-3) > 0.5 {
		t.Errorf("best %v, want near (5, 3) and not beyond", most.Params)
	}
	broken := 0
	for _, trial := range bound[15:] {
		if x, _ := xy(trial.Params); x > 5 {
			broken++
		}
	}
	if broken > 8 {
		t.Errorf("%d of the last 15 trials broke the constraint", broken)
	}
}

// A search of thousands of trials must not hold up other experiments. It learns from the best and the newest ones.
func TestGaussianProcessOfManyTrials(t *testing.T) {
	space := Space{{Name: "x", Kind: Uniform, High: 1}, {Name: "y", Kind: Uniform, High: 1}}
	s, err := New(space, contract.SearchConfig{Algorithm: GP, Trials: 5000, MaxEpochs: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	draws := rand.New(rand.NewPCG(1, 2))
	var trials []Trial
	for i := range 4000 {
		trial := Trial{ID: i, Params: space.random(draws), Epochs: 1, State: Ended, Results: []Result{{Epoch: 1, Score: -float64(i)}}}
		if i%2 == 1 {
			trial.State, trial.Results = Failed, nil
		}
		trials = append(trials, trial)
	}
	if got := s.Next(trials, 1); len(got) != 1 || got[0].Verb != Start {
		t.Errorf("%+v", got)
	}
	few := told(trials)
	if len(few) != mostTold || few[0].ID != 0 || few[mostTold/2-1].ID != mostTold-2 || few[mostTold-1].ID != 3999 {
		t.Errorf("%d trials: %d, %d, .. %d", len(few), few[0].ID, few[mostTold/2-1].ID, few[len(few)-1].ID)
	}
}

// A third of the space, with its best point, runs out of memory: a search that ignored failures would always go there.
func TestGaussianProcessAvoidsFailures(t *testing.T) {
	space := Space{{Name: "x", Kind: Uniform, Low: 0, High: 1}, {Name: "y", Kind: Uniform, Low: 0, High: 1}}
	s, err := New(space, contract.SearchConfig{Algorithm: GP, Trials: 40, MaxEpochs: 1, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	var trials []Trial
	failed := 0
	for range 30 {
		a := s.Next(trials, 1)[0]
		x, y := number(a.Params["x"]), number(a.Params["y"])
		trial := Trial{ID: a.Trial, Params: a.Params, Epochs: 1, State: Paused, Results: []Result{{Epoch: 1, Score: -math.Hypot(x-0.8, y-0.3)}}}
		if x > 0.65 {
			trial.State, trial.Results = Failed, nil
			if a.Trial >= 15 {
				failed++
			}
		}
		trials = append(trials, trial)
	}
	most, _ := bestOf(trials)
	if score, _ := most.At(1); score < -0.2 || failed > 9 {
		t.Errorf("best %v with %.3f, %d of the last 15 trials failed", most.Params, score, failed)
	}
}

// If no trial has a result, the search still goes on to its end.
func TestGaussianProcessWithoutResults(t *testing.T) {
	for _, state := range []contract.TrialState{Failed, Ended, Running} {
		s, err := New(Space{{Name: "x", Kind: Uniform, High: 1}}, contract.SearchConfig{Algorithm: GP, Trials: 20, MaxEpochs: 1})
		if err != nil {
			t.Fatal(err)
		}
		var trials []Trial
		for range 20 {
			actions := s.Next(trials, 1)
			if len(actions) != 1 {
				t.Fatalf("%s: %d trials, then %v", state, len(trials), actions)
			}
			trials = append(trials, Trial{ID: actions[0].Trial, Params: actions[0].Params, Epochs: 1, State: state})
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		space Space
		c     contract.SearchConfig
		want  string
	}{
		{"nothing", nil, contract.SearchConfig{}, "needs a parameter"},
		{"twice", Space{choice("a", contract.Number(1)), choice("a", contract.Number(1))}, contract.SearchConfig{}, "a: given twice"},
		{"no value", Space{choice("a")}, contract.SearchConfig{}, "needs a value"},
		{"value twice", Space{choice("a", contract.Number(1), contract.Number(1))}, contract.SearchConfig{}, "1 is given twice"},
		{"upside down", Space{{Name: "a", Kind: Uniform, Low: 2, High: 1}}, contract.SearchConfig{}, "want a range"},
		{"logarithm of 0", Space{{Name: "a", Kind: LogUniform, Low: 0, High: 1}}, contract.SearchConfig{}, "begins above 0"},
		{"halves", Space{{Name: "a", Kind: Int, Low: 0.5, High: 1}}, contract.SearchConfig{}, "want whole numbers"},
		{"later condition", Space{{Name: "a", Kind: Int, High: 1, When: &contract.Condition{Parameter: "b", In: nil}}, choice("b", contract.Text("x"))}, contract.SearchConfig{}, "comes before"},
		{"impossible condition", Space{choice("b", contract.Text("x")), {Name: "a", Kind: Int, High: 1, When: &contract.Condition{Parameter: "b", In: []contract.Value{contract.Text("y")}}}}, contract.SearchConfig{}, "b is never y"},
		{"algorithm", small(), contract.SearchConfig{Algorithm: "tpe"}, `algorithm "tpe"`},
		{"no trials", small(), contract.SearchConfig{Algorithm: Random, MaxEpochs: 1}, "trials 0: want 1 to 10000"},
		{"sampler of random", small(), contract.SearchConfig{Algorithm: Random, Sampler: GP}, "only hyperband and asha have one"},
		{"min above max", small(), contract.SearchConfig{Algorithm: ASHA, MinEpochs: 5, MaxEpochs: 3}, "min_epochs 5: want 1 to 3"},
	} {
		if _, err := New(tc.space, tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestValues(t *testing.T) {
	for text, number := range map[string]bool{"16": true, "0.001": true, "-3": true, "007": false, "1e3": false, "adam": false, "NaN": false, "Inf": false, "": false} {
		v := contract.ParseValue(text)
		if _, ok := v.Float(); ok != number || v.String() != text {
			t.Errorf("%q: %v, number %t", text, v, ok)
		}
	}
	if got := contract.Number(1e6).String(); got != "1000000" {
		t.Errorf("a million is %s", got)
	}
	var v contract.Value
	if json.Unmarshal([]byte("null"), &v) == nil || json.Unmarshal([]byte("[1]"), &v) == nil {
		t.Error("neither null nor a list is a value")
	}
}

// Coordinates lead back to the point they come from.
func TestCoordinates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := mixed()
		p := space.random(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
		unit := space.coordinates(p)
		back := space.At(unit)
		for name, v := range p {
			w, ok := back[name]
			if x, y := number(v), number(w); !ok || math.Abs(x-y) > 1e-9*math.Abs(x) || v.IsNumber() != w.IsNumber() || !v.IsNumber() && v != w {
				t.Fatalf("%s: %v became %v", name, v, w)
			}
		}
		if len(back) != len(p) {
			t.Fatalf("%v became %v", p, back)
		}
	})
}

// number is the value of a numeric parameter.
func number(v contract.Value) float64 {
	x, _ := v.Float()
	return x
}

// bestOf returns the trial whose newest result is the best of those that break no constraint, the earliest of equals;
// false if there is no such trial.
func bestOf(trials []Trial) (found Trial, ok bool) {
	most := math.Inf(-1)
	for _, t := range trials {
		if score, _ := t.At(math.MaxInt); t.State != Failed && score > most {
			found, most, ok = t, score, true
		}
	}
	return found, ok
}
