package curve

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Step times become rates in any order: measurements beside others wait until the job was measured alone.
func TestInterferenceRecord(t *testing.T) {
	a, b, c := Kind{Family: "a"}, Kind{Family: "b"}, Kind{Family: "c"}
	m := NewInterferenceRecord("M", "1", nil)
	m.Measured(a, []Kind{b}, 4)
	m.Measured(a, []Kind{b}, 6)
	m.Measured(b, []Kind{a}, 1)
	m.Measured(a, []Kind{b, c}, 8)
	if len(m.Known.Samples()) != 0 || len(m.Open) != 3 {
		t.Fatalf("rates of what was never alone: %+v, open %+v", m.Known.Samples(), m.Open)
	}
	m.Measured(a, nil, 2)
	m.Measured(a, nil, 4)
	m.Measured(a, []Kind{b}, 3)
	if len(m.Open) != 1 || len(m.Alone) != 1 || m.Alone[0].StepSeconds != 3 || m.Alone[0].Count != 2 {
		t.Errorf("open %+v, alone %+v", m.Open, m.Alone)
	}
	want := []InterferenceSample{
		{KindPair: KindPair{a, combinedKind([]Kind{c, b})}, Rate: 0.25, Count: 1, Under: "1"},
		{KindPair: KindPair{a, b}, Rate: 0.7, Count: 2, Under: "1"}, // 2/5 and 3/3
	}
	if d := cmp.Diff(want, m.Known.Samples()); d != "" {
		t.Error(d)
	}
	// A measurement beside all of them together overrides the prediction from pairs, in any order of the names.
	for _, others := range [][]Kind{{b, c}, {c, b}} {
		if rate, _ := m.Known.RateAmong(a, others); rate < 0.2 || rate > 0.35 || m.Known.Measurements(a, others) != 1 {
			t.Errorf("beside %v: %v of its speed, measured %d times", others, rate, m.Known.Measurements(a, others))
		}
		if rate, _ := m.Known.Without(a, others).RateAmong(a, others); rate < 0.35 {
			t.Errorf("predicted beside %v: %v of its speed", others, rate)
		}
	}
	// In another environment all of that is only a hint.
	later := NewInterferenceRecord("M", "2", m)
	hint, unsure := later.Known.Rate(a, b)
	known, sure := m.Known.Rate(a, b)
	if later.Known.Measurements(a, []Kind{b}) != 0 || unsure <= sure || hint == known {
		t.Errorf("%v±%v before, %v±%v as a hint, measured %d times", known, sure, hint, unsure,
			later.Known.Measurements(a, []Kind{b}))
	}
}

// One of several sets of co-runners is blamed only if the others are known to let the job run faster.
func TestInterferenceRecordOnSeveralDevices(t *testing.T) {
	wide, a, b := Kind{Family: "wide"}.On(2, 1), Kind{Family: "a"}, Kind{Family: "b"}
	m := NewInterferenceRecord("M", "1", nil)
	both := [][]Kind{{a}, {b}}
	m.MeasuredOn(wide, both, 4)
	m.MeasuredOn(wide, nil, 1)
	m.MeasuredOn(wide, both, 4)
	if got := m.Known.Samples(); len(got) != 0 || len(m.Open) != 0 {
		t.Fatalf("known are %+v before anybody was measured alone with it", got)
	}
	m.MeasuredOn(wide, [][]Kind{{a}}, 1.25)
	m.MeasuredOn(wide, both, 1.25) // b may do as much harm, or none
	m.MeasuredOn(wide, both, 4)
	for _, c := range []struct {
		other Kind
		rate  float64
	}{{a, 0.8}, {b, 0.25}} {
		i := slices.IndexFunc(m.Known.Samples(), func(e InterferenceSample) bool { return e.Self == wide && e.Beside == c.other })
		if i < 0 || m.Known.Samples()[i].Rate != c.rate || m.Known.Samples()[i].Count != 1 {
			t.Errorf("beside %v: %+v, want %v", c.other, m.Known.Samples(), c.rate)
		}
	}
}

// A stored record without rates gives no hint, and learns like a new one.
func TestInterferenceRecordWithoutRates(t *testing.T) {
	a, b := Kind{Family: "a"}, Kind{Family: "b"}
	load := func() *InterferenceRecord {
		var stored InterferenceRecord
		if err := json.Unmarshal([]byte(`{"device":"M","under":"1","alone":[{"self":{"family":"a"},"step_seconds":2,"count":1}]}`), &stored); err != nil {
			t.Fatal(err)
		}
		return &stored
	}
	if m := NewInterferenceRecord("M", "2", load()); len(m.Known.Samples()) != 0 {
		t.Errorf("known are %+v", m.Known.Samples())
	}
	if c := load().Clone(); c.Known == nil || len(c.Alone) != 1 {
		t.Errorf("the copy is %+v", c)
	}
	m := load()
	m.MeasuredOn(a, [][]Kind{{b}, {a}}, 4) // either of them may be the cause
	m.Measured(a, []Kind{b}, 4)
	m.OutOfMemory(a, a)
	if got := m.Known.Measurements(a, []Kind{b}); got != 1 || m.Known.Fits(a, a) != 0 {
		t.Errorf("measured %d times, a beside itself fits with %v", got, m.Known.Fits(a, a))
	}
}

func TestNewestInterferenceRecord(t *testing.T) {
	records := map[string]*InterferenceRecord{
		"a": {Device: "M", Under: "1", Through: 7}, "b": {Device: "M", Under: "2", Through: 9}, "c": {Device: "N", Through: 11}, "d": {Device: "M", Under: "3", Through: 9},
	}
	if got := NewestInterferenceRecord(records, "M"); got != records["b"] {
		t.Errorf("newest is %+v, want the first of those that have come to 9", got)
	}
	if got := NewestInterferenceRecord(records, "O"); got != nil {
		t.Errorf("newest of a type without records is %+v", got)
	}
}

// A record predicts the same to the last bit after encoding and decoding: recorded plans are decided again from it.
func TestInterferenceRecordSurviveBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewInterferenceRecord("M", "1", nil)
		for range rapid.IntRange(0, 40).Draw(t, "measurements") {
			others := []Kind{drawKind(t, "first"), drawKind(t, "second")}[:rapid.IntRange(0, 2).Draw(t, "others")]
			m.Measured(drawKind(t, "self"), others, rapid.Float64Range(0.1, 10).Draw(t, "step"))
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var again, twice InterferenceRecord
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &twice); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			self, others := drawKind(t, "asked"), []Kind{drawKind(t, "beside"), drawKind(t, "and")}
			x, dx := again.Known.RateAmong(self, others)
			_, _ = twice.Known.Rate(others[0], self) // other queries do not matter
			if y, dy := twice.Known.RateAmong(self, others); x != y || dx != dy {
				t.Fatalf("%v±%v and %v±%v", x, dx, y, dy)
			}
		}
		if d := cmp.Diff(m.Known.Samples(), again.Known.Samples()); d != "" {
			t.Fatal(d)
		}
	})
}
