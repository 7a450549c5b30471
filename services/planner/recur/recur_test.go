package recur_test

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

func group(sizes ...int) *recur.Group {
	return &recur.Group{BatchSizes: sizes, Default: sizes[len(sizes)/2], LimitsWatts: []float64{100, 200}, MaxPowerWatts: 200, Eta: 1, Seed: 1}
}

// ran adds an attempt that used some joules: with eta 1 this is its cost.
func ran(g *recur.Group, batch int, joules float64, reached bool) {
	g.Attempts = append(g.Attempts, contract.GroupAttempt{BatchSize: batch, LimitWatts: 100, EnergyJoules: joules, Seconds: 1, Reached: reached})
}

// submitted takes what the user submits.
type submitted struct{}

func (submitted) Name() string { return "submitted" }

func (submitted) Next(g *recur.Group) contract.GroupChoice {
	return contract.GroupChoice{BatchSize: g.Default, LimitWatts: slices.Max(g.LimitsWatts)}
}

func policies() []recur.Policy {
	return []recur.Policy{submitted{}, recur.Switchyard{Prior: recur.StandardPrior()}}
}

// playSwitchyard repeats the policy's choices in a world where each batch size has one cost; 0 is a batch size that
// never reaches its target.
func playSwitchyard(g *recur.Group, costs []float64, recurrences int) (uses map[int]int) {
	policy := recur.Switchyard{Prior: recur.StandardPrior()}
	uses = map[int]int{}
	for g.Recurrences() < recurrences {
		c := policy.Next(g)
		uses[c.BatchSize]++
		cost := costs[slices.Index(g.BatchSizes, c.BatchSize)]
		switch {
		case cost > 0 && (c.MaxCost == 0 || cost <= c.MaxCost):
			ran(g, c.BatchSize, cost, true)
		default:
			ran(g, c.BatchSize, max(c.MaxCost, 1), false)
		}
	}
	return uses
}

func TestSwitchyardFindsTheCheapest(t *testing.T) {
	for _, costs := range [][]float64{
		{90, 50, 30, 20, 17, 19, 24}, {10, 11, 13, 16, 20, 25, 31}, {0, 31, 25, 20, 16, 13, 11}, {0, 0, 12, 10, 11, 0, 0},
	} {
		g := group(8, 16, 32, 64, 128, 256, 512)
		uses := playSwitchyard(g, costs, 100)
		cheapest, least := 0, 0.0
		for i, cost := range costs {
			if cost > 0 && (least == 0 || cost < least) {
				cheapest, least = g.BatchSizes[i], cost
			}
			if uses[g.BatchSizes[i]] > 1 && cost == 0 {
				t.Errorf("costs %v: batch size %d failed, and ran %d times", costs, g.BatchSizes[i], uses[g.BatchSizes[i]])
			}
		}
		if uses[cheapest] < 80 {
			t.Errorf("costs %v: the cheapest batch size %d ran %d times of 100: %v", costs, cheapest, uses[cheapest], uses)
		}
	}
}

// Many epochs to the target are a sign of a batch beyond the critical size.
func TestTheFirstStepFollowsTheEpochsOfTheDefault(t *testing.T) {
	for epochs, want := range map[int]int{0: 8, 4: 32, 80: 8} {
		g := group(8, 16, 32)
		ran(g, 16, 10, true)
		g.Attempts[0].Epochs = epochs
		if c := (recur.Switchyard{Prior: recur.StandardPrior()}).Next(g); c.BatchSize != want {
			t.Errorf("%d epochs with a batch size of 16: %d is tried, want %d", epochs, c.BatchSize, want)
		}
	}
}

func TestSwitchyardWaitsForWhatIsUnderWay(t *testing.T) {
	g := group(8, 16, 32)
	ran(g, 16, 10, true)
	policy := recur.Switchyard{Prior: recur.StandardPrior()}
	if c := policy.Next(g); c.BatchSize == 16 {
		t.Fatalf("after one run of the default nothing else is tried: %+v", c)
	}
	g.Running = 1
	if c := policy.Next(g); c.BatchSize != 16 {
		t.Fatalf("with an attempt under way batch size %d, want the best known, 16", c.BatchSize)
	}
}

func TestSwitchyardWithADefaultThatNeverReachesItsTarget(t *testing.T) {
	g := group(8, 16, 32)
	if uses := playSwitchyard(g, []float64{0, 0, 10}, 20); uses[8] > 1 || uses[16] > 1 {
		t.Fatalf("only 32 reaches the target, and others run again: %v", uses)
	}
}

