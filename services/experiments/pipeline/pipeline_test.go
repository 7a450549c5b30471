package pipeline

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

func space() Space {
	return Space{{Cores, []float64{16, 8, 4}}, {Memory, []float64{8192, 4096}}}
}

func trial(batch float64, epochs int) *Trial {
	return &Trial{Workload: "w", BatchSize: batch, Epochs: epochs, Settings: space().Settings()}
}

// play runs a trial to its end with the given costs of epochs.
func play(r Rule, t *Trial, known []contract.WorkloadCosts, cost func(contract.SettingValues) float64) []contract.SettingValues {
	var chosen []contract.SettingValues
	for len(t.Ended) < t.Epochs {
		s := r.Next(t, known)
		c := cost(s)
		t.Ended = append(t.Ended, Epoch{Setting: s, Cost: c, Failed: math.IsInf(c, 1)})
		chosen = append(chosen, s)
	}
	return chosen
}

// byCores returns costs that depend only on the cores.
func byCores(of16, of8, of4 float64) func(contract.SettingValues) float64 {
	return func(s contract.SettingValues) float64 { return map[float64]float64{16: of16, 8: of8, 4: of4}[s[Cores]] }
}

func count(chosen []contract.SettingValues, cores float64) int {
	n := 0
	for _, s := range chosen {
		if s[Cores] == cores {
			n++
		}
	}
	return n
}

func TestSettingsComeFactorByFactor(t *testing.T) {
	want := []contract.SettingValues{
		{Cores: 16, Memory: 8192}, {Cores: 8, Memory: 8192}, {Cores: 4, Memory: 8192}, {Cores: 16, Memory: 4096}, {Cores: 8, Memory: 4096}, {Cores: 4, Memory: 4096},
	}
	if got := space().Settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("settings %v, want %v", got, want)
	}
}

func TestProbeTriesOneFactorAtATimeAndTheGroundTruthNothing(t *testing.T) {
	costs := func(s contract.SettingValues) float64 { return byCores(10, 9, 8)(s) + s[Memory]/8192 }
	first := trial(32, 6)
	chosen := play(Probe{}, first, nil, costs)
	all := space().Settings()
	if want := []contract.SettingValues{all[0], all[1], all[2], all[3], all[2], all[2]}; !reflect.DeepEqual(chosen, want) {
		t.Errorf("chosen %v, want %v", chosen, want)
	}
	chosen = play(Probe{}, trial(32, 3), Learn(nil, first), costs)
	if want := []contract.SettingValues{all[0], all[2], all[2]}; !reflect.DeepEqual(chosen, want) {
		t.Errorf("chosen when it recurs %v, want %v", chosen, want)
	}
}

func TestSwitchyardFindsFewerCores(t *testing.T) {
	chosen := play(StandardRule(), trial(32, 10), nil, byCores(100, 63, 51))
	if !chosen[0].Equal(space().Settings()[0]) {
		t.Errorf("the first epoch is at %v: want the default", chosen[0])
	}
	if count(chosen, 4) < 7 {
		t.Errorf("chosen %v: want 4 cores from the third epoch on", chosen)
	}
}

// A worker with many samples between two synchronisations scales: the same probe is then too expensive for a short
// trial, and cheap enough for a long one.
func TestALongerTrialMayRiskMore(t *testing.T) {
	scales := byCores(100, 180, 340)
	if chosen := play(StandardRule(), trial(1024, 10), nil, scales); count(chosen, 16) != 10 {
		t.Errorf("10 epochs: %v: want 16 cores always", chosen)
	}
	long := play(StandardRule(), trial(1024, 100), nil, scales)
	if probes := 100 - count(long, 16); probes == 0 || probes > 2 {
		t.Errorf("100 epochs: %d with fewer cores, want 1 or 2", probes)
	}
}

