package curve

import (
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// gavel reads a table of Gavel's measurements, without its head, or skips where they are not.
func gavel(t *testing.T, table string) [][]string {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA names no folder with the published traces")
	}
	data, err := os.Open(filepath.Join(root, "gavel/derived", table))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	rows, err := csv.NewReader(data).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

// numberIn returns a number of a row, 0 if it is left out.
func numberIn(t *testing.T, row []string, column int) float64 {
	t.Helper()
	if row[column] == "" {
		return 0
	}
	x, err := strconv.ParseFloat(row[column], 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// kindIn returns the kind of job whose name and batch size begin at a column.
func kindIn(t *testing.T, row []string, column int) Kind {
	t.Helper()
	return Kind{Family: row[column], LocalBatch: int(numberIn(t, row, column+1))}
}

// measuredPairs returns the rates of two jobs on one GPU, by type of GPU, without pairs that do not fit.
func measuredPairs(t *testing.T) map[string][]InterferenceSample {
	t.Helper()
	pairs := map[string][]InterferenceSample{}
	for _, row := range gavel(t, "colocation-1gpu.csv") {
		pair := KindPair{kindIn(t, row, 1), kindIn(t, row, 3)}
		if rate := numberIn(t, row, 7) / numberIn(t, row, 5); rate > 0 {
			pairs[row[0]] = append(pairs[row[0]], InterferenceSample{KindPair: pair, Rate: rate})
		}
	}
	return pairs
}

// profiled is a feature of a job's own on a type of GPU.
type profiled struct {
	gpu  string
	kind Kind
}

// profiles returns the features of each kind alone: the part of the memory that it takes, in tenths, and the logarithm
// of its step time to the base of 8.
func profiles(t *testing.T) (memory, steps map[profiled]float64) {
	t.Helper()
	memory, steps = map[profiled]float64{}, map[profiled]float64{}
	for _, row := range gavel(t, "declared_memory.csv") {
		memory[profiled{row[0], kindIn(t, row, 1)}] = 10 * numberIn(t, row, 3)
	}
	for _, row := range gavel(t, "isolated.csv") {
		if row[3] == "1" {
			steps[profiled{row[0], kindIn(t, row, 1)}] = -math.Log2(numberIn(t, row, 4)) / 3
		}
	}
	return memory, steps
}

// newApplicationError is the root mean square error on pairs of an application of which no pair was trained, over all
// applications.
func newApplicationError(pairs []InterferenceSample, kernel func(x, y KindPair) float64) float64 {
	const expected = 0.6 // as Interference expects
	sum, n := 0.0, 0
	families := map[string]bool{}
	for _, e := range pairs {
		families[e.Self.Family] = true
	}
	for family := range families {
		p := NewProcess(expected, kernel)
		isNew := func(e InterferenceSample) bool { return e.Self.Family == family || e.Beside.Family == family }
		for _, e := range pairs {
			if !isNew(e) {
				p.Add(e.KindPair, e.Rate, 0.02)
			}
		}
		for _, e := range pairs {
			if isNew(e) {
				rate, _ := p.Predict(e.KindPair)
				sum, n = sum+(rate-e.Rate)*(rate-e.Rate), n+1
			}
		}
	}
	return math.Sqrt(sum / float64(n))
}

// For an application without a measured pair our model uses what its neighbours do to others. Features of the
// application alone make predictions better on one type of GPU and worse on the other.
func TestHeldOutApplications(t *testing.T) {
	memory, steps := profiles(t)
	for gpu, pairs := range measuredPairs(t) {
		// alike lets kinds of near features disturb alike, and be disturbed alike, whatever their families.
		alike := func(feature map[profiled]float64) func(x, y KindPair) float64 {
			similar := func(a, b Kind) float64 {
				off := feature[profiled{gpu, a}] - feature[profiled{gpu, b}]
				return 0.5*a.similarity(b) + 0.5*math.Exp(-off*off/2)
			}
			return func(x, y KindPair) float64 {
				self, beside := similar(x.Self, y.Self), similar(x.Beside, y.Beside)
				return 0.02 * (self + beside + self*beside)
			}
		}
		ours := newApplicationError(pairs, pairCovariance)
		for name, kernel := range map[string]func(x, y KindPair) float64{
			"nothing": func(_, _ KindPair) float64 { return 0 }, "its memory": alike(memory), "its step time": alike(steps),
		} {
			other := newApplicationError(pairs, kernel)
			t.Logf("%s: ours errs by %.4f, by %s %.4f", gpu, ours, name, other)
			if (gpu == "v100" || name == "nothing") && ours > other {
				t.Errorf("%s: ours errs by %.4f, by %s %.4f", gpu, ours, name, other)
			}
		}
	}
}

// heldOutError is the root mean square error on pairs that were trained in neither order, over several random choices
// of the training part.
func heldOutError(pairs []InterferenceSample, part float64, kernel func(x, y KindPair) float64) float64 {
	sum, n := 0.0, 0
	for seed := range uint64(3) {
		draw := rand.New(rand.NewPCG(seed, 0))
		library := map[KindPair]bool{}
		for _, e := range pairs {
			if draw.Float64() < part/2 {
				library[e.KindPair], library[KindPair{e.Beside, e.Self}] = true, true
			}
		}
		mean, known := 0.0, 0.0
		for _, e := range pairs {
			if library[e.KindPair] {
				mean, known = mean+e.Rate, known+1
			}
		}
		p := NewProcess(mean/known, kernel)
		for _, e := range pairs {
			if library[e.KindPair] {
				p.Add(e.KindPair, e.Rate, 0.02)
			}
		}
		for _, e := range pairs {
			if !library[e.KindPair] {
				rate, _ := p.Predict(e.KindPair)
				sum, n = sum+(rate-e.Rate)*(rate-e.Rate), n+1
			}
		}
	}
	return math.Sqrt(sum / float64(n))
}

// Our model errs least of several on pairs it has not seen.
func TestHeldOutPairs(t *testing.T) {
	additiveAndOfPairs := func(selfAlike, besideAlike bool) float64 {
		switch {
		case selfAlike && besideAlike:
			return 0.06
		case selfAlike || besideAlike:
			return 0.02
		}
		return 0
	}
	models := map[string]func(x, y KindPair) float64{
		"ours":     pairCovariance,
		"the mean": func(_, _ KindPair) float64 { return 0 },
		"additive": func(x, y KindPair) float64 { return 0.03 * (x.Self.similarity(y.Self) + x.Beside.similarity(y.Beside)) },
		"of pairs": func(x, y KindPair) float64 { return 0.06 * x.Self.similarity(y.Self) * x.Beside.similarity(y.Beside) },
		"families, whatever the batch": func(x, y KindPair) float64 {
			return additiveAndOfPairs(x.Self.Family == y.Self.Family, x.Beside.Family == y.Beside.Family)
		},
		"kinds, whatever the family": func(x, y KindPair) float64 {
			return additiveAndOfPairs(x.Self == y.Self, x.Beside == y.Beside)
		},
	}
	for gpu, pairs := range measuredPairs(t) {
		for _, part := range []float64{0.1, 0.3, 0.6} {
			ours := heldOutError(pairs, part, pairCovariance)
			for name, kernel := range models {
				other := heldOutError(pairs, part, kernel)
				t.Logf("%s, %.0f %% trained: %s errs by %.4f", gpu, 100*part, name, other)
				if ours > 1.05*other {
					t.Errorf("%s, %.0f %% trained: ours errs by %.4f, %s by %.4f", gpu, 100*part, ours, name, other)
				}
			}
		}
	}
}
