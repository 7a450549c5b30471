package recurring

import (
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

type attempt struct {
	batch   int
	joules  float64
	reached bool
}

func TestZeusPrunesTwice(t *testing.T) {
	g := group(8, 16, 32, 64, 128)
	for i, a := range []attempt{
		{32, 10, true}, {16, 9, true}, {8, 21, false}, {64, 12, true}, {128, 14, true}, // down until it fails, then up
		{16, 9, true}, {32, 10, true}, {64, 21, false}, // from the cheapest; 8 is gone, and 128 is not reached any more
	} {
		if c := (Zeus{}).Next(g); c.BatchSize != a.batch {
			t.Fatalf("attempt %d with batch size %d, want %d", i, c.BatchSize, a.batch)
		}
		ran(g, a.batch, a.joules, a.reached)
	}
	for range 50 {
		c := (Zeus{}).Next(g)
		if c.BatchSize != 16 && c.BatchSize != 32 {
			t.Fatalf("batch size %d was pruned, and is chosen", c.BatchSize)
		}
		if c.MaxCost != 18 {
			t.Fatalf("an attempt stops at %g, want twice the cheapest recurrence, 18", c.MaxCost)
		}
		ran(g, c.BatchSize, float64(c.BatchSize), true)
	}
}

func TestGridTriesEverythingOnce(t *testing.T) {
	g := group(8, 16, 32)
	want := []contract.GroupChoice{
		{BatchSize: 8, LimitWatts: 200}, // fails: 100 W is not tried
		{BatchSize: 16, LimitWatts: 200},
		{BatchSize: 16, LimitWatts: 100},
		{BatchSize: 32, LimitWatts: 200},
		{BatchSize: 32, LimitWatts: 100},
		{BatchSize: 16, LimitWatts: 100}, // the cheapest
	}
	for i, w := range want {
		c := (Grid{}).Next(g)
		if c != w {
			t.Fatalf("attempt %d: %+v, want %+v", i, c, w)
		}
		g.Attempts = append(g.Attempts, contract.GroupAttempt{BatchSize: c.BatchSize, LimitWatts: c.LimitWatts, EnergyJoules: c.LimitWatts * float64(c.BatchSize), Seconds: 1, Reached: c.BatchSize != 8})
	}
}

// drawGroup is a group with any history that policies could have left.
func drawGroup(t *rapid.T) *recur.Group {
	g := group(rapid.SliceOfNDistinct(rapid.IntRange(1, 1<<20), 1, 16, rapid.ID).Draw(t, "sizes")...)
	slices.Sort(g.BatchSizes)
	g.Eta, g.Seed = rapid.Float64Range(0, 1).Draw(t, "eta"), rapid.Uint64().Draw(t, "seed")
	for range rapid.IntRange(0, 40).Draw(t, "attempts") {
		cost := rapid.Float64Range(0, 1e12)
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
		again := *g
		again.Attempts = slices.Clone(g.Attempts)
		for _, p := range Policies() {
			c := p.Next(g)
			if !slices.Contains(g.BatchSizes, c.BatchSize) || c.LimitWatts != 0 && !slices.Contains(g.LimitsWatts, c.LimitWatts) || !(c.MaxCost >= 0) {
				t.Fatalf("%s chooses %+v", p.Name(), c)
			}
			if b := p.Next(&again); b != c {
				t.Fatalf("%s chooses %+v, and %+v for a copy of the group", p.Name(), c, b)
			}
		}
	})
}

func TestMerge(t *testing.T) {
	if w := merge([]contract.PowerWindow{{LimitWatts: 200, EnergyJoules: 5, Seconds: 1}, {LimitWatts: 200, EnergyJoules: 7, Seconds: 3}}); w != (contract.PowerWindow{LimitWatts: 200, EnergyJoules: 12, Seconds: 3}) {
		t.Errorf("merged to %+v, want energies added and the longest time", w)
	}
}
