package records

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Device time counts once, however often it is counted, and half after each half-life.
func TestUsageDecays(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	held := []Held{
		{"ann", 2, begin, begin.Add(time.Hour)},
		{"bob", 1, begin.Add(30 * time.Minute), begin.Add(48 * time.Hour)},
		{"eve", 1, begin.Add(30 * time.Hour), begin.Add(31 * time.Hour)},
	}
	at := func(steps int, end time.Duration) map[string]float64 {
		u := Usage{HalfLife: 24 * time.Hour}
		u.At = begin
		for i := range steps {
			u.Advance(begin.Add(end*time.Duration(i+1)/time.Duration(steps)), slices.Values(held))
			u.Advance(u.At, slices.Values(held))
		}
		return u.DeviceSeconds
	}
	once, often := at(1, 24*time.Hour), at(1000, 24*time.Hour)
	for tenant, seconds := range once {
		if math.Abs(often[tenant]-seconds) > 0.01 {
			t.Errorf("%s: %g in one step, %g in many", tenant, seconds, often[tenant])
		}
	}
	if ann := once["ann"]; len(once) != 2 || math.Abs(ann-7200/math.Exp2(23.5/24)) > 2 {
		t.Errorf("%v: want about half of two device-hours", once)
	}
	if later := at(1, 48*time.Hour)["ann"]; math.Abs(later-once["ann"]/2) > 0.01 {
		t.Errorf("%g, and a half-life later %g", once["ann"], later)
	}
	if long := at(1, 1000*time.Hour); len(long) != 0 {
		t.Errorf("of what was used long ago %v is left", long)
	}
}

// A tenant without shares has one, and without any shares nobody has used too much.
func TestOveruseIsOfShares(t *testing.T) {
	used := map[string]float64{"ann": 600, "bob": 300, "eve": 100}
	if got := state.BalancesOf(used, nil); got != nil {
		t.Errorf("%v", got)
	}
	got := state.BalancesOf(used, map[string]float64{"ann": 2, "idle": 1})
	for tenant, want := range map[string]float64{"ann": 1.5, "bob": 1.5, "eve": 0.5, "idle": 0, "stranger": 0} {
		if o := got[tenant].Overuse(); o != want {
			t.Errorf("%s: overuse %g, want %g (%+v)", tenant, o, want, got[tenant])
		}
	}
	if o := (state.Balance{Used: 1, Granted: 0.001}).Overuse(); o != 4 {
		t.Errorf("the most is %g", o)
	}
}
