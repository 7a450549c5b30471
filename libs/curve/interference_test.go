package curve

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// drawKind draws one of a few kinds, so that pairs recur.
func drawKind(t *rapid.T, label string) Kind {
	return Kind{
		Family:     rapid.SampledFrom([]string{"resnet", "bert", "ncf"}).Draw(t, label+" family"),
		LocalBatch: rapid.SampledFrom([]int{0, 1, 16, 64, 4096}).Draw(t, label+" batch"),
	}
}

// No measurement makes a prediction less certain, and the order of measurements does not change the belief.
func TestInterferenceLearns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type meeting struct {
			a, b         Kind
			rateA, rateB float64
		}
		asked := KindPair{drawKind(t, "self"), drawKind(t, "beside")}
		met := map[KindPair]bool{}
		var measured []meeting
		forth, back := NewInterference("", nil), NewInterference("", nil)
		_, before := forth.Rate(asked.Self, asked.Beside)
		for range rapid.IntRange(1, 12).Draw(t, "meetings") {
			one := meeting{
				drawKind(t, "a"), drawKind(t, "b"), rapid.Float64Range(0.05, 1).Draw(t, "rate a"), rapid.Float64Range(0.05, 1).Draw(t, "rate b"),
			}
			if one.a == one.b || met[KindPair{one.a, one.b}] || met[KindPair{one.b, one.a}] {
				continue
			}
			met[KindPair{one.a, one.b}] = true
			measured = append(measured, one)
			forth.Shared(one.a, one.b, one.rateA, one.rateB)
			_, after := forth.Rate(asked.Self, asked.Beside)
			if after > before+1e-9 {
				t.Fatalf("%v beside %v: deviation %g after %d samples, %g before", asked.Self, asked.Beside, after,
					len(measured), before)
			}
			before = after
		}
		for _, one := range slices.Backward(measured) {
			back.Shared(one.b, one.a, one.rateB, one.rateA)
		}
		x, dx := forth.Rate(asked.Self, asked.Beside)
		y, dy := back.Rate(asked.Self, asked.Beside)
		if math.Abs(x-y) > 1e-6 || math.Abs(dx-dy) > 1e-6 {
			t.Fatalf("%g±%g in one order, %g±%g in the other", x, dx, y, dy)
		}
	})
}

// A stored and reloaded interference predicts the same, including repeated measurements.
func TestInterferenceSurvivesRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewInterference("driver 1", nil)
		for range rapid.IntRange(0, 20).Draw(t, "meetings") {
			a, b := drawKind(t, "a"), drawKind(t, "b")
			if rapid.Bool().Draw(t, "fits") {
				m.Shared(a, b, rapid.Float64Range(0.05, 1).Draw(t, "rate a"), rapid.Float64Range(0.05, 1).Draw(t, "rate b"))
			} else {
				m.OutOfMemory(a, b)
			}
		}
		data, err := json.Marshal(m.Samples())
		if err != nil {
			t.Fatal(err)
		}
		var known []InterferenceSample
		if err := json.Unmarshal(data, &known); err != nil {
			t.Fatal(err)
		}
		again := NewInterference("driver 1", known)
		a, b := drawKind(t, "self"), drawKind(t, "beside")
		x, dx := m.Rate(a, b)
		y, dy := again.Rate(a, b)
		if math.Abs(x-y) > 1e-6 || math.Abs(dx-dy) > 1e-6 || math.Abs(m.Fits(a, b)-again.Fits(a, b)) > 1e-6 {
			t.Fatalf("%g±%g, fits %g before; %g±%g, fits %g after", x, dx, m.Fits(a, b), y, dy, again.Fits(a, b))
		}
	})
}

