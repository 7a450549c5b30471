package share

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

func tenant(family string, memory float64) Tenant {
	return Tenant{Kind: curve.Kind{Family: family, LocalBatch: 8}, Weight: 1, Memory: memory}
}

// taught knows rates of pairs, the same for both.
func taught(rates map[[2]string]float64) *curve.Interference {
	m := curve.NewInterference("", nil)
	for pair, rate := range rates {
		m.Shared(tenant(pair[0], 0).Kind, tenant(pair[1], 0).Kind, rate, rate)
	}
	return m
}

func choose(m *curve.Interference, newcomer Tenant, devices [][]Tenant) int {
	var places []Place
	for _, tenants := range devices {
		places = append(places, Place{Model: m, Newcomer: newcomer, Tenants: tenants})
	}
	return Choose(places)
}

func TestChoose(t *testing.T) {
	m := taught(map[[2]string]float64{
		{"new", "kind"}: 0.9, {"new", "fair"}: 0.7, {"new", "rough"}: 0.5, {"kind", "fair"}: 0.9, {"vain", "fair"}: 0.8, {"vain", "kind"}: 0.4,
	})
	weighty := tenant("kind", 0.3)
	weighty.Weight = 10
	for name, c := range map[string]struct {
		devices [][]Tenant
		memory  float64
		want    int
	}{
		"no device":                             {nil, 0.3, -1},
		"the most progress":                     {[][]Tenant{{tenant("fair", 0.3)}, {tenant("kind", 0.3)}, {tenant("rough", 0.3)}}, 0.3, 1},
		"waiting is as good":                    {[][]Tenant{{tenant("rough", 0.3)}}, 0.3, -1},
		"no memory there":                       {[][]Tenant{{tenant("fair", 0.3)}, {tenant("kind", 0.8)}}, 0.3, 0},
		"no memory at all":                      {[][]Tenant{{tenant("fair", 0.8)}, {tenant("kind", 0.8)}}, 0.3, -1},
		"memory of three":                       {[][]Tenant{{tenant("kind", 0.4), tenant("kind", 0.4)}, {tenant("fair", 0.3)}}, 0.3, 1},
		"what a weighty job loses counts":       {[][]Tenant{{tenant("fair", 0.3)}, {weighty}}, 0.3, 0},
		"two that get on, better than a rough":  {[][]Tenant{{tenant("rough", 0.3)}, {tenant("kind", 0.3), tenant("fair", 0.3)}}, 0.3, 1},
		"two of whom nothing is known":          {[][]Tenant{{tenant("unknown", 0.3), tenant("other", 0.3)}}, 0.3, -1},
		"the first of equals":                   {[][]Tenant{{tenant("kind", 0.3)}, {tenant("kind", 0.3)}}, 0.3, 0},
		"a kind that nobody knows is worth one": {[][]Tenant{{tenant("rough", 0.3)}, {tenant("unknown", 0.3)}}, 0.3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := choose(m, tenant("new", c.memory), c.devices); got != c.want {
				t.Errorf("chosen %d, want %d", got, c.want)
			}
		})
	}
}

// A job does not start if its family is known to be slowed too much, however little that takes from the others.
func TestNobodyStartsToCrawl(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want int
	}{{0.5, 0}, {0.1, -1}} {
		m := curve.NewInterference("", nil)
		for _, batch := range []int{4, 16, 32} {
			m.Shared(curve.Kind{Family: "new", LocalBatch: batch}, tenant("host", 0).Kind, c.rate, 1)
		}
		newcomer := tenant("new", 0.3)
		if rate, _ := m.Rate(newcomer.Kind, tenant("host", 0).Kind); math.Abs(rate-c.rate) > 0.1 {
			t.Fatalf("predicted %v, want about %v", rate, c.rate)
		}
		host := tenant("host", 0.3)
		host.Weight = 0.2 // what it loses hardly counts
		if got := choose(m, newcomer, [][]Tenant{{host}}); got != c.want {
			t.Errorf("at a rate of %v chosen %d, want %d", c.rate, got, c.want)
		}
	}
}

func TestMemoryThatNobodyDeclares(t *testing.T) {
	m := taught(map[[2]string]float64{{"new", "kind"}: 0.9})
	alone := [][]Tenant{{tenant("kind", 0)}}
	if got := choose(m, tenant("new", 0), alone); got != 0 {
		t.Errorf("chosen %d beside what it has shared with, want 0", got)
	}
	m.OutOfMemory(tenant("new", 0).Kind, tenant("kind", 0).Kind)
	if got := choose(m, tenant("new", 0), alone); got != -1 {
		t.Errorf("chosen %d beside what it did not fit with, want -1", got)
	}
	if got := choose(m, tenant("new", 0.9), [][]Tenant{{tenant("kind", 0.3), tenant("other", 0)}}); got != -1 {
		t.Errorf("chosen %d where what is declared alone is too much, want -1", got)
	}
}

