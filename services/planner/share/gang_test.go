package share

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

// gang is a job on several devices.
func gang(family string, on ...int) Tenant {
	t := tenant(family, 0.3)
	t.On, t.Weight = on, float64(len(on))
	return t
}

func TestAGangGoesAtThePaceOfItsSlowestDevice(t *testing.T) {
	m := taught(map[[2]string]float64{{"gang", "calm"}: 0.9, {"gang", "rough"}: 0.5})
	tenants := []Tenant{gang("gang", 0, 1, 2), gang("calm", 0), gang("rough", 2)}
	rates, measured := Rates(m, tenants)
	for i, want := range []float64{0.5, 0.9, 0.5} {
		if math.Abs(rates[i]-want) > 0.02 || measured[i] != 1 {
			t.Errorf("tenant %d: %v, measured %d times, want %v", i, rates[i], measured[i], want)
		}
	}
	if device := Slowest(m, tenants, 0); device != 2 {
		t.Errorf("slowest on %d", device)
	}
	// Without the rough one the gang is held up by the calm one, which gains nothing.
	if more := Apart(m, tenants, 2); math.Abs(more-(3*0.4+0.5)) > 0.05 {
		t.Errorf("apart they do %v more", more)
	}
}

func TestChooseAmongDevicesOfAGang(t *testing.T) {
	m := taught(map[[2]string]float64{{"gang", "new"}: 0.9, {"calm", "new"}: 0.8, {"gang", "calm"}: 0.9, {"gang", "rough"}: 0.5})
	at := func(newcomer Tenant, tenants ...Tenant) Place {
		return Place{Model: m, Newcomer: newcomer, Tenants: tenants}
	}
	wide := gang("gang", 0, 1, 2, 3)
	for name, c := range map[string]struct {
		places []Place
		want   int
	}{
		"it holds up four":           {[]Place{at(gang("rough", 0), wide)}, -1},
		"it hardly does":             {[]Place{at(gang("new", 0), wide)}, 0},
		"the gang is held up anyway": {[]Place{at(gang("calm", 1), wide), at(gang("calm", 1), wide, gang("calm", 0))}, 1},
		"no memory on one device":    {[]Place{at(gang("new", 0, 1), wide, gang("calm", 1), gang("calm", 1))}, -1},
	} {
		if got := Choose(c.places); got != c.want {
			t.Errorf("%s: chosen %d, want %d", name, got, c.want)
		}
	}
}

// What was measured on one device says nothing of those with others.
func TestOnlyMeasuredDevicesPartAGang(t *testing.T) {
	m := taught(map[[2]string]float64{{"gang", "rough"}: 0.2})
	if tenants := []Tenant{gang("gang", 0, 1), gang("unknown", 1)}; Parted(m, tenants) {
		t.Error("parted by a guess")
	}
	if tenants := []Tenant{gang("gang", 0, 1), gang("unknown", 1), gang("rough", 0)}; !Parted(m, tenants) {
		t.Error("not parted by what was measured")
	}
}

// A job that is slowed too much is helped first; the devices of the others count only if all do too little together.
func TestWhereOneOfAGangsCompanyLeaves(t *testing.T) {
	wide := gang("gang", 0, 1)
	for name, c := range map[string]struct {
		rates map[[2]string]float64
		want  []int
	}{
		"one crawls beside a gang that is slowest elsewhere": {map[[2]string]float64{{"gang", "a"}: 0.6, {"a", "gang"}: 0.9, {"gang", "b"}: 0.7, {"b", "gang"}: 0.1}, []int{1}},
		"the gang crawls":   {map[[2]string]float64{{"gang", "a"}: 0.6, {"a", "gang"}: 0.9, {"gang", "b"}: 0.2, {"b", "gang"}: 0.9}, []int{1}},
		"all do too little": {map[[2]string]float64{{"gang", "a"}: 0.4, {"a", "gang"}: 0.4, {"gang", "b"}: 0.5, {"b", "gang"}: 0.4}, []int{0, 0, 1}},
		"they stay":         {map[[2]string]float64{{"gang", "a"}: 0.9, {"a", "gang"}: 0.9, {"gang", "b"}: 0.9, {"b", "gang"}: 0.9}, nil},
	} {
		m := curve.NewInterference("", nil)
		for pair, rate := range c.rates {
			m.Measured(tenant(pair[0], 0).Kind, []curve.Kind{tenant(pair[1], 0).Kind}, rate)
		}
		tenants := []Tenant{wide, gang("a", 0), gang("b", 1)}
		if got := Brakes(m, tenants); !slices.Equal(got, c.want) || Parted(m, tenants) != (c.want != nil) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Jobs that all have the same devices are to each other what they are on one, but for their weights, and a job on
// another device changes nothing.
func TestGangsAndSingleJobs(t *testing.T) {
	families := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		m := curve.NewInterference("", nil)
		for _, a := range families {
			for _, b := range families {
				if rapid.Bool().Draw(t, "met") {
					m.Shared(tenant(a, 0).Kind, tenant(b, 0).Kind, rapid.Float64Range(0.1, 1).Draw(t, "rate"), rapid.Float64Range(0.1, 1).Draw(t, "rate"))
				}
			}
		}
		var single, wide []Tenant
		for range rapid.IntRange(1, 3).Draw(t, "jobs") {
			one := tenant(rapid.SampledFrom(families).Draw(t, "family"), 0.2)
			single = append(single, one)
			one.On = []int{4, 7}
			wide = append(wide, one)
		}
		narrow, _ := Rates(m, single)
		rates, _ := Rates(m, wide)
		if !slices.Equal(narrow, rates) || Parted(m, single) != Parted(m, wide) {
			t.Fatalf("%v on one device, %v on two", narrow, rates)
		}
		newcomer := tenant(rapid.SampledFrom(families).Draw(t, "newcomer"), 0.2)
		alone := newcomer
		alone.On = []int{9}
		newcomer.On = []int{4, 7}
		if got, want := Choose([]Place{{m, newcomer, wide}}), Choose([]Place{{m, tenant(newcomer.Kind.Family, 0.2), single}}); got != want {
			t.Fatalf("chosen %d on two devices, %d on one", got, want)
		}
		after, _ := Rates(m, append(wide, alone))
		if !slices.Equal(after[:len(rates)], rates) || after[len(rates)] != 1 {
			t.Fatalf("%v, beside a job on another device %v", rates, after)
		}
	})
}
