package curve_test

import (
	"errors"
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// sampled runs a job of known speed on the configurations that NextSample chooses, starting with one worker and one
// server.
func sampled(kind train.SpeedKind, truth train.Servers, bounds curve.SampleBounds) []curve.StepSample {
	var all []curve.StepSample
	next := train.Config{Workers: 1, Servers: 1, Nodes: 1}
	for ok := true; ok; {
		next.LocalBatch = 32
		all = append(all, curve.StepSample{Config: next, StepSeconds: truth.StepSeconds(next, kind == train.SpeedServersAsync)})
		next, ok = curve.NextSample(kind, curve.Fold(all), bounds)
	}
	return all
}

// worst is the largest relative error of a fit over all configurations up to n by n.
func worst(s train.Speed, truth train.Servers, n int) float64 {
	largest := 0.0
	for w := 1; w <= n; w++ {
		for p := 1; p <= n; p++ {
			c := train.Config{Workers: w, Servers: p, Nodes: 1, LocalBatch: 32}
			largest = math.Max(largest, math.Abs(s.FittedSeconds(c)/truth.StepSeconds(c, s.Kind == train.SpeedServersAsync)-1))
		}
	}
	return largest
}

func TestSamplesSeparateAllTerms(t *testing.T) {
	truths := map[string]train.Servers{
		"bound by servers": {PerSample: 0.01, Fixed: 0.05, PerShare: 0.3, PerWorker: 0.01, PerServer: 0.005},
		"bound by workers": {PerSample: 0.002, Fixed: 0.1, PerShare: 0.02, PerWorker: 0.08, PerServer: 0.03},
	}
	for name, truth := range truths {
		for _, kind := range []train.SpeedKind{train.SpeedServersSync, train.SpeedServersAsync} {
			this := truth
			if kind == train.SpeedServersAsync {
				this.PerSample = 0
			}
			samples := sampled(kind, this, curve.SampleBounds{MinWorkers: 1, MaxWorkers: 8, MaxServers: 8})
			if len(samples) > curve.MaxSampleRuns {
				t.Fatalf("%s %s: %d runs", name, kind, len(samples))
			}
			// All terms must be separated before the bound, with as few samples as the form needs and one to spare.
			fit, err := curve.FitSpeedPS(kind, samples[:6])
			if err != nil {
				t.Fatal(err)
			}
			if e := worst(fit, this, 8); e > 0.05 {
				t.Errorf("%s %s: six samples %+v leave an error of %.0f %%", name, kind, samples[:6], 100*e)
			}
			// The same number on the diagonal does not suffice.
			var diagonal []curve.StepSample
			for n := 1; n <= 6; n++ {
				c := train.Config{Workers: n, Servers: n, Nodes: 1, LocalBatch: 32}
				diagonal = append(diagonal,
					curve.StepSample{Config: c, StepSeconds: this.StepSeconds(c, kind == train.SpeedServersAsync)})
			}
			if fit, err = curve.FitSpeedPS(kind, diagonal); err != nil {
				t.Fatal(err)
			}
			if e := worst(fit, this, 8); e < 0.3 {
				t.Errorf("%s %s: the diagonal leaves only %.0f %%", name, kind, 100*e)
			}
		}
	}
}

func TestSamplesStayWithinTheBounds(t *testing.T) {
	for _, n := range [][3]int{{1, 1, 1}, {2, 3, 1}, {1, 6, 2}, {4, 4, 4}, {1, 16, 0}} {
		b := curve.SampleBounds{MinWorkers: n[0], MaxWorkers: n[1], MaxServers: n[2]}
		for _, kind := range []train.SpeedKind{train.SpeedAllReduce, train.SpeedServersSync, train.SpeedServersAsync} {
			var seen []train.Measured
			for {
				c, ok := curve.NextSample(kind, seen, b)
				if !ok {
					break
				}
				servers := kind != train.SpeedAllReduce
				if c.Workers < b.MinWorkers || c.Workers > b.MaxWorkers || servers != (c.Servers > 0) || c.Servers > max(b.MaxServers, 1) {
					t.Fatalf("%s %v: samples %+v", kind, n, c)
				}
				for _, m := range seen {
					if m.Config == c {
						t.Fatalf("%s %v: samples %+v twice", kind, n, c)
					}
				}
				if seen = append(seen, train.Measured{Config: c, StepSeconds: 1}); len(seen) > curve.MaxSampleRuns {
					t.Fatalf("%s %v: more than %d runs", kind, n, curve.MaxSampleRuns)
				}
			}
			if len(seen) == 0 {
				t.Errorf("%s %v: nothing is sampled", kind, b)
			}
		}
	}
	if _, err := curve.FitSpeedPS(train.SpeedServersSync, nil); !errors.Is(err, curve.ErrTooFew) {
		t.Error(err)
	}
}

func TestSizesOfAllReduceAreSampledFarApart(t *testing.T) {
	seen := []train.Measured{{Config: train.Config{Workers: 8, Nodes: 1, LocalBatch: 4}, StepSeconds: 1}}
	var order []int
	for {
		c, ok := curve.NextSample(train.SpeedAllReduce, seen, curve.SampleBounds{MinWorkers: 1, MaxWorkers: 8})
		if !ok {
			break
		}
		order = append(order, c.Workers)
		seen = append(seen, train.Measured{Config: c, StepSeconds: 1})
	}
	if len(order) != 3 || order[0] > 2 || order[1] > 2 {
		t.Errorf("after 8 workers come %v: want 1 and 2, whose terms nothing else tells, and one more", order)
	}
}
