package diagnose

import (
	"math"
	"slices"
	"testing"
)

func TestLocaliseSlow(t *testing.T) {
	const all = 3
	for name, c := range map[string]struct {
		slow map[int]float64 // by row: every slot is slow by this many seconds; row i has links i and i+1
		want map[int32]float64
	}{
		"nothing is slow":             {},
		"one row of two shows little": {slow: map[int]float64{2: 0.005}},
		"one link":                    {slow: map[int]float64{2: 0.005, 3: 0.006}, want: map[int32]float64{3: 0.006}},
		"two apart":                   {slow: map[int]float64{2: 0.005, 3: 0.005, 6: 0.050, 7: 0.050}, want: map[int32]float64{3: 0.005, 7: 0.050}},
		"two next to each other":      {slow: map[int]float64{2: 0.005, 3: 0.012, 4: 0.007}, want: map[int32]float64{3: 0.005, 4: 0.007}},
	} {
		lags := make([]Lag, 10)
		for r := range lags {
			lags[r].Slots = all
			if excess, slow := c.slow[r]; slow {
				lags[r] = Lag{Slots: all, Slow: all, Excess: excess}
			}
		}
		got := LocaliseSlow(ring(10), lags, Options{})
		if named := links(got); len(named) != len(c.want) {
			t.Errorf("%s: named %v", name, named)
		}
		for _, s := range got {
			if want := c.want[s.Link]; math.Abs(s.DelaySeconds-want) > 1e-9 || s.Loss != 0 || s.Confidence <= 0.9 {
				t.Errorf("%s: %+v, want %v s", name, s, want)
			}
		}
	}
}

func TestOneSlowSlotNamesNoLink(t *testing.T) {
	lags := make([]Lag, 10)
	for r := range lags {
		lags[r] = Lag{Slots: 3}
	}
	lags[2], lags[3] = Lag{3, 1, 0.01}, Lag{3, 1, 0.01}
	if got := LocaliseSlow(ring(10), lags, Options{}); len(got) != 0 {
		t.Errorf("named %v", links(got))
	}
	lags[2], lags[3] = Lag{3, 2, 0.01}, Lag{2, 2, 0.01}
	if got := links(LocaliseSlow(ring(10), lags, Options{})); !slices.Equal(got, []int32{3}) {
		t.Errorf("named %v of two slow slots", got)
	}
}