// What first tries teach of some kinds does not keep others from being tried: sharing never ends for good.
func TestTriesThatDisappointDoNotEndSharing(t *testing.T) {
	m := curve.NewInterference("", nil)
	for _, a := range []string{"a", "b", "c", "d"} {
		for _, b := range []string{"a", "b", "c", "d"} {
			m.Shared(tenant(a, 0).Kind, tenant(b, 0).Kind, 0.2, 0.2)
		}
	}
	if got := choose(m, tenant("e", 0.3), [][]Tenant{{tenant("a", 0.3)}, {tenant("f", 0.3)}}); got != 1 {
		t.Errorf("chosen %d, want to try two kinds of which nothing is known", got)
	}
}

func TestStay(t *testing.T) {
	light, heavy := tenant("light", 0), tenant("heavy", 0)
	heavy.Weight = 3
	for name, c := range map[string]struct {
		tenants []Tenant
		rates   []float64
		want    bool
	}{
		"more together":          {[]Tenant{light, light}, []float64{0.8, 0.3}, true},
		"one crawls":             {[]Tenant{light, light}, []float64{0.95, 0.2}, false},
		"three may be slower":    {[]Tenant{light, light, light}, []float64{0.8, 0.2, 0.2}, true},
		"one of three crawls":    {[]Tenant{light, light, light}, []float64{0.9, 0.9, 0.15}, false},
		"as much":                {[]Tenant{light, light}, []float64{0.5, 0.5}, true},
		"less":                   {[]Tenant{light, light}, []float64{0.4, 0.5}, false},
		"the weighty one pays":   {[]Tenant{heavy, light}, []float64{0.6, 0.9}, false},
		"the weighty one is off": {[]Tenant{heavy, light}, []float64{0.9, 0.4}, true},
	} {
		if got := Stay(c.tenants, c.rates); got != c.want {
			t.Errorf("%s: stay is %v, want %v", name, got, c.want)
		}
	}
}

// Declared memory is never exceeded, whatever was learnt; and a pair that was killed is not tried again as long as
// the memory of a job is unknown.
func TestMemoryIsNeverExceeded(t *testing.T) {
	families := []string{"a", "b", "c"}
	draw := func(t *rapid.T, label string) Tenant {
		one := tenant(rapid.SampledFrom(families).Draw(t, label), rapid.SampledFrom([]float64{0, 0.2, 0.4, 0.7}).Draw(t, label+" memory"))
		one.Weight = rapid.Float64Range(0.1, 10).Draw(t, label+" weight")
		return one
	}
	rapid.Check(t, func(t *rapid.T) {
		m := curve.NewInterference("", nil)
		killed := map[curve.KindPair]bool{}
		for range rapid.IntRange(0, 10).Draw(t, "meetings") {
			a, b := draw(t, "a").Kind, draw(t, "b").Kind
			if rapid.Bool().Draw(t, "fits") && !killed[curve.KindPair{Self: a, Beside: b}] {
				m.Shared(a, b, rapid.Float64Range(0.1, 1).Draw(t, "rate a"), rapid.Float64Range(0.1, 1).Draw(t, "rate b"))
			} else {
				m.OutOfMemory(a, b)
				killed[curve.KindPair{Self: a, Beside: b}], killed[curve.KindPair{Self: b, Beside: a}] = true, true
			}
		}
		newcomer := draw(t, "newcomer")
		devices := make([][]Tenant, rapid.IntRange(0, 4).Draw(t, "devices"))
		for i := range devices {
			for range rapid.IntRange(1, 3).Draw(t, "tenants") {
				devices[i] = append(devices[i], draw(t, "tenant"))
			}
		}
		at := choose(m, newcomer, devices)
		if at < 0 {
			return
		}
		sum, declared := newcomer.Memory, newcomer.Memory > 0
		for _, one := range devices[at] {
			sum, declared = sum+one.Memory, declared && one.Memory > 0
		}
		for _, one := range devices[at] {
			if !declared && killed[curve.KindPair{Self: newcomer.Kind, Beside: one.Kind}] {
				t.Fatalf("%v starts beside %v, which was killed once", newcomer, one)
			}
		}
		if sum > 1 {
			t.Fatalf("%v starts beside %v: memory %g", newcomer, devices[at], sum)
		}
	})
}
