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
)

func choice(name string, values ...Value) Parameter {
	return Parameter{Name: name, Kind: Choice, Values: values}
}

func mixed() Space {
	return Space{
		choice("optimizer", Text("sgd"), Text("adam")),
		{Name: "momentum", Kind: Uniform, Low: 0, High: 0.99, When: &Condition{"optimizer", []Value{Text("sgd")}}},
		{Name: "rate", Kind: LogUniform, Low: 1e-4, High: 1},
		{Name: "layers", Kind: Int, Low: 1, High: 4},
		{Name: "width", Kind: LogInt, Low: 8, High: 512},
		choice("batch", Number(32), Number(64), Number(256)),
	}
}

func small() Space {
	return Space{choice("rate", Number(0.001), Number(0.01), Number(0.1)), choice("batch", Number(32), Number(64), Number(256), Number(1024))}
}

func drawConfig(t *rapid.T) Config {
	c := Config{
		Algorithm: rapid.SampledFrom(Algorithms()).Draw(t, "algorithm"), Trials: rapid.IntRange(1, 20).Draw(t, "trials"),
		Seed: rapid.Uint64().Draw(t, "seed"), MaxEpochs: rapid.IntRange(1, 30).Draw(t, "epochs"), Reduction: rapid.IntRange(2, 4).Draw(t, "reduction"),
	}
	if c.Algorithm == ASHA || c.Algorithm == Hyperband {
		c.Sampler = rapid.SampledFrom([]Algorithm{"", Random, GP}).Draw(t, "sampler")
	}
	if rapid.Bool().Draw(t, "median") {
		c.Median = &Median{}
	}
	return c
}

// world is trials in some order of events: epochs end, trials fail or end by themselves.
type world struct {
	trials []Trial
	slots  int
}

// step lets one running trial get on; false where none runs.
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