func TestRepeatedMeasurementsAverage(t *testing.T) {
	a, b := Kind{Family: "resnet", LocalBatch: 32}, Kind{Family: "bert", LocalBatch: 8}
	m := NewInterference("", nil)
	for _, rate := range []float64{0.5, 0.7, 0.6} {
		m.Shared(a, b, rate, 0.9)
	}
	known := m.Samples()
	if len(known) != 2 || known[0].Count != 3 || math.Abs(known[0].Rate-0.6) > 1e-9 || math.Abs(known[1].Rate-0.9) > 1e-9 {
		t.Fatalf("encounters %+v", known)
	}
	// The mean follows a change within a few dozen measurements, however many came before.
	for range 1000 {
		m.Shared(a, b, 0.6, 0.9)
	}
	for range 3 * maxCount {
		m.Shared(a, b, 0.3, 0.9)
	}
	if rate, _ := m.Rate(a, b); math.Abs(rate-0.3) > 0.03 {
		t.Errorf("rate %g long after it changed to 0.3", rate)
	}
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		m.Shared(a, b, rate, 0.5)
	}
	if rate, _ := m.Rate(a, b); math.Abs(rate-0.3) > 0.03 {
		t.Errorf("rate %g after measurements that are none", rate)
	}
}

func TestInterferenceAges(t *testing.T) {
	a, b := Kind{Family: "resnet", LocalBatch: 32}, Kind{Family: "bert", LocalBatch: 8}
	old := NewInterference("driver 1", nil)
	old.Shared(a, b, 0.9, 0.9)
	m := NewInterference("driver 2", old.Samples())
	stale, unsure := m.Rate(a, b)
	_, sure := old.Rate(a, b)
	if !(stale > 0.65 && stale < 0.9 && unsure > 2*sure) {
		t.Errorf("%g±%g with another driver, want a hint less sure than ±%g", stale, unsure, sure)
	}
	m.Shared(a, b, 0.4, 0.4)
	if rate, _ := m.Rate(a, b); math.Abs(rate-0.4) > 0.02 {
		t.Errorf("%g after a measurement of 0.4 with the new driver", rate)
	}
	if known := m.Samples(); len(known) != 2 || known[0].Count != 1 || known[0].Under != "driver 2" {
		t.Errorf("encounters %+v", known)
	}
}

func TestInterferenceForgetsTheOldest(t *testing.T) {
	m := NewInterference("", nil)
	first := Kind{Family: "first", LocalBatch: 1}
	for batch := range maxSamples/2 + 1 {
		m.record(InterferenceSample{KindPair: KindPair{first, Kind{Family: "second", LocalBatch: batch}}, Rate: 0.5, Count: 1})
		m.record(InterferenceSample{KindPair: KindPair{Kind{Family: "second", LocalBatch: batch}, first}, Rate: 0.5, Count: 1})
	}
	known := m.Samples()
	if len(known) > maxSamples || known[0].Beside.LocalBatch == 0 || known[len(known)-1].Self.LocalBatch != maxSamples/2 {
		t.Errorf("%d encounters from %+v to %+v", len(known), known[0], known[len(known)-1])
	}
}

// Samples that are measured repeatedly are not forgotten, however old, nor are pairs that do not fit.
func TestInterferenceKeepsWhatIsMet(t *testing.T) {
	m := NewInterference("", nil)
	a, b, large, late := Kind{Family: "a"}, Kind{Family: "b"}, Kind{Family: "large"}, Kind{Family: "late"}
	m.OutOfMemory(a, large)
	for n := range maxSamples * 3 / 2 {
		m.Measured(a, []Kind{b}, 0.5)
		m.Measured(Kind{Family: "others", LocalBatch: n}, []Kind{b}, 0.5)
	}
	m.OutOfMemory(a, late)
	if count := m.Measurements(a, []Kind{b}); count != maxCount {
		t.Errorf("%d measurements of a pair measured repeatedly, want %d", count, maxCount)
	}
	if m.Fits(a, large) != 0 || m.Fits(late, a) != 0 {
		t.Errorf("the two that did not fit at first fit by %g, those of now by %g", m.Fits(a, large), m.Fits(late, a))
	}
	if n := len(m.Samples()); n > maxSamples {
		t.Errorf("%d are remembered", n)
	}
	again := NewInterference("", m.Samples())
	if x, y := again.Measurements(a, []Kind{b}), again.Fits(large, a); x != maxCount || y != 0 {
		t.Errorf("after a restart %d measurements, fits by %g", x, y)
	}
}