// If most cores idle, fewer of them cannot do much harm, whatever the prior fears.
func TestIdleCoresBoundTheRisk(t *testing.T) {
	tr := trial(1024, 10)
	tr.Ended = []Epoch{{Setting: tr.Default(), Cost: 100}}
	if s := StandardRule().Next(tr, nil); s[Cores] != 16 {
		t.Fatalf("without a measurement %v: want 16 cores", s)
	}
	tr.Ended[0].BusyCores = 3
	if s := StandardRule().Next(tr, nil); s[Cores] == 16 {
		t.Errorf("with 3 of 16 cores busy %v: want fewer", s)
	}
}

// An epoch of unknown cost sets no bound.
func TestAnUnknownCostIsNoBound(t *testing.T) {
	tr := trial(1024, 10)
	tr.Ended = []Epoch{{Setting: tr.Default(), BusyCores: 3}, {Setting: tr.Default(), Cost: 100}}
	if most := StandardRule().dearest(tr, tr.Settings[1], estimate{math.Log(100), 0}); most < 100 {
		t.Errorf("half the cores are taken to cost %g at most, expected are 100", most)
	}
}

func TestNoProbeThatNothingCanRepay(t *testing.T) {
	last := trial(32, 2)
	last.Ended = []Epoch{{Setting: last.Default(), Cost: 100}}
	once := StandardRule()
	once.Again = 0
	if s := once.Next(last, nil); !s.Equal(last.Default()) {
		t.Errorf("in the last epoch %v: want the default", s)
	}
	dear := StandardRule()
	dear.Changes = map[string]float64{Cores: 500, Memory: 500}
	tr := trial(32, 10)
	tr.Ended = []Epoch{{Setting: tr.Default(), Cost: 100}}
	if s := dear.Next(tr, nil); !s.Equal(tr.Default()) {
		t.Errorf("where a change costs five epochs %v: want the default", s)
	}
}

// A parameter that needs a restart changes at the end of the running epoch: in the last epoch that would be too late,
// and going back takes one more epoch.
func TestARestartTakesAnEpoch(t *testing.T) {
	choose := func(epochs int, changes map[string]float64) contract.SettingValues {
		rule := StandardRule()
		rule.Changes = changes
		tr := trial(32, epochs)
		tr.Ended = []Epoch{{Setting: tr.Default(), Cost: 100, BusyCores: 0.5}}
		return rule.Next(tr, nil)
	}
	restarts := map[string]float64{Cores: 0, Memory: 0}
	if s := choose(2, nil); s[Cores] == 16 {
		t.Fatalf("what changes at once is not probed in the last epoch: %v", s)
	}
	if s := choose(2, restarts); s[Cores] != 16 {
		t.Errorf("in the last epoch %v: want the default", s)
	}
	if s := choose(20, restarts); s[Cores] == 16 {
		t.Errorf("with 19 epochs left %v: want fewer cores", s)
	}
	least := func(changes map[string]float64) int {
		for n := 2; ; n++ {
			if s := choose(n, changes); s[Cores] != 16 {
				return n
			}
		}
	}
	if at, once := least(restarts), least(nil); at <= once {
		t.Errorf("probed with %d epochs where it takes a restart, with %d where it does not", at, once)
	}
	last := trial(32, 3)
	last.Ended = []Epoch{{Setting: last.Settings[0], Cost: 100}, {Setting: last.Settings[1], Cost: 200}}
	rule := StandardRule()
	rule.Changes = restarts
	if s := rule.Next(last, nil); !s.Equal(last.Settings[1]) {
		t.Errorf("back in the last epoch: %v, want it to stay", s)
	}
}

// The trial does not return to a setting whose advantage is smaller than the cost of the change.
func TestAChangeIsRepaidByWhatIsLeft(t *testing.T) {
	tr := trial(32, 10)
	tr.Settings = tr.Settings[:2]
	tr.Ended = []Epoch{{Setting: tr.Settings[0], Cost: 100}, {Setting: tr.Settings[1], Cost: 102}}
	for price, want := range map[float64]contract.SettingValues{0: tr.Settings[0], 5: tr.Settings[0], 50: tr.Settings[1]} {
		rule := StandardRule()
		rule.Changes = map[string]float64{Cores: price}
		if s := rule.Next(tr, nil); !s.Equal(want) {
			t.Errorf("where a change costs %g: %v, want %v", price, s, want)
		}
	}
}

