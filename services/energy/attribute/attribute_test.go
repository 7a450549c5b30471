package attribute

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestDivide(t *testing.T) {
	const j = unit.Joule
	for _, c := range []struct {
		name string
		m    Meter
		uses []Use
		want Split
	}{
		{"no work, nothing but idle", Meter{Energy: 10 * j, Idle: 10 * j}, nil, Split{Idle: 10 * j, Jobs: []Share{}}},
		{"the rest of the machine works", Meter{Energy: 16 * j, Idle: 10 * j, Busy: 1}, nil, Split{Idle: 10 * j, Unattributed: 6 * j, Jobs: []Share{}}},
		{
			"a job does a third of the work",
			Meter{Energy: 19 * j, Idle: 10 * j, Busy: 1.5},
			[]Use{{Job: "a", Work: 0.5}},
			Split{Idle: 10 * j, Unattributed: 6 * j, Jobs: []Share{{Job: "a", Energy: 3 * j}}},
		},
		{
			"a job that did nothing pays nothing",
			Meter{Energy: 16 * j, Idle: 10 * j, Busy: 1},
			[]Use{{Job: "a", Work: 0}},
			Split{Idle: 10 * j, Unattributed: 6 * j, Jobs: []Share{{Job: "a", Energy: 0}}},
		},
		{
			"jobs did more than was seen of all: the times are read one after the other",
			Meter{Energy: 16 * j, Idle: 10 * j, Busy: 1},
			[]Use{{Job: "a", Work: 1}, {Job: "b", Work: 2}},
			Split{Idle: 10 * j, Jobs: []Share{{Job: "a", Energy: 2 * j}, {Job: "b", Energy: 4 * j}}},
		},
		{
			"two attempts of a job are one job",
			Meter{Energy: 6 * j, Busy: 3},
			[]Use{{Job: "a", Work: 1}, {Job: "b", Work: 1}, {Job: "a", Work: 1}},
			Split{Jobs: []Share{{Job: "a", Energy: 4 * j}, {Job: "b", Energy: 2 * j}}},
		},
		{
			"the only tenant of a GPU pays what is active",
			Meter{Energy: 100 * j, Idle: 60 * j, Held: true},
			[]Use{{Job: "a", Work: 0}},
			Split{Idle: 60 * j, Jobs: []Share{{Job: "a", Energy: 40 * j, Estimated: 40 * j}}},
		},
		{
			"tenants that did nothing share alike",
			Meter{Energy: 7, Held: true},
			[]Use{{Job: "b", Work: 0}, {Job: "a", Work: 0}},
			Split{Jobs: []Share{{Job: "a", Energy: 4, Estimated: 4}, {Job: "b", Energy: 3, Estimated: 3}}},
		},
		{
			"idle is never more than all",
			Meter{Energy: 5, Idle: 9, Busy: 1},
			[]Use{{Job: "a", Work: 1}},
			Split{Idle: 5, Jobs: []Share{{Job: "a", Energy: 0}}},
		},
		{
			"a counter was reset",
			Meter{Energy: -3 * j, Idle: j, Busy: 1},
			[]Use{{Job: "a", Work: 1}},
			Split{Unattributed: -3 * j, Jobs: []Share{{Job: "a", Energy: 0}}, Reset: true},
		},
		{
			"work that is no number",
			Meter{Energy: 8, Busy: 1},
			[]Use{{Job: "a", Work: math.NaN()}, {Job: "b", Work: -1}},
			Split{Unattributed: 8, Jobs: []Share{{Job: "a", Energy: 0}, {Job: "b", Energy: 0}}},
		},
		{
			"work beyond all numbers",
			Meter{Energy: 8, Busy: 1},
			[]Use{{Job: "a", Work: math.Inf(1)}},
			Split{Unattributed: 8, Jobs: []Share{{Job: "a", Energy: 0}}},
		},
		{
			"an odd microjoule goes to the largest remainder",
			Meter{Energy: 10, Busy: 3},
			[]Use{{Job: "a", Work: 1}, {Job: "b", Work: 1}, {Job: "c", Work: 1}},
			Split{Jobs: []Share{{Job: "a", Energy: 4}, {Job: "b", Energy: 3}, {Job: "c", Energy: 3}}},
		},
		{
			"the largest energy there is",
			Meter{Energy: math.MaxInt64, Busy: 2},
			[]Use{{Job: "a", Work: 1}},
			Split{Unattributed: math.MaxInt64 / 2, Jobs: []Share{{Job: "a", Energy: math.MaxInt64/2 + 1}}},
		},
		{
			"contexts cost by their time, what is left by work",
			Meter{Energy: 100 * j, Idle: 40 * j, Context: 30 * j, Held: true},
			[]Use{{Job: "a", Work: 0.5, ContextSeconds: 1}, {Job: "b", ContextSeconds: 0.5}},
			Split{Idle: 40 * j, Jobs: []Share{{Job: "a", Energy: 20*j + 30*j}, {Job: "b", Energy: 10 * j}}},
		},
		{
			"a stranger's context and work are unattributed",
			Meter{Energy: 100 * j, Idle: 40 * j, Context: 30 * j, ContextSeconds: 2, Busy: 1, Held: true},
			[]Use{{Job: "a", Work: 0.75, ContextSeconds: 1}},
			Split{Idle: 40 * j, Unattributed: 15*j + 7*j + j/2, Jobs: []Share{{Job: "a", Energy: 15*j + 22*j + j/2}}},
		},
		{
			"no work was sampled: by the time of the contexts, and that is an estimate",
			Meter{Energy: 90 * j, Idle: 30 * j, Held: true},
			[]Use{{Job: "a", ContextSeconds: 1}, {Job: "b", ContextSeconds: 0.5}},
			Split{Idle: 30 * j, Jobs: []Share{{Job: "a", Energy: 40 * j, Estimated: 40 * j}, {Job: "b", Energy: 20 * j, Estimated: 20 * j}}},
		},
		{
			"work marked as an estimate",
			Meter{Energy: 30 * j, Held: true},
			[]Use{{Job: "a", Work: 2, Estimated: true}, {Job: "b", Work: 1}},
			Split{Jobs: []Share{{Job: "a", Energy: 20 * j, Estimated: 20 * j}, {Job: "b", Energy: 10 * j}}},
		},
		{
			"contexts never cost more than what is active",
			Meter{Energy: 50, Idle: 40, Context: 30, Held: true},
			[]Use{{Job: "a", Work: 1, ContextSeconds: 1}, {Job: "b", ContextSeconds: 1}},
			Split{Idle: 40, Jobs: []Share{{Job: "a", Energy: 5}, {Job: "b", Energy: 5}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Divide(c.m, c.uses)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func drawMeter(t *rapid.T) (Meter, []Use) {
	m := Meter{
		Energy: unit.Energy(rapid.Int64().Draw(t, "energy")), Idle: unit.Energy(rapid.Int64().Draw(t, "idle")),
		Context: unit.Energy(rapid.Int64().Draw(t, "contexts")), ContextSeconds: rapid.Float64().Draw(t, "context seconds"),
		Busy: rapid.Float64().Draw(t, "busy"), Held: rapid.Bool().Draw(t, "held"),
	}
	if rapid.Bool().Draw(t, "usual") {
		m.Energy, m.Idle = m.Energy%(1000*unit.Joule), m.Idle%(1000*unit.Joule)
	}
	uses := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Use {
		amount := rapid.OneOf(rapid.Float64Range(0, 64), rapid.Float64(), rapid.Just(0.0))
		return Use{
			Job: train.JobID(fmt.Sprintf("j%d", rapid.IntRange(0, 20).Draw(t, "job"))), Work: amount.Draw(t, "work"),
			ContextSeconds: amount.Draw(t, "context"), Reserved: amount.Draw(t, "reserved"), Estimated: rapid.Bool().Draw(t, "estimated"),
		}
	}), 0, 40).Draw(t, "uses")
	return m, uses
}

func TestEveryMicrojouleIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, uses := drawMeter(t)
		s := Divide(m, uses)
		if rapid.Bool().Draw(t, "reserved") {
			s.Reserve(uses)
		}
		if s.Sum() != m.Energy {
			t.Fatalf("%+v: %d uJ of %d", s, s.Sum(), m.Energy)
		}
		if s.Reset != (m.Energy < 0) {
			t.Fatalf("reset %v for %d uJ", s.Reset, m.Energy)
		}
		if m.Energy < 0 {
			if s.Unattributed != m.Energy || s.Idle != 0 {
				t.Fatalf("%+v of a reset", s)
			}
			return
		}
		if s.Idle < 0 || s.Unattributed < 0 || s.Idle > max(m.Idle, 0) {
			t.Fatalf("%+v of %+v", s, m)
		}
		for i, j := range s.Jobs {
			if j.Energy < 0 || j.Idle < 0 || j.Estimated > j.Energy || i > 0 && s.Jobs[i-1].Job >= j.Job {
				t.Fatalf("%+v", s.Jobs)
			}
		}
	})
}

func TestTheOrderOfUsesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, uses := drawMeter(t)
		want := Divide(m, uses)
		shuffled := rapid.Permutation(uses).Draw(t, "shuffled")
		if d := cmp.Diff(want, Divide(m, shuffled)); d != "" {
			t.Fatalf("(-want +got)\n%s", d)
		}
	})
}

func TestMoreWorkNeverPaysLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		works := rapid.SliceOfN(rapid.Float64Range(0, 64), 2, 20).Draw(t, "works")
		slices.Sort(works)
		uses := make([]Use, len(works))
		for i, w := range works {
			uses[len(works)-1-i] = Use{Job: train.JobID(fmt.Sprintf("j%02d", len(works)-1-i)), Work: w}
		}
		s := Divide(Meter{Energy: unit.Energy(rapid.Int64Range(0, 1<<50).Draw(t, "energy")), Busy: rapid.Float64Range(0, 2000).Draw(t, "busy")},
			uses)
		for i := 1; i < len(s.Jobs); i++ {
			if s.Jobs[i].Energy > s.Jobs[i-1].Energy {
				t.Fatalf("%v pays more than %v", uses[i], uses[i-1])
			}
		}
	})
}

func TestIdleIsChargedToWhoKeepsTheDevice(t *testing.T) {
	for _, c := range []struct {
		name string
		uses []Use
		want Split
	}{
		{"no job holds it", []Use{{Job: "a", Work: 1}}, Split{Idle: 60, Jobs: []Share{{Job: "a", Energy: 40}}}},
		{"one keeps all of it and does nothing", []Use{{Job: "a", Reserved: 1}, {Job: "b", Work: 1}}, Split{Jobs: []Share{{Job: "a", Idle: 60}, {Job: "b", Energy: 40}}}},
		{
			"a quarter and a half of it are kept",
			[]Use{{Job: "a", Work: 1, Reserved: 0.25}, {Job: "b", Reserved: 0.5}},
			Split{Idle: 15, Jobs: []Share{{Job: "a", Energy: 40, Idle: 15}, {Job: "b", Idle: 30}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Divide(Meter{Energy: 100, Idle: 60, Held: true}, c.uses)
			s.Reserve(c.uses)
			if d := cmp.Diff(c.want, s); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
	reset := Divide(Meter{Energy: -5}, []Use{{Job: "a", Reserved: 1}})
	reset.Reserve([]Use{{Job: "a", Reserved: 1}})
	if reset.Sum() != -5 || reset.Jobs[0].Idle != 0 {
		t.Errorf("%+v of a reset", reset)
	}
}

func TestOverheadFollowsTheJoules(t *testing.T) {
	parts := []Split{
		{Idle: 30, Jobs: []Share{{Job: "a", Energy: 20}, {Job: "b", Energy: 10}}},
		{Unattributed: 20, Jobs: []Share{{Job: "a", Energy: 15, Idle: 5}}},
		{Unattributed: -7, Reset: true},
	}
	want := Split{Idle: 15, Unattributed: 10, Jobs: []Share{{Job: "a", Energy: 20}, {Job: "b", Energy: 5}}}
	if d := cmp.Diff(want, Overhead(50, parts)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got := Overhead(50, nil); got.Idle != 50 || got.Sum() != 50 {
		t.Errorf("%+v of a node on which nothing else is measured", got)
	}
	if got := Overhead(-1, parts); !got.Reset || got.Sum() != -1 {
		t.Errorf("%+v of less than nothing", got)
	}
}

// TestConservationInManyScenarios splits the meters of 100,000 nodes, each with several jobs, under both policies, and
// the plug's remainder.
func TestConservationInManyScenarios(t *testing.T) {
	const scenarios = 100_000
	for seed := range uint64(scenarios) {
		rng := rand.New(rand.NewPCG(seed, 17))
		var parts []Split
		metered, booked := unit.Energy(0), unit.Energy(0)
		for range 1 + rng.IntN(4) {
			m, uses := scenario(rng)
			s := Divide(m, uses)
			if rng.IntN(2) == 0 {
				s.Reserve(uses)
			}
			metered, booked, parts = metered+m.Energy, booked+s.Sum(), append(parts, s)
			if s.Sum() != m.Energy {
				t.Fatalf("seed %d: %d uJ of %+v, used by %+v", seed, s.Sum(), m, uses)
			}
			for _, j := range s.Jobs {
				if j.Energy < 0 || j.Idle < 0 || j.Estimated > j.Energy {
					t.Fatalf("seed %d: share %+v of %+v", seed, j, m)
				}
			}
		}
		beyond := unit.Energy(rng.Int64N(500_000_000))
		booked += Overhead(beyond, parts).Sum()
		if booked != metered+beyond {
			t.Fatalf("seed %d: %d uJ booked, %d metered", seed, booked, metered+beyond)
		}
	}
}

// scenario is one device in one interval: idle, shared, with other processes, with missing samples, and sometimes a
// counter reset.
func scenario(rng *rand.Rand) (Meter, []Use) {
	m := Meter{Energy: unit.Energy(rng.Int64N(700_000_000)), Held: rng.IntN(2) == 0}
	if rng.IntN(20) == 0 {
		m.Energy = -m.Energy
	}
	m.Idle = unit.Energy(rng.Int64N(100_000_000))
	if rng.IntN(2) == 0 {
		m.Context = unit.Energy(rng.Int64N(70_000_000))
		m.ContextSeconds = rng.Float64() * 4
	}
	if rng.IntN(3) == 0 {
		m.Busy = rng.Float64() * 8
	}
	var uses []Use
	for range rng.IntN(9) {
		u := Use{Job: train.JobID(fmt.Sprintf("j%d", rng.IntN(6))), Estimated: rng.IntN(5) == 0, Reserved: float64(rng.IntN(3)) / 2}
		if rng.IntN(3) > 0 {
			u.Work = rng.Float64()
		}
		if rng.IntN(3) > 0 {
			u.ContextSeconds = rng.Float64()
		}
		uses = append(uses, u)
	}
	return m, uses
}
