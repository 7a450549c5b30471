package curve

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// history is a job that reports everything: n epochs, the last third of them on four workers.
func history(n int) History {
	h := History{Job: "resnet", Kind: train.SpeedAllReduce}
	truth := train.AllReduce{ComputeFixed: 0.05, ComputePerSample: 0.002, LocalBase: 0.02, LocalPerWorker: 0.005, CrossBase: 0.2, CrossPerWorker: 0.01, Overlap: 2}
	losses := trace(train.Hyperbola{B0: 0.3, B1: 1, B2: 0.1}, 2.3, n, 0.01, 11)
	for i := range n {
		config := cfg(1, 1, 128)
		if i >= 2*n/3 {
			config = cfg(4, 1, 128)
		}
		step := truth.StepSeconds(config)
		h.Epochs = append(h.Epochs, EpochRecord{
			Epoch: i + 1, Loss: losses[i].Loss, Seconds: 20 + 400*step/float64(config.Workers), Config: config,
		})
		h.Steps = append(h.Steps, StepSample{Config: config, StepSeconds: step, Weight: 400})
	}
	h.Steps = append(h.Steps, sample(grid(), truth.StepSeconds, 0.02, 5)...)
	h.Memory = []MemoryPoint{{64, 3e9}, {128, 5e9}, {128, 4.9e9}}
	return h
}

func TestRefitLearnsEveryPart(t *testing.T) {
	m := Refit(history(60))
	if m.Job != "resnet" || m.EpochsSeen != 60 || m.StepsSeen < 60*400 {
		t.Errorf("job %q, %d epochs, %v steps", m.Job, m.EpochsSeen, m.StepsSeen)
	}
	if m.Convergence == nil || math.Abs(m.Convergence.Loss(60)/(2.3*(1/19.0+0.1))-1) > 0.05 {
		t.Errorf("convergence %+v", m.Convergence)
	}
	if m.Memory == nil || m.Memory.Bytes(256) < 8.9e9 || m.Memory.Bytes(256) > 9.1e9 {
		t.Errorf("memory %+v, want 1 GB + 31.25 MB a sample", m.Memory)
	}
	if m.EpochConfig != cfg(4, 1, 128) {
		t.Errorf("latest configuration %+v", m.EpochConfig)
	}
	steps := func(c train.Config) float64 { return 400 / float64(c.Workers) }
	on4, _ := m.RemainingSeconds(cfg(4, 1, 128), 60, train.StopRule{MaxEpochs: 100}, steps)
	on1, _ := m.RemainingSeconds(cfg(1, 1, 128), 60, train.StopRule{MaxEpochs: 100}, steps)
	if want := 40 * (20 + 400*0.306); math.Abs(on1.Expected/want-1) > 0.03 {
		t.Errorf("40 epochs on one worker: %+v, want about %v s", on1, want)
	}
	if !(on4.Expected < on1.Expected && on4.Low < on4.Expected && on4.Expected < on4.High) {
		t.Errorf("on four workers %+v, on one %+v", on4, on1)
	}
}

func TestRefitWithLittleEvidence(t *testing.T) {
	if m := Refit(History{Job: "new"}); m.Convergence != nil || m.Memory != nil || m.Efficiency != nil || m.Speed.Known() {
		t.Errorf("nothing was seen, yet %+v", m)
	}
	// One epoch with its number of steps counts as a first step time.
	m := Refit(History{Epochs: []EpochRecord{{Epoch: 1, Loss: 2, Seconds: 50, Config: cfg(2, 1, 32), Steps: 100}}})
	if got := m.Speed.StepSeconds(cfg(2, 1, 32)); math.Abs(got-0.5) > 1e-12 || m.EpochSeconds != 50 {
		t.Errorf("step %v s, epoch %v s, want 0.5 and 50", got, m.EpochSeconds)
	}
	for _, kind := range []train.SpeedKind{train.SpeedServersSync, train.SpeedServersAsync} {
		seen := train.Config{Workers: 2, Servers: 1, Nodes: 2, LocalBatch: 32}
		s := Refit(History{Kind: kind, Steps: []StepSample{{Config: seen, StepSeconds: 0.5}}}).Speed
		more := train.Config{Workers: 4, Servers: 2, Nodes: 3, LocalBatch: 32}
		perSecond := func(c train.Config) float64 {
			if kind == train.SpeedServersAsync {
				return s.StepsPerSecond(c)
			}
			return s.StepsPerSecond(c) * float64(c.Workers)
		}
		if math.Abs(s.FittedSeconds(seen)/0.5-1) > 0.01 || perSecond(more) <= perSecond(seen) || perSecond(more) > 2*perSecond(seen) {
			t.Errorf("%s from one configuration: %v samples/s there, %v on twice the workers and servers", kind,
				perSecond(seen), perSecond(more))
		}
	}
}