func TestAFailureRulesOutWhatLiesBeyond(t *testing.T) {
	tooSmall := func(s contract.SettingValues) float64 {
		if s[Memory] < 8192 {
			return math.Inf(1)
		}
		return byCores(100, 80, 70)(s)
	}
	first := trial(32, 20)
	failures := 0
	play(StandardRule(), first, nil, tooSmall)
	for _, e := range first.Ended {
		if e.Failed {
			failures++
		}
	}
	if failures > 1 {
		t.Errorf("%d epochs failed, want one at most", failures)
	}
	known := Learn(nil,
		&Trial{Workload: "w", Settings: space().Settings(), Ended: []Epoch{{Setting: contract.SettingValues{Cores: 16, Memory: 4096}, Failed: true}}})
	for _, s := range play(StandardRule(), trial(32, 20), known, tooSmall) {
		if s[Memory] < 8192 {
			t.Errorf("%v was tried although 4 GiB had failed before", s)
		}
	}
}

func TestARecurringWorkloadStartsAtItsBest(t *testing.T) {
	first := trial(32, 10)
	play(StandardRule(), first, nil, byCores(100, 63, 51))
	chosen := play(StandardRule(), trial(32, 10), Learn(nil, first), byCores(100, 63, 51))
	if count(chosen, 4) != 10 {
		t.Errorf("chosen %v: want 4 cores always", chosen)
	}
}

// Results of one workload change the expectations for the next, more so if their profiles are similar.
func TestWorkloadsTeachEachOther(t *testing.T) {
	expect := func(kind string) float64 {
		var known []contract.WorkloadCosts
		for _, name := range []string{"a", "b", "c"} {
			other := trial(256, 3)
			other.Workload, other.Kind = name, "kind-0"
			other.Ended = []Epoch{{Setting: other.Settings[0], Cost: 10}, {Setting: other.Settings[1], Cost: 7}, {Setting: other.Settings[2], Cost: 6}}
			known = Learn(known, other)
		}
		tr := trial(256, 10)
		tr.Kind, tr.Ended = kind, []Epoch{{Setting: tr.Default(), Cost: 100}}
		return newBelief(StandardPrior(), tr, known).cost(tr.Settings[1]).expected()
	}
	stranger, alike := expect("kind-1"), expect("kind-0")
	if !(alike < stranger && stranger < 95) || math.Abs(alike-70) > 8 {
		t.Errorf("8 cores are expected to take %.1f of a stranger and %.1f of one that is alike: want about 70 of the latter, and less than of the former",
			stranger, alike)
	}
}

