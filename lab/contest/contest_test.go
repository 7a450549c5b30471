package contest

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

func point(values map[string]float64) search.Params {
	p := search.Params{}
	for name, x := range values {
		p[name] = contract.Number(x)
	}
	return p
}

func named(t *testing.T, problems []Problem, name string) Problem {
	t.Helper()
	i := slices.IndexFunc(problems, func(p Problem) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no problem %s", name)
	}
	return problems[i]
}

// The functions have the published values at the published places of their minima.
func TestFunctionsHaveTheirPublishedMinima(t *testing.T) {
	branin, hartmann := named(t, Functions(), "branin"), named(t, Functions(), "hartmann6")
	for _, at := range [][2]float64{{-math.Pi, 12.275}, {math.Pi, 2.275}, {9.42478, 2.475}} {
		if got := -branin.Quality(point(map[string]float64{"x": at[0], "y": at[1]})); math.Abs(got-0.397887) > 1e-5 {
			t.Errorf("branin at %v: %g", at, got)
		}
	}
	at := map[string]float64{"a": 0.20169, "b": 0.150011, "c": 0.476874, "d": 0.275332, "e": 0.311652, "f": 0.6573}
	if got := hartmann.Quality(point(at)); math.Abs(got-3.32237) > 1e-5 {
		t.Errorf("hartmann6: %g", got)
	}
}

func TestCurvesFallAndMislead(t *testing.T) {
	for _, name := range []string{"curves", "crossing"} {
		p := named(t, Functions(), name)
		x := p.Space.At([]float64{0.5, 0.5, 0.2, 0.9, 0.7})
		last := math.Inf(-1)
		for epoch := 1; epoch <= p.MaxEpochs; epoch += 13 {
			score := p.Score(x, epoch, rand.New(rand.NewPCG(1, 1)))
			if score <= last {
				t.Errorf("%s: %g at epoch %d, %g before", name, score, epoch, last)
			}
			last = score
		}
		if math.Abs(last-p.Quality(x)) > 0.05 {
			t.Errorf("%s ends at %g, its quality is %g", name, last, p.Quality(x))
		}
	}
}

// compete gives the rows of some entrants.
func compete(t *testing.T, p Problem, part float64, seeds, workers int, names ...string) []Row {
	t.Helper()
	rows := make([]Row, len(names))
	for i, name := range names {
		all := Entrants(p)
		e := all[slices.IndexFunc(all, func(e Entrant) bool { return e.Name == name })]
		var err error
		m := Match{Problem: p, Entrant: e, BestPart: part, Seeds: seeds, Workers: workers}
		if rows[i], err = m.Compete(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", rows[i])
	}
	return rows
}

func TestBayesianOptimisationNeedsFewerTrials(t *testing.T) {
	for _, tc := range []struct {
		name string
		part float64
	}{{"branin", 0.01}, {"hartmann6", 0.05}, {"curves", 0.05}} {
		rows := compete(t, named(t, Functions(), tc.name), tc.part, 9, 4, "random", "gp")
		if random, gp := rows[0].Trials.Median, rows[1].Trials.Median; rows[1].Reached < 9 || gp > 0.75*random {
			t.Errorf("%s: %g trials of gp, %g of random", tc.name, gp, random)
		}
	}
}

func TestEarlyStoppingNeedsFewerEpochs(t *testing.T) {
	rows := compete(t, named(t, Functions(), "curves"), 0.05, 9, 4, "random", "asha", "hyperband", "random+median")
	for i, most := range []float64{1, 0.5, 0.6, 0.9} {
		if row := rows[i]; row.Reached < 9 || row.Epochs.Median > most*rows[0].Epochs.Median {
			t.Errorf("%s: %g epochs, %g of random", row.Algorithm, row.Epochs.Median, rows[0].Epochs.Median)
		}
	}
}

func TestPlaysRepeat(t *testing.T) {
	p := named(t, Functions(), "curves")
	first, second := compete(t, p, 0.05, 2, 4, "asha", "gp+median"), compete(t, p, 0.05, 2, 4, "asha", "gp+median")
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRecorded(t *testing.T) {
	files := fstest.MapFS{
		"TuneV1Vary_net_1.csv": {Data: []byte("0.1,4,32,50,1,2,3\n0.1,13,32,40,1,2,3\n0.01,4,32,70,1,2,3\n")},
		"TuneV2Vary_net_8.csv": {Data: []byte("0.1,4,32,54,1,2,3\n")},
	}
	problems, err := LoadRecorded(files)
	if err != nil || len(problems) != 1 {
		t.Fatalf("problems %+v (%v)", problems, err)
	}
	p, best, other := problems[0], point(map[string]float64{"learning_rate": 0.1, "batch_size": 32}), point(map[string]float64{"learning_rate": 0.01, "batch_size": 32})
	r := rand.New(rand.NewPCG(1, 1))
	if p.Name != "net" || p.MaxEpochs != 13 || p.MinEpochs != 4 || p.Quality(best) != -40 || p.Quality(other) != -70 || p.Best(0.05) != -40 {
		t.Errorf("problem %+v", p)
	}
	if early := p.Score(best, 4, r); early != -50 && early != -54 || !math.IsNaN(p.Score(best, 5, r)) {
		t.Errorf("after 4 epochs %g", early)
	}
	for text, want := range map[string]string{"0.1,4\n": "want learning rate", "a,4,32,1\n": "invalid syntax", "\"": "read TuneV1Vary_net_1.csv"} {
		if _, err := LoadRecorded(fstest.MapFS{"TuneV1Vary_net_1.csv": {Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v", text, err)
		}
	}
	if _, err := LoadRecorded(fstest.MapFS{}); err == nil {
		t.Error("an empty folder was read")
	}
}

func TestRecordedTrainings(t *testing.T) {
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA does not name the published measurements")
	}
	problems, err := LoadRecorded(os.DirFS(filepath.Join(root, "pipetune", "offline_res")))
	if err != nil || len(problems) != 3 {
		t.Fatalf("%d problems (%v)", len(problems), err)
	}
	random, gp := 0.0, 0.0
	for _, p := range problems {
		if points, ok := p.Space.Finite(100); !ok || len(points) != 30 || p.MaxEpochs != 50 || p.MinEpochs != 4 {
			t.Errorf("%s: %d points, %d to %d epochs", p.Name, len(points), p.MinEpochs, p.MaxEpochs)
		}
		rows := compete(t, p, 0.05, 40, 1, "random", "gp")
		random, gp = random+rows[0].Trials.Median, gp+rows[1].Trials.Median
	}
	// Many points end within a few percentage points of the best, so that which are the best two is partly chance.
	if gp > 0.9*random {
		t.Errorf("%g trials of gp, %g of random", gp, random)
	}
}
