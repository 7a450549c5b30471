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

// measuredPairs returns the rates of two jobs on one GPU, by type of GPU, without pairs that do not fit.
func measuredPairs(t *testing.T) map[string][]InterferenceSample {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA names no folder with the published traces")
	}
	data, err := os.Open(filepath.Join(root, "gavel/derived/colocation-1gpu.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	rows, err := csv.NewReader(data).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[string][]InterferenceSample{}
	for _, row := range rows[1:] {
		number := func(column int) float64 {
			if row[column] == "" {
				return 0
			}
			x, err := strconv.ParseFloat(row[column], 64)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		pair := KindPair{Kind{Family: row[1], LocalBatch: int(number(2))}, Kind{Family: row[3], LocalBatch: int(number(4))}}
		if rate := number(7) / number(5); rate > 0 {
			pairs[row[0]] = append(pairs[row[0]], InterferenceSample{KindPair: pair, Rate: rate})
		}
	}
	return pairs
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