func TestLearnKeepsMeans(t *testing.T) {
	tr := trial(32, 4)
	tr.Ended = []Epoch{
		{Setting: tr.Settings[0], Cost: 10}, {Setting: tr.Settings[1], Cost: 8}, {Setting: tr.Settings[1], Cost: 6}, {Setting: tr.Settings[2], Failed: true}, {Setting: tr.Settings[2], Failed: true}, {Setting: tr.Settings[2], Cost: math.NaN()},
	}
	other := contract.WorkloadCosts{Workload: "other", Measured: []contract.MeasuredCost{{Setting: tr.Settings[0], Cost: 1, Epochs: 1}}}
	known := []contract.WorkloadCosts{{Workload: "w", Kind: "k", Measured: []contract.MeasuredCost{{Setting: tr.Settings[0], Cost: 20, Epochs: 1}}}, other}
	before := reflect.ValueOf(known).Index(0).Interface()
	got := Learn(known, tr)
	want := []contract.WorkloadCosts{other, {
		Workload: "w", Kind: "k", BatchSize: 32, Default: tr.Default(),
		Measured: []contract.MeasuredCost{{Setting: tr.Settings[0], Cost: 15, Epochs: 2}, {Setting: tr.Settings[1], Cost: 7, Epochs: 2}}, Failed: []contract.SettingValues{tr.Settings[2]},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("learnt %+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(known[0], before) || known[0].Measured[0].Cost != 20 {
		t.Errorf("what was known has changed: %+v", known[0])
	}
	for i := range 2 * mostRecords {
		got = Learn(got, &Trial{Workload: string(rune('A' + i)), Settings: tr.Settings, Ended: tr.Ended})
	}
	if len(got) != mostRecords {
		t.Errorf("%d records are kept, want %d", len(got), mostRecords)
	}
}

// Whatever epochs cost, each choice is allowed and repeatable, failed settings are avoided, and the loss stays within
// the allowance plus the amount by which probes were worse than feared.
func TestWhatAlwaysHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := trial(rapid.SampledFrom([]float64{0, 32, 256, 4096}).Draw(t, "batch"), rapid.IntRange(1, 30).Draw(t, "epochs"))
		costs := make([]float64, len(tr.Settings))
		for i := range costs {
			costs[i] = 100 * rapid.Float64Range(0.5, 2).Draw(t, "cost")
		}
		rule, excess, total := StandardRule(), 0.0, 0.0
		for len(tr.Ended) < tr.Epochs {
			s := rule.Next(tr, nil)
			if again := rule.Next(tr, nil); !again.Equal(s) {
				t.Fatalf("%v, then %v", s, again)
			}
			i := slices.IndexFunc(tr.Settings, s.Equal)
			if i < 0 {
				t.Fatalf("%v is none of the settings", s)
			}
			if b := newBelief(rule.Prior, tr, nil); len(tr.Ended) > 0 && b.own.find(s) < 0 {
				excess += max(costs[i]-rule.dearest(tr, s, b.cost(s)), 0)
			}
			total += costs[i]
			tr.Ended = append(tr.Ended, Epoch{Setting: s, Cost: costs[i]})
		}
		if most := float64(tr.Epochs)*costs[0]*(1.01+rule.Allowance) + excess; total > most {
			t.Fatalf("%.1f for %d epochs, want at most %.1f", total, tr.Epochs, most)
		}
	})
}

// The expected minimum of two costs agrees with sampling.
func TestLeastIsTheMeanOfMinima(t *testing.T) {
	e := estimate{mean: math.Log(90), deviation: 0.3}
	const draws = 100000
	sum := 0.0
	for i := range draws {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/draws-1)
		sum += min(100, math.Exp(e.mean+e.deviation*z))
	}
	if got, want := e.least(100), sum/draws; math.Abs(got-want) > 0.01 {
		t.Errorf("%g, want %g", got, want)
	}
}

func TestKnownProbesNothing(t *testing.T) {
	tr := Trial{Workload: "w", Epochs: 9, Settings: space().Settings()}
	s := tr.Settings
	learnt := contract.WorkloadCosts{
		Workload: "w", Default: s[0], Measured: []contract.MeasuredCost{{Setting: s[0], Cost: 10, Epochs: 1}, {Setting: s[2], Cost: 8, Epochs: 1}, {Setting: s[1], Cost: 9, Epochs: 1}, {Setting: s[3], Cost: 1, Epochs: 1}}, Failed: []contract.SettingValues{s[3]},
	}
	for _, tc := range []struct {
		name  string
		known []contract.WorkloadCosts
		want  contract.SettingValues
	}{
		{"nothing is known", nil, s[0]},
		{"of another workload", []contract.WorkloadCosts{{Workload: "v", Default: s[0], Measured: learnt.Measured}}, s[0]},
		{"the cheapest that can run", []contract.WorkloadCosts{learnt}, s[2]},
	} {
		if got := (Known{}).Next(&tr, tc.known); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