// TestRefitOfFoldedStepsIsTheSame allows a caller to keep a history that does not grow.
func TestRefitOfFoldedStepsIsTheSame(t *testing.T) {
	whole := history(30)
	folded := whole
	folded.Steps = nil
	for _, m := range Fold(whole.Steps) {
		folded.Steps = append(folded.Steps, StepSample(m))
	}
	a, b := Refit(whole), Refit(folded)
	if a.StepsSeen != b.StepsSeen || a.Speed.AllReduce != b.Speed.AllReduce {
		t.Errorf("folded history learns %+v, whole %+v", b.Speed.AllReduce, a.Speed.AllReduce)
	}
}

func TestSameHistorySameModel(t *testing.T) {
	first, err := json.Marshal(Refit(history(40)))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, _ := json.Marshal(Refit(history(40))); string(again) != string(first) {
			t.Fatalf("models differ:\n%s\n%s", first, again)
		}
	}
}

func TestRefitLeavesItsInputAlone(t *testing.T) {
	h := history(20)
	before, _ := json.Marshal(h)
	Refit(h)
	if after, _ := json.Marshal(h); string(after) != string(before) {
		t.Error("the history changed")
	}
}

func TestFitMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64Range(0, 1e10).Draw(t, "fixed"), rapid.Float64Range(1e4, 1e9).Draw(t, "per sample")
		var points []MemoryPoint
		for _, batch := range rapid.SliceOfNDistinct(rapid.IntRange(1, 512), 2, 8, rapid.ID[int]).Draw(t, "batches") {
			points = append(points, MemoryPoint{batch, a + b*float64(batch)}, MemoryPoint{batch, a})
		}
		fit, err := FitMemory(points)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range points {
			want := a + b*float64(p.LocalBatch)
			if got := float64(fit.Bytes(p.LocalBatch)); math.Abs(got-want) > 1e-4*want+2 {
				t.Fatalf("batch %d: %v bytes, want %v", p.LocalBatch, got, want)
			}
		}
	})
	one, err := FitMemory([]MemoryPoint{{32, 8e9}, {0, 1}, {4, math.Inf(1)}})
	if err != nil || one.Bytes(32) != 8e9 || one.Bytes(64) != 14e9 || one.Points != 1 {
		t.Errorf("one batch: %+v (%v), want 8e9 bytes of which a quarter fixed", one, err)
	}
	if _, err := FitMemory(nil); err == nil {
		t.Error("no point, no error")
	}
}

func TestCorrectEstimate(t *testing.T) {
	nan := math.NaN()
	cases := []struct {
		name                         string
		declared, elapsed, remaining float64
		epochs                       int
		want                         Estimate
		lost                         int
	}{
		{"on time", 1000, 500, 500, 5, Estimate{1000, 1, false}, 0},
		{"shorter", 1000, 100, 100, 1, Estimate{200, 0.2, false}, 0},
		{"within tolerance", 1000, 700, 500, 5, Estimate{1200, 1.2, false}, 0},
		{"just over", 1000, 750, 500, 5, Estimate{1250, 1.25, true}, 1},
		{"double", 1000, 1500, 500, 5, Estimate{2000, 2, true}, 2},
		{"almost four times", 1000, 3000, 999, 5, Estimate{3999, 3.999, true}, 2},
		{"four times", 1000, 3000, 1000, 5, Estimate{4000, 4, true}, 3},
		{"never more than ten", 1, 1e9, 1e9, 5, Estimate{2e9, 2e9, true}, 10},
		{"no epoch yet: declared stands", 1000, 100, 1e6, 0, Estimate{1000, 1, false}, 0},
		{"no epoch yet, but late", 1000, 2500, 1e6, 0, Estimate{2500, 2.5, true}, 2},
		{"nothing declared", 0, 500, 500, 5, Estimate{1000, 1, false}, 0},
		{"no numbers", nan, math.Inf(1), -5, 5, Estimate{0, 1, false}, 0},
		{"huge", 1e-300, math.MaxFloat64, math.MaxFloat64, 5, Estimate{math.MaxFloat64 / 2, math.MaxFloat64, true}, 10},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := CorrectEstimate(tc.declared, tc.elapsed,
				train.Span{Expected: tc.remaining, Low: tc.remaining, High: tc.remaining}, tc.epochs)
			if got != tc.want || got.LostSteps() != tc.lost {
				t.Errorf("%+v loses %d steps, want %+v and %d", got, got.LostSteps(), tc.want, tc.lost)
			}
		})
	}
}

