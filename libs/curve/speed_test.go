package curve

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func cfg(workers, nodes, batch int) train.Config {
	return train.Config{Workers: workers, Nodes: nodes, LocalBatch: batch}
}

// grid returns configurations that separate all coefficients.
func grid() []train.Config {
	var all []train.Config
	for _, b := range []int{16, 32, 64, 128} {
		for _, w := range []int{1, 2, 3, 4} {
			all = append(all, cfg(w, 1, b))
		}
		for _, n := range []int{2, 3, 4} {
			all = append(all, cfg(n, n, b), cfg(2*n, n, b), cfg(4*n, n, b))
		}
	}
	return all
}

func sample(configs []train.Config, step func(train.Config) float64, noise float64, seed uint64) []StepSample {
	r := rand.New(rand.NewPCG(seed, 3))
	samples := make([]StepSample, 0, len(configs))
	for _, c := range configs {
		samples = append(samples, StepSample{Config: c, StepSeconds: step(c) * (1 + noise*r.NormFloat64()), Weight: 10})
	}
	return samples
}

func TestFitStepTimePredictsUnseenConfigurations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := train.AllReduce{
			ComputeFixed: rapid.Float64Range(0.01, 0.2).Draw(t, "fixed"), ComputePerSample: rapid.Float64Range(0.0005, 0.005).Draw(t, "sample"),
			LocalBase: rapid.Float64Range(0.005, 0.1).Draw(t, "local"), LocalPerWorker: rapid.Float64Range(0.001, 0.02).Draw(t, "local worker"),
			CrossBase: rapid.Float64Range(0.05, 0.4).Draw(t, "cross"), CrossPerWorker: rapid.Float64Range(0.001, 0.03).Draw(t, "cross worker"),
			CrossPerPeer: rapid.Float64Range(0, 0.1).Draw(t, "peer"), Overlap: rapid.SampledFrom([]float64{1, 1.5, 2, 3, 5, 10}).Draw(t, "overlap"),
		}
		fit, err := FitStepTime(sample(grid(), truth.StepSeconds, 0.01, rapid.Uint64().Draw(t, "seed")), DevicePrior{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []train.Config{cfg(1, 1, 48), cfg(3, 1, 96), cfg(6, 3, 48), cfg(16, 4, 96), cfg(20, 5, 32)} {
			if got, want := fit.StepSeconds(c), truth.StepSeconds(c); math.Abs(got/want-1) > 0.2 {
				t.Fatalf("%+v: %v s, want %v (fit %+v)", c, got, want, fit.AllReduce)
			}
		}
		if fit.FitError > 0.06 {
			t.Fatalf("fit error %v on 1 %% noise", fit.FitError)
		}
	})
}

