package predictions

import (
	"math"
	"os"
	"testing"
	"testing/fstest"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestPredictionsOfPublishedTrainings holds the held-out halves to bounds a little above what was reached.
func TestPredictionsOfPublishedTrainings(t *testing.T) {
	data := os.Getenv("SWITCHYARD_DATA")
	if data == "" {
		t.Skip("SWITCHYARD_DATA does not name the folder of published measurements")
	}
	m, err := load(os.DirFS(data))
	if err != nil {
		t.Skipf("no published measurements: %v", err)
	}
	r := m.study()
	later := func(o outcome) bool { return o.heldOut && o.tenth >= 3 }
	for _, c := range []struct {
		what                    string
		got                     quality
		count                   int
		median, inside, ratioOf float64 // ratioOf is the most of the error of the declared answer
	}{
		{"epochs", measure(r.epochs, half(true)), 150, 0.35, 0.75, 0.2},
		{"seconds", measure(r.seconds, later), 100, 0.04, 0.9, 2},
		{"wall-clock seconds", measure(r.wallClock, later), 400, 0.03, 0.9, 0.2},
		{"seconds on devices that never ran", measure(r.elsewhere, half(true)), 150, 0.25, 0.75, 0.8},
		{"the same, once the family has run", measure(r.lent, half(true)), 150, 0.25, 0.75, 0.8},
	} {
		if c.got.count < c.count || c.got.median > c.median || c.got.inside < c.inside || c.got.median > c.ratioOf*c.got.declared {
			t.Errorf("%s: %d predictions, median error %.2f (declared %.2f), %.2f within the interval; want %d, %.2f (%.2g of declared), %.2f",
				c.what, c.got.count, c.got.median, c.got.declared, c.got.inside, c.count, c.median, c.ratioOf, c.inside)
		}
	}
	for n, bound := range map[int]float64{2: 0.30, 4: 0.14, 8: 0.10} {
		for _, heldOut := range []bool{false, true} {
			if q := r.speedOf(n, heldOut); q.count == 0 || q.median > bound || q.inside < 2.0/3 {
				t.Errorf("step times after %d configurations, held out %v: %+v, want a median error of %.2f and two thirds within", n, heldOut, q, bound)
			}
		}
	}
}

func TestConvergedIsTheRuleOnTheSmoothedLoss(t *testing.T) {
	steep := training{epochs: 40}
	for i := range 40 {
		steep.losses = append(steep.losses, 1-0.02*math.Min(float64(i), 20))
	}
	// The loss falls for the last time in the 21st epoch, and the mean of five then too falls by more than half as
	// much for the last time.
	if got := steep.converged(); got != 26 {
		t.Errorf("converged after %d epochs, want 26", got)
	}
	steep.losses[28] = 1.1 // one odd value moves the mean of five up, and down again
	if got := steep.converged(); got != 26 {
		t.Errorf("converged after %d epochs, want 26", got)
	}
	for i := range steep.losses {
		steep.losses[i] = 1 - 0.02*float64(i)
	}
	if got := steep.converged(); got != 40 {
		t.Errorf("a loss that falls to the end has converged after %d epochs, want all 40", got)
	}
}

func TestTenthsOfALife(t *testing.T) {
	var done []int
	atTenths(5, func(_, n int) { done = append(done, n) })
	for i, n := range done {
		if n < 1 || n >= 5 || i > 0 && n < done[i-1] {
			t.Errorf("a life of five epochs is asked about after %v", done)
		}
	}
	x := training{epochs: 4, seconds: []float64{30, 10, 10, 10}, config: train.Config{Workers: 1, Nodes: 1}}
	all := x.secondsLeft(false, nil)
	last := all[len(all)-1]
	if last.truth != 10 || last.whole != 60 || last.declared != 30 || last.last != 10 || last.predicted.Expected != 10 {
		t.Errorf("before the last epoch: %+v", last)
	}
}

func TestStepTimesAreReadByHeader(t *testing.T) {
	files := fstest.MapFS{"sia/traces/app/placements-rtx.csv": {Data: []byte("local_bsz,step_time,sync_time,placement\n32,0.5,0.1,44\n")}}
	p, err := loadPaces(files, "sia/traces/app/placements-rtx.csv")
	want := train.Measured{Config: train.Config{Workers: 8, Nodes: 2, LocalBatch: 32}, StepSeconds: 0.5, Weight: 1}
	if err != nil || p.name != "app-rtx" || len(p.samples) != 1 || p.samples[0] != want {
		t.Errorf("%+v (%v), want %+v", p, err, want)
	}
	files["bad.csv"] = &fstest.MapFile{Data: []byte("placement,local_bsz\n1,2\n")}
	if _, err := loadPaces(files, "bad.csv"); err == nil {
		t.Error("a file without step times is read")
	}
}