// TestOverrunIsReportedWhenCertain: a prediction that may well be too long is no overrun.
func TestOverrunIsReportedWhenCertain(t *testing.T) {
	unsure := CorrectEstimate(1000, 100, train.Span{Expected: 1400, Low: 1000, High: 2000}, 1)
	if unsure.Overrun || unsure.LostSteps() != 0 || unsure.Seconds != 1500 || unsure.Ratio != 1.5 {
		t.Errorf("1,100 s at least of 1,000: %+v", unsure)
	}
	if sure := CorrectEstimate(1000, 100, train.Span{Expected: 1400, Low: 1300, High: 2000}, 1); !sure.Overrun || sure.LostSteps() != 1 {
		t.Errorf("1,400 s at least of 1,000: %+v", sure)
	}
}

// FuzzRefit feeds arbitrary numbers: it expects no panic, and a model that can be encoded and predicts in order.
func FuzzRefit(f *testing.F) {
	word := func(values ...float64) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	}
	f.Add(word(), uint8(0))
	f.Add(word(3, 2, 1, 0.5, 0.4, 0.3, 0.25), uint8(0))
	f.Add(word(1, 1, 1, 1, 1, 1, 1, 1, 1), uint8(1))
	f.Add(word(math.NaN(), math.Inf(1), -1, 0, 1e300, 1e-300, math.MaxFloat64, math.Copysign(0, -1)), uint8(2))
	f.Add(word(1e29, 1e-29, 1e29, 1e-29, 1e29, 1e-29, 1e29, 1e-29, 1e29, 1e-29, 1e29, 1e-29), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		kinds := []train.SpeedKind{train.SpeedAllReduce, train.SpeedServersSync, train.SpeedServersAsync}
		h := History{Kind: kinds[int(kind)%len(kinds)]}
		for i := 0; i < 64 && len(data) >= 8; i++ {
			v := math.Float64frombits(binary.LittleEndian.Uint64(data))
			data = data[8:]
			shape := int(math.Float64bits(v) % 97)
			config := train.Config{Workers: shape % 9, Servers: shape % 5, Nodes: shape % 4, LocalBatch: shape % 3 * 16}
			h.Epochs = append(h.Epochs,
				EpochRecord{Epoch: i - 1, Loss: v, Seconds: v, Config: config, Steps: shape})
			h.Steps = append(h.Steps, StepSample{Config: config, StepSeconds: v, Weight: float64(shape)})
			h.Memory = append(h.Memory, MemoryPoint{LocalBatch: shape - 1, Bytes: v})
		}
		m := Refit(h)
		if _, err := json.Marshal(m); err != nil {
			t.Fatalf("model %+v: %v", m, err)
		}
		for _, c := range []train.Config{{}, cfg(1, 1, 32), cfg(8, 2, 0), {Workers: 4, Servers: 4, Nodes: 4, LocalBatch: 1}} {
			left, _ := m.RemainingSeconds(c, 1, train.StopRule{MaxEpochs: 50, MinDecrease: 0.01, Patience: 3}, func(train.Config) float64 { return 100 })
			ordered := 0 <= left.Low && left.Low <= left.Expected && left.Expected <= left.High && !math.IsInf(left.High, 1)
			if e := m.Speed.RelativeError(c); !ordered || !(e >= 0 && e <= 1) || m.Speed.StepSeconds(c) < 0 {
				t.Fatalf("remaining %+v, relative error %v, step %v s from %+v", left, e, m.Speed.StepSeconds(c), m)
			}
		}
		if m.Convergence != nil {
			if l := m.Convergence.Loss(10); !(l >= 0) || math.IsInf(l, 1) {
				t.Fatalf("loss %v from %+v", l, m.Convergence)
			}
		}
	})
}

func BenchmarkRefit200Epochs(b *testing.B) {
	h := history(200)
	for b.Loop() {
		Refit(h)
	}
}

func BenchmarkRefit200EpochsOneConfiguration(b *testing.B) {
	h := history(200)
	h.Steps = slices.DeleteFunc(h.Steps, func(s StepSample) bool { return s.Config != cfg(1, 1, 128) })
	for b.Loop() {
		Refit(h)
	}
}

// TestSpreadOfEpochs: epochs of different lengths make the remaining time less certain, many of equal length more
// certain.
func TestSpreadOfEpochs(t *testing.T) {
	spread := func(seconds ...float64) float64 {
		h := History{Kind: train.SpeedAllReduce}
		for i, s := range seconds {
			h.Epochs = append(h.Epochs, EpochRecord{Epoch: i + 1, Seconds: s, Config: cfg(1, 1, 32), Steps: 70})
		}
		m := Refit(h)
		if m.EpochSteps != 70 {
			t.Fatalf("%v steps in an epoch, want 70", m.EpochSteps)
		}
		return m.EpochSpread
	}
	one, few, many, drifting := spread(50), spread(50, 50, 50), spread(slices.Repeat([]float64{50}, 40)...), spread(80, 60, 50)
	if !(0 < many && many < few && few < one && few < drifting && drifting <= 1) {
		t.Errorf("spread of one epoch %v, three %v, forty %v, three that differ %v", one, few, many, drifting)
	}
}