// drawGroup is a group with any history that policies could have left.
func drawGroup(t *rapid.T) *recur.Group {
	g := group(rapid.SliceOfNDistinct(rapid.IntRange(1, 1<<20), 1, 16, rapid.ID).Draw(t, "sizes")...)
	slices.Sort(g.BatchSizes)
	g.Eta, g.Seed = float64(rapid.IntRange(0, 1000).Draw(t, "eta"))/1000, rapid.Uint64().Draw(t, "seed")
	for range rapid.IntRange(0, 40).Draw(t, "attempts") {
		// As the ledger and the clock count: numbers near the least of floating point are not exact at every scale.
		cost := rapid.Map(rapid.Int64Range(0, 1e18), func(millionths int64) float64 { return float64(millionths) / 1e6 })
		g.Attempts = append(g.Attempts, contract.GroupAttempt{
			BatchSize: rapid.SampledFrom(append([]int{7}, g.BatchSizes...)).Draw(t, "batch"), LimitWatts: rapid.SampledFrom(g.LimitsWatts).Draw(t, "limit"),
			EnergyJoules: cost.Draw(t, "joules"), Seconds: cost.Draw(t, "seconds"), Reached: rapid.Bool().Draw(t, "reached"),
		})
	}
	g.Running = rapid.IntRange(0, 2).Draw(t, "running")
	return g
}

func TestEveryPolicyChoosesWhatIsAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		if err := g.Check(); err != nil {
			t.Fatal(err)
		}
		for _, p := range policies() {
			c := p.Next(g)
			if !slices.Contains(g.BatchSizes, c.BatchSize) || c.LimitWatts != 0 && !slices.Contains(g.LimitsWatts, c.LimitWatts) || !(c.MaxCost >= 0) {
				t.Fatalf("%s chooses %+v", p.Name(), c)
			}
		}
	})
}

// A group that was stored and read again decides as before.
func TestDecisionsSurviveTheirStorage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		text, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		var again recur.Group
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		for _, p := range policies() {
			if a, b := p.Next(g), p.Next(&again); a != b {
				t.Fatalf("%s chooses %+v, and %+v after it was stored", p.Name(), a, b)
			}
		}
	})
}

// The unit of cost is no matter: all energies and times a thousand times as large change nothing.
func TestSwitchyardKnowsNoUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t)
		large := *g
		large.Attempts = slices.Clone(g.Attempts)
		for i := range large.Attempts {
			large.Attempts[i].EnergyJoules *= 1024
			large.Attempts[i].Seconds *= 1024
		}
		policy := recur.Switchyard{Prior: recur.StandardPrior()}
		if a, b := policy.Next(g).BatchSize, policy.Next(&large).BatchSize; a != b {
			t.Fatalf("batch size %d, and %d in another unit", a, b)
		}
	})
}

func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(*recur.Group){
		"no batch size":       func(g *recur.Group) { g.BatchSizes = nil },
		"unordered":           func(g *recur.Group) { g.BatchSizes = []int{16, 8} },
		"default not allowed": func(g *recur.Group) { g.Default = 9 },
		"no limit":            func(g *recur.Group) { g.LimitsWatts = nil },
		"no power":            func(g *recur.Group) { g.MaxPowerWatts = 0 },
		"eta":                 func(g *recur.Group) { g.Eta = 1.1 },
	} {
		g := group(8, 16)
		if err := g.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(g); g.Check() == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
}

func TestChooseLimit(t *testing.T) {
	windows := []contract.PowerWindow{
		{LimitWatts: 300, EnergyJoules: 3000, Seconds: 10}, {LimitWatts: 200, EnergyJoules: 2200, Seconds: 11}, {LimitWatts: 100, EnergyJoules: 2000, Seconds: 18},
	}
	for _, c := range []struct {
		eta   float64
		limit float64
	}{{0, 300}, {0.5, 200}, {1, 100}} {
		if w, ok := recur.ChooseLimit(windows, c.eta, 300); !ok || w.LimitWatts != c.limit {
			t.Errorf("eta %g: %g W, want %g", c.eta, w.LimitWatts, c.limit)
		}
	}
	if _, ok := recur.ChooseLimit(nil, 0.5, 300); ok {
		t.Error("a limit was chosen of none")
	}
}