func TestFitStepTimeFromOneConfiguration(t *testing.T) {
	for _, seen := range []train.Config{cfg(1, 1, 32), cfg(4, 1, 32), cfg(8, 2, 32), cfg(1, 1, 0)} {
		fit, err := FitStepTime([]StepSample{{Config: seen, StepSeconds: 0.4, Weight: 100}}, DevicePrior{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fit.FittedSeconds(seen); math.Abs(got/0.4-1) > 0.01 {
			t.Errorf("seen %+v: fit says %v s, want 0.4", seen, got)
		}
		one, two, four, cross := fit.FittedSeconds(cfg(1, 1, 0)), fit.FittedSeconds(cfg(2, 1, 0)), fit.FittedSeconds(cfg(4, 1, 0)), fit.FittedSeconds(cfg(4,
			4, 0))
		if !(0 < one && one < two && two < four && four < cross && cross < 4*one) {
			t.Errorf("seen %+v: %v, %v, %v, %v s: more workers take longer per step, but still pay", seen, one, two, four, cross)
		}
		half := fit.FittedSeconds(cfg(1, 1, max(fit.TypicalBatch/2, 1)))
		if fit.TypicalBatch > 1 && !(half < one && half > one/2) {
			t.Errorf("seen %+v: half the batch takes %v of %v s", seen, half, one)
		}
	}
	if _, err := FitStepTime(nil, DevicePrior{}); !errors.Is(err, ErrTooFew) {
		t.Errorf("no sample: error %v", err)
	}
}

func TestFoldTakesWeightedMeansInAFixedOrder(t *testing.T) {
	a, b := cfg(1, 1, 8), cfg(2, 1, 8)
	got := Fold([]StepSample{
		{b, 9, 1, 0}, {a, 1, 3, 0}, {a, 5, 1, 0}, {a, math.NaN(), 1, 0}, {a, -1, 1, 0}, {a, 2, -1, 0}, {a, 2, 0, 0}, {train.Config{}, 1, 1, 0},
	})
	want := []train.Measured{{Config: a, StepSeconds: 2, Weight: 5}, {Config: b, StepSeconds: 9, Weight: 1}}
	if len(got) != len(want) {
		t.Fatalf("folded to %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i].Config != want[i].Config || math.Abs(got[i].StepSeconds-want[i].StepSeconds) > 1e-12 || got[i].Weight != want[i].Weight {
			t.Errorf("folded to %+v, want %+v", got[i], want[i])
		}
	}
}

func servers(pairs ...[2]int) []train.Config {
	var all []train.Config
	for _, wp := range pairs {
		all = append(all, train.Config{Workers: wp[0], Servers: wp[1], Nodes: 2, LocalBatch: 256 / wp[0]})
	}
	return all
}

func TestFitSpeedPSRecoversCoefficients(t *testing.T) {
	seen := servers([2]int{1, 1}, [2]int{2, 1}, [2]int{4, 1}, [2]int{1, 2}, [2]int{2, 4}, [2]int{4, 4}, [2]int{8, 2}, [2]int{1, 4})
	for _, kind := range []train.SpeedKind{train.SpeedServersSync, train.SpeedServersAsync} {
		rapid.Check(t, func(t *rapid.T) {
			async := kind == train.SpeedServersAsync
			part := rapid.Float64Range(0.01, 1)
			truth := train.Servers{
				PerSample: 0.01 * part.Draw(t, "sample"), Fixed: part.Draw(t, "fixed"), PerShare: part.Draw(t, "share"),
				PerWorker: 0.1 * part.Draw(t, "worker"), PerServer: 0.1 * part.Draw(t, "server"),
			}
			if async {
				truth.PerSample = 0
			}
			step := func(c train.Config) float64 { return truth.StepSeconds(c, async) }
			exact, err := FitSpeedPS(kind, sample(seen, step, 0, 0))
			if err != nil {
				t.Fatal(err)
			}
			got := exact.Servers
			for _, pair := range [][2]float64{
				{got.PerSample * 100, truth.PerSample * 100},
				{got.Fixed, truth.Fixed},
				{got.PerShare, truth.PerShare},
				{got.PerWorker, truth.PerWorker},
				{got.PerServer, truth.PerServer},
			} {
				if math.Abs(pair[0]-pair[1]) > 0.01 {
					t.Fatalf("exact samples: got %+v, want %+v", got, truth)
				}
			}
			noisy, err := FitSpeedPS(kind, sample(seen, step, 0.02, rapid.Uint64().Draw(t, "seed")))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range servers([2]int{3, 2}, [2]int{6, 6}, [2]int{2, 2}, [2]int{8, 4}) {
				if a, b := noisy.StepSeconds(c), step(c); math.Abs(a/b-1) > 0.15 {
					t.Fatalf("%+v: %v s, want %v", c, a, b)
				}
			}
		})
	}
}

func TestFitSpeedPSNeedsItsPoints(t *testing.T) {
	step := func(c train.Config) float64 { return 1 + float64(c.Workers)/float64(c.Servers) }
	seen := servers([2]int{1, 1}, [2]int{2, 1}, [2]int{1, 2}, [2]int{4, 2}, [2]int{4, 4})
	for kind, least := range map[train.SpeedKind]int{train.SpeedServersSync: 5, train.SpeedServersAsync: 4} {
		if _, err := FitSpeedPS(kind, sample(seen[:least-1], step, 0, 0)); !errors.Is(err, ErrTooFew) {
			t.Errorf("%s with %d configurations: error %v, want ErrTooFew", kind, least-1, err)
		}
		repeated := append(sample(seen[:least-1], step, 0, 0), sample(seen[:1], step, 0, 0)...)
		if _, err := FitSpeedPS(kind, repeated); !errors.Is(err, ErrTooFew) {
			t.Errorf("%s: a repeated configuration counts once: error %v", kind, err)
		}
		if _, err := FitSpeedPS(kind, sample(seen[:least], step, 0, 0)); err != nil {
			t.Errorf("%s with %d configurations: %v", kind, least, err)
		}
	}
	if _, err := FitSpeedPS(train.SpeedAllReduce, nil); err == nil || errors.Is(err, ErrTooFew) {
		t.Errorf("all-reduce is no parameter-server form: error %v", err)
	}
}

// TestDiagonalSamplesMislead shows why FitSpeedPS needs samples off the diagonal.
func TestDiagonalSamplesMislead(t *testing.T) {
	truth := train.Servers{PerSample: 0.002, Fixed: 0.05, PerShare: 0.8, PerWorker: 0.01, PerServer: 0.05}
	step := func(c train.Config) float64 { return truth.StepSeconds(c, false) }
	wrong := func(seen []train.Config) float64 {
		fit, err := FitSpeedPS(train.SpeedServersSync, sample(seen, step, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		target := servers([2]int{4, 1})[0]
		return math.Abs(fit.FittedSeconds(target)/step(target) - 1)
	}
	diagonal := wrong(servers([2]int{1, 1}, [2]int{2, 2}, [2]int{3, 3}, [2]int{4, 4}, [2]int{6, 6}))
	off := wrong(servers([2]int{1, 1}, [2]int{2, 1}, [2]int{1, 3}, [2]int{4, 4}, [2]int{6, 2}))
	if off > 0.01 || diagonal < 0.2 {
		t.Errorf("error at 4 workers on 1 server: %.3f off the diagonal, %.3f on it", off, diagonal)
	}
}

func TestShortStepsOnGPUsAreLaunches(t *testing.T) {
	one := train.Config{Workers: 1, Nodes: 1, LocalBatch: 512}
	two := train.Config{Workers: 2, Nodes: 1, LocalBatch: 256}
	predict := func(on train.Device, seconds float64) float64 {
		fit, err := FitStepTime([]StepSample{{Config: one, StepSeconds: seconds}}, PriorOn(on))
		if err != nil {
			t.Fatal(err)
		}
		return fit.StepSeconds(two) / seconds
	}
	gpu, simulated := train.Device{Kind: train.KindGPU}, train.Device{Kind: train.KindGPU, Simulated: true}
	if short := predict(gpu, 0.007); short < 1.1 {
		t.Errorf("half the batch of a step of 7 ms on two GPUs takes %.2f of it, want more than one: launches do not shrink", short)
	}
	for _, c := range []struct {
		on      train.Device
		seconds float64
	}{{gpu, 1}, {simulated, 0.007}, {train.Device{Kind: train.KindCPU}, 0.007}} {
		if rest := predict(c.on, c.seconds); rest > 0.8 {
			t.Errorf("half the batch of a step of %g s on two of %+v takes %.2f of it, want at most 0.8", c.seconds, c.on, rest)
		}
	}
}
