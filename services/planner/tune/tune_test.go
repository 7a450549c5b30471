package tune

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// play tunes until the round is over, on a given truth, which is 0 where memory runs out.
func play(r Round, truth func(choice []int) float64) []Trial {
	var trials []Trial
	for {
		choice, more := r.Next(trials)
		if !more {
			return trials
		}
		trials = append(trials, Trial{Choice: choice, Progress: truth(choice)})
	}
}

// tenantOf has batches 1, 2, 4 and so on, each a part faster than the one before.
func tenantOf(batches int, gain float64) Tenant {
	var t Tenant
	for i := range batches {
		t.Batches = append(t.Batches, 1<<i)
		t.Alone = append(t.Alone, math.Pow(1+gain, float64(i-batches+1)))
	}
	return t
}

// Whatever is measured: a round ends within its trials, never tries twice, never what should not fit nor what is
// larger than what did not, settles on the best that it has seen, and goes on alike from its record.
func TestEveryRoundEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Round{MemoryLimit: rapid.Float64Range(0.5, 1.2).Draw(t, "limit")}
		for range rapid.IntRange(1, 3).Draw(t, "tenants") {
			one := tenantOf(rapid.IntRange(1, 6).Draw(t, "batches"), rapid.Float64Range(0, 1).Draw(t, "gain"))
			for i := range one.Batches {
				one.Memory = append(one.Memory, 0.1*float64(i+1))
			}
			r.Tenants = append(r.Tenants, one)
			r.Start = append(r.Start, rapid.IntRange(0, len(one.Batches)-1).Draw(t, "start"))
		}
		limit := rapid.IntRange(0, 15).Draw(t, "what fits")
		trials := play(r, func(choice []int) float64 {
			sum := 0
			for _, c := range choice {
				sum += c
			}
			if sum > limit {
				return 0
			}
			return rapid.Float64Range(0.01, 2).Draw(t, "progress")
		})
		if len(trials) > MaxTrials {
			t.Fatalf("%d trials", len(trials))
		}
		best := 0.0
		for i, one := range trials {
			best = max(best, one.Progress)
			if m := r.memory(one.Choice); m > r.MemoryLimit {
				t.Fatalf("trial %v: memory %g of %g", one.Choice, m, r.MemoryLimit)
			}
			for _, before := range trials[:i] {
				larger := true
				for k := range before.Choice {
					larger = larger && one.Choice[k] >= before.Choice[k]
				}
				if slices.Equal(before.Choice, one.Choice) || before.Progress == 0 && larger {
					t.Fatalf("trial %v after %+v", one.Choice, before)
				}
			}
			if again, _ := r.Next(trials[:i]); !slices.Equal(again, one.Choice) {
				t.Fatalf("trial %d is %v, and %v from the record", i, one.Choice, again)
			}
		}
		settled := r.Settle(trials)
		if best == 0 && !slices.Equal(settled, r.Start) {
			t.Fatalf("settled on %v, though nothing ran; want the start %v", settled, r.Start)
		}
		if best > 0 && !slices.ContainsFunc(trials, func(one Trial) bool { return one.Progress == best && slices.Equal(one.Choice, settled) }) {
			t.Fatalf("settled on %v of %+v", settled, trials)
		}
	})
}

func TestTuneFindsThePeak(t *testing.T) {
	r := Round{Tenants: []Tenant{tenantOf(6, 0.3), tenantOf(6, 0.3)}, Start: []int{2, 2}, MemoryLimit: 1}
	// The first wants its largest batch, the second is best with a small one: a large one disturbs the first.
	truth := func(choice []int) float64 {
		return 0.6 + 0.06*float64(choice[0]) + 0.1*float64(choice[1]) - 0.04*float64(choice[1]*choice[1])
	}
	most := 0.0
	for cell := range r.combinations() {
		most = max(most, truth(r.choice(cell)))
	}
	trials := play(r, truth)
	if got := truth(r.Settle(trials)); got < 0.97*most {
		t.Errorf("settled at %g of %g after %+v", got, most, trials)
	}
	if !slices.Equal(trials[0].Choice, r.Start) {
		t.Errorf("it begins with %v, want what the jobs have", trials[0].Choice)
	}
}

// Where every other batch is worse the jobs get back the ones that they had.
func TestTuneRollsBack(t *testing.T) {
	r := Round{Tenants: []Tenant{tenantOf(5, 0.5), tenantOf(5, 0.5)}, Start: []int{1, 3}, MemoryLimit: 1}
	trials := play(r, func(choice []int) float64 {
		if slices.Equal(choice, r.Start) {
			return 1
		}
		return 0.4
	})
	if got := r.Settle(trials); !slices.Equal(got, r.Start) {
		t.Errorf("settled on %v, want the start %v", got, r.Start)
	}
}

func TestTooManyCombinationsAreLeftAlone(t *testing.T) {
	r := Round{MemoryLimit: 1}
	for range 12 {
		r.Tenants, r.Start = append(r.Tenants, tenantOf(8, 0.1)), append(r.Start, 3)
	}
	if choice, more := r.Next(nil); more {
		t.Errorf("tries %v", choice)
	}
	if got := r.Settle(nil); !slices.Equal(got, r.Start) {
		t.Errorf("settled on %v", got)
	}
}