// apply does what a searcher wants, and complains about what makes no sense.
func (w *world) apply(t *rapid.T, space Space, c Config, actions []Action) {
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

// keys is that of params if each of its values is one that the space has.
func keys(space Space, params Params) []string {
	legal := Params{}
	for _, p := range space {
		if v, ok := params[p.Name]; ok && p.exists(legal) && p.at(p.unit(v)) == v || ok && (p.Kind == Uniform || p.Kind == LogUniform) && v.number >= p.Low && v.number <= p.High {
			legal[p.Name] = v
		}
	}
	if len(legal) != len(params) {
		return nil
	}
	return []string{space.key(legal)}
}

// Whatever happens to its trials, a search keeps to its bounds, says the same when asked again with what a file remembers, never repeats a point and comes to an end.
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
				t.Fatalf("asked again: %s", cmp.Diff(actions, same, cmp.AllowUnexported(Value{})))
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

// remembered is what comes back of trials that were written to a file; numbers that JSON has no word for are scores that no file holds.
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

// run trains everything that a search starts, one trial at a time, to the score that f gives, and returns the trials.
func run(t *testing.T, space Space, c Config, f func(p Params, epoch int) Result) []Trial {
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

// Hyperband's brackets for 50 epochs and a factor of 4 are those of the published offline experiments: 4, 13 and 50 epochs.
func TestHyperband(t *testing.T) {
	trials := run(t, mixed(), Config{Algorithm: Hyperband, Trials: 16 + 6 + 3, MaxEpochs: 50, MinEpochs: 4, Reduction: 4, Seed: 1}, byRate)
	want := []map[int]int{{4: 12, 13: 3, 50: 1}, {13: 5, 50: 1}, {50: 3}}
	for i, b := range [][]Trial{trials[:16], trials[16:22], trials[22:]} {
		if diff := cmp.Diff(want[i], epochs(b)); diff != "" {
			t.Errorf("bracket %d: epochs of its trials: %s", i, diff)
		}
	}
	most, _ := Best(trials[:16])
	if most.Epochs != 50 {
		t.Errorf("the best of the first bracket trained %d epochs", most.Epochs)
	}
}

// Whoever has one epoch left is never told to leave, so nobody waits there.
func TestNoRungBeforeTheLastEpoch(t *testing.T) {
	for _, tc := range []struct {
		c    Config
		want []int
	}{
		{Config{MaxEpochs: 1}, []int{1}},
		{Config{MaxEpochs: 2}, []int{2}},
		{Config{MaxEpochs: 3, Reduction: 2}, []int{1, 3}},
		{Config{MaxEpochs: 3}, []int{1, 3}},
		{Config{MaxEpochs: 9}, []int{1, 3, 9}},
		{Config{MaxEpochs: 50, MinEpochs: 4, Reduction: 4}, []int{4, 13, 50}},
	} {
		if diff := cmp.Diff(tc.want, tc.c.withDefaults().rungs()); diff != "" {
			t.Errorf("%+v: %s", tc.c, diff)
		}
	}
	for _, algorithm := range []Algorithm{ASHA, Hyperband} {
		if trials := run(t, mixed(), Config{Algorithm: algorithm, Trials: 9, MaxEpochs: 2}, byRate); epochs(trials)[2] != 9 {
			t.Errorf("%s: epochs %v", algorithm, epochs(trials))
		}
	}
}

func TestASHAPromotesTheBestThird(t *testing.T) {
	trials := run(t, mixed(), Config{Algorithm: ASHA, Trials: 27, MaxEpochs: 9, Seed: 3}, byRate)
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
	if first, _ := Best(trials); first.Epochs != 9 {
		t.Errorf("the best trial had %d epochs", first.Epochs)
	}
	few := run(t, mixed(), Config{Algorithm: ASHA, Trials: 4, MaxEpochs: 27, Seed: 3}, byRate)
	if epochs(few)[27] != 1 {
		t.Errorf("of four trials one trains to the end: %v", epochs(few))
	}
}

func TestGridTakesEveryPointOnce(t *testing.T) {
	trials := run(t, small(), Config{Algorithm: Grid, Trials: 100, MaxEpochs: 1}, byRate)
	if len(trials) != 12 || trials[0].Params["batch"] != Number(32) || trials[1].Params["batch"] != Number(64) || trials[4].Params["rate"] != Number(0.01) {
		t.Errorf("%d trials: %v", len(trials), trials)
	}
	points := run(t, mixed(), Config{Algorithm: Grid, Trials: 1000, MaxEpochs: 1, Levels: 2}, byRate)
	if want := (2 + 1) * 2 * 2 * 2 * 3; len(points) != want { // momentum is there with sgd alone
		t.Errorf("%d points of the mixed space, want %d", len(points), want)
	}
}

// Levels of whole numbers are as many as asked for, or all there are, in ascending order from one end to the other.
func TestLevelsOfWholeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Int, LogInt}).Draw(t, "kind")
		low := rapid.IntRange(1, 50).Draw(t, "low")
		span, n := rapid.IntRange(0, 200).Draw(t, "span"), rapid.IntRange(2, 250).Draw(t, "n")
		p := Parameter{Name: "x", Kind: kind, Low: float64(low), High: float64(low + span)}
		values := p.levels(n)
		if len(values) != min(n, span+1) || values[0].number != p.Low || values[len(values)-1].number != p.High {
			t.Fatalf("%d levels from %g to %g: %v", n, p.Low, p.High, values)
		}
		for i := 1; i < len(values); i++ {
			if values[i].number <= values[i-1].number {
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
	for _, algorithm := range []Algorithm{Random, GP, Grid} {
		score := func(p Params, _ int) Result { return Result{Score: -p["x"].number} }
		if trials := run(t, space, Config{Algorithm: algorithm, Trials: 30, MaxEpochs: 1, Levels: 20}, score); len(trials) != 10 {
			t.Errorf("%s: %d trials, want 10", algorithm, len(trials))
		}
	}
}

func TestRandomTriesASmallSpaceWholly(t *testing.T) {
	if trials := run(t, small(), Config{Algorithm: Random, Trials: 100, MaxEpochs: 1, Seed: 5}, byRate); len(trials) != 12 {
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
	c := Config{Algorithm: Random, Trials: 5, MaxEpochs: 4, Median: &Median{GraceEpochs: 2, Trials: 3}}
	s, err := New(small(), c)
	if err != nil {
		t.Fatal(err)
	}
	actions := s.Next(trials, 0)
	if len(actions) != 1 || actions[0].Verb != Stop || actions[0].Trial != 2 || !strings.Contains(actions[0].Reason, "median of 3 other trials 2") {
		t.Errorf("actions %+v", actions)
	}
}

// A Gaussian process finds a narrow best in fewer trials than it has points, keeps to a constraint, and shuns where trials fail.
func TestGaussianProcess(t *testing.T) {
	space := Space{{Name: "x", Kind: Uniform, Low: 0, High: 10}, {Name: "y", Kind: Uniform, Low: 0, High: 10}}
	xy := func(p Params) (x, y float64) { return p["x"].number, p["y"].number }
	far := func(p Params) float64 {
		x, y := xy(p)
		return math.Hypot(x-7, y-3)
	}
	c := Config{Algorithm: GP, Trials: 30, MaxEpochs: 1, Seed: 1}
	free := run(t, space, c, func(p Params, _ int) Result { return Result{Score: -far(p)} })
	if most, _ := Best(free); far(most.Params) > 0.2 {
		t.Errorf("best %v, want near (7, 3)", most.Params)
	}
	bound := run(t, space, c, func(p Params, _ int) Result {
		x, _ := xy(p)
		return Result{Score: -far(p), Slack: []float64{5 - x}}
	})
	most, _ := Best(bound)
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

// A third of the space, with its best point, runs out of memory: a search that did not know would go there always.
func TestGaussianProcessShunsFailures(t *testing.T) {
	space := Space{{Name: "x", Kind: Uniform, Low: 0, High: 1}, {Name: "y", Kind: Uniform, Low: 0, High: 1}}
	s, err := New(space, Config{Algorithm: GP, Trials: 40, MaxEpochs: 1, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	var trials []Trial
	failed := 0
	for range 30 {
		a := s.Next(trials, 1)[0]
		x, y := a.Params["x"].number, a.Params["y"].number
		trial := Trial{ID: a.Trial, Params: a.Params, Epochs: 1, State: Paused, Results: []Result{{Epoch: 1, Score: -math.Hypot(x-0.8, y-0.3)}}}
		if x > 0.65 {
			trial.State, trial.Results = Failed, nil
			if a.Trial >= 15 {
				failed++
			}
		}
		trials = append(trials, trial)
	}
	most, _ := Best(trials)
	if score, _ := most.At(1); score < -0.2 || failed > 9 {
		t.Errorf("best %v with %.3f, %d of the last 15 trials failed", most.Params, score, failed)
	}
}

// Where no trial has a result, the search goes on to its end.
func TestGaussianProcessWithoutResults(t *testing.T) {
	for _, state := range []State{Failed, Ended, Running} {
		s, err := New(Space{{Name: "x", Kind: Uniform, High: 1}}, Config{Algorithm: GP, Trials: 20, MaxEpochs: 1})
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

func TestBest(t *testing.T) {
	at := func(scores ...float64) []Result { return []Result{{1, scores[0], scores[1:]}} }
	trials := []Trial{
		{ID: 0, State: Failed, Results: at(9)},
		{ID: 1, State: Paused, Results: at(8, -1)},
		{ID: 2, State: Stopped, Results: at(math.NaN())},
		{ID: 3, State: Running, Results: at(3, 1)},
		{ID: 4, State: Paused, Results: at(3)},
	}
	if most, ok := Best(trials); !ok || most.ID != 3 {
		t.Errorf("best %+v", most)
	}
	if _, ok := Best(trials[:3]); ok {
		t.Error("nothing there is of use")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		space Space
		c     Config
		want  string
	}{
		{"nothing", nil, Config{}, "needs a parameter"},
		{"twice", Space{choice("a", Number(1)), choice("a", Number(1))}, Config{}, "a: given twice"},
		{"no value", Space{choice("a")}, Config{}, "needs a value"},
		{"value twice", Space{choice("a", Number(1), Number(1))}, Config{}, "1 is given twice"},
		{"upside down", Space{{Name: "a", Kind: Uniform, Low: 2, High: 1}}, Config{}, "want a range"},
		{"logarithm of 0", Space{{Name: "a", Kind: LogUniform, Low: 0, High: 1}}, Config{}, "begins above 0"},
		{"halves", Space{{Name: "a", Kind: Int, Low: 0.5, High: 1}}, Config{}, "want whole numbers"},
		{"later condition", Space{{Name: "a", Kind: Int, High: 1, When: &Condition{"b", nil}}, choice("b", Text("x"))}, Config{}, "comes before"},
		{"impossible condition", Space{choice("b", Text("x")), {Name: "a", Kind: Int, High: 1, When: &Condition{"b", []Value{Text("y")}}}}, Config{}, "b is never y"},
		{"algorithm", small(), Config{Algorithm: "tpe"}, `algorithm "tpe"`},
		{"no trials", small(), Config{Algorithm: Random, MaxEpochs: 1}, "trials 0: want 1 to 10000"},
		{"sampler of random", small(), Config{Algorithm: Random, Sampler: GP}, "only hyperband and asha have one"},
		{"min above max", small(), Config{Algorithm: ASHA, MinEpochs: 5, MaxEpochs: 3}, "min_epochs 5: want 1 to 3"},
	} {
		if _, err := New(tc.space, tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestValues(t *testing.T) {
	for text, number := range map[string]bool{"16": true, "0.001": true, "-3": true, "007": false, "1e3": false, "adam": false, "NaN": false, "Inf": false, "": false} {
		v := ParseValue(text)
		if _, ok := v.Float(); ok != number || v.String() != text {
			t.Errorf("%q: %v, number %t", text, v, ok)
		}
	}
	if got := Number(1e6).String(); got != "1000000" {
		t.Errorf("a million is %s", got)
	}
	var v Value
	if json.Unmarshal([]byte("null"), &v) == nil || json.Unmarshal([]byte("[1]"), &v) == nil {
		t.Error("neither null nor a list is a value")
	}
}

// Coordinates lead back to where they come from.
func TestCoordinates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := mixed()
		p := space.random(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
		unit := space.coordinates(p)
		back := space.At(unit)
		for name, v := range p {
			w, ok := back[name]
			if near := math.Abs(w.number-v.number) <= 1e-9*math.Abs(v.number); !ok || !near || w.text != v.text {
				t.Fatalf("%s: %v became %v", name, v, w)
			}
		}
		if len(back) != len(p) {
			t.Fatalf("%v became %v", p, back)
		}
	})
}