// Too many pairs that do not fit are forgotten as well, the oldest first.
func TestInterferenceForgetsWhoDoesNotFitLast(t *testing.T) {
	m := NewInterference("", nil)
	for n := range maxSamples/2 + 1 {
		m.OutOfMemory(Kind{Family: "a"}, Kind{Family: "b", LocalBatch: n})
	}
	if known := m.Samples(); len(known) > maxSamples || known[0].Beside.LocalBatch == 0 || known[len(known)-1].Self.LocalBatch != maxSamples/2 {
		t.Errorf("%d encounters from %+v to %+v", len(known), known[0], known[len(known)-1])
	}
}

func TestFits(t *testing.T) {
	large, small, other := Kind{Family: "bert", LocalBatch: 64}, Kind{Family: "bert", LocalBatch: 8}, Kind{Family: "resnet", LocalBatch: 32}
	m := NewInterference("", nil)
	if fits := m.Fits(large, other); fits < 0.9 {
		t.Errorf("fits %g before anything is known", fits)
	}
	m.OutOfMemory(large, other)
	for _, pair := range [][2]Kind{{large, other}, {other, large}, {Kind{Family: "bert", LocalBatch: 128}, other}, {Kind{Family: "resnet", LocalBatch: 64}, large}} {
		if fits := m.Fits(pair[0], pair[1]); fits != 0 {
			t.Errorf("%v beside %v fits %g, though %v and %v did not", pair[0], pair[1], fits, large, other)
		}
	}
	if near, far := m.Fits(Kind{Family: "bert", LocalBatch: 32}, other), m.Fits(small, other); !(0 < near && near < far && far < 0.95) {
		t.Errorf("fits %g with half the batch, %g with an eighth", near, far)
	}
	m.Shared(small, other, 0.5, 0.5)
	if fits := m.Fits(Kind{Family: "bert", LocalBatch: 4}, Kind{Family: "resnet", LocalBatch: 16}); fits != 1 {
		t.Errorf("fits %g though the two have shared with larger batches", fits)
	}
}

func TestRateAmong(t *testing.T) {
	a, b, c := Kind{Family: "a", LocalBatch: 1}, Kind{Family: "b", LocalBatch: 1}, Kind{Family: "c", LocalBatch: 1}
	m := NewInterference("", nil)
	for range 3 {
		m.Shared(a, b, 0.5, 0.5)
		m.Shared(a, c, 0.5, 0.5)
	}
	if rate, deviation := m.RateAmong(a, nil); rate != 1 || deviation != 0 {
		t.Errorf("%g±%g alone", rate, deviation)
	}
	pair, pairDeviation := m.Rate(a, b)
	if rate, deviation := m.RateAmong(a, []Kind{b}); rate != pair || deviation != pairDeviation {
		t.Errorf("%g±%g beside one, want %g±%g", rate, deviation, pair, pairDeviation)
	}
	// A job whose steps take twice as long beside either of two others takes three times as long beside both; in the
	// worst case nothing is left.
	if rate, deviation := m.RateAmong(a, []Kind{b, c}); math.Abs(rate-1./3) > 0.02 || math.Abs(rate-deviation) > 0.02 {
		t.Errorf("%g±%g beside two, want a third and nothing at worst", rate, deviation)
	}
}

func TestKindOf(t *testing.T) {
	job := train.Spec{Tenant: "lab", Image: "resnet:1", BatchSize: 32}
	larger, newer := job, job
	larger.BatchSize, newer.Image = 64, "resnet:2"
	if a, b := KindOf(job), KindOf(larger); a.Family != b.Family || a.LocalBatch != 32 || b.LocalBatch != 64 {
		t.Errorf("%+v and %+v, want one family and two batches", a, b)
	}
	if a, b := KindOf(job), KindOf(newer); a.Family == b.Family {
		t.Errorf("two images are one family %q", a.Family)
	}
}

// A decision starts from all stored samples of 26 kinds, as many as were published, and predicts each pair.
func BenchmarkInterference(b *testing.B) {
	library := NewInterference("", nil)
	for i := range 26 {
		for k := range i + 1 {
			library.Shared(Kind{Family: string(rune('a' + i/5)), LocalBatch: 1 << (i % 5)},
				Kind{Family: string(rune('a' + k/5)), LocalBatch: 1 << (k % 5)}, 0.5, 0.6)
		}
	}
	known := library.Samples()
	b.ReportAllocs()
	for b.Loop() {
		m := NewInterference("", known)
		for _, e := range known {
			m.Rate(e.Self, e.Beside)
		}
	}
}
