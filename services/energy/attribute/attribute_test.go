package attribute

import (
	"fmt"
	"math"
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
		{"nobody works, nothing but idle", Meter{Energy: 10 * j, Idle: 10 * j}, nil, Split{Idle: 10 * j, Jobs: []Share{}}},
		{"the rest of the machine works", Meter{Energy: 16 * j, Idle: 10 * j, Busy: 1}, nil, Split{Idle: 10 * j, Unattributed: 6 * j, Jobs: []Share{}}},
		{
			"a job does a third of the work",
			Meter{Energy: 19 * j, Idle: 10 * j, Busy: 1.5},
			[]Use{{"a", 0.5}},
			Split{Idle: 10 * j, Unattributed: 6 * j, Jobs: []Share{{"a", 3 * j}}},
		},
		{
			"a job that did nothing pays nothing",
			Meter{Energy: 16 * j, Idle: 10 * j, Busy: 1},
			[]Use{{"a", 0}},
			Split{Idle: 10 * j, Unattributed: 6 * j, Jobs: []Share{{"a", 0}}},
		},
		{
			"jobs did more than was seen of all: the times are read one after the other",
			Meter{Energy: 16 * j, Idle: 10 * j, Busy: 1},
			[]Use{{"a", 1}, {"b", 2}},
			Split{Idle: 10 * j, Jobs: []Share{{"a", 2 * j}, {"b", 4 * j}}},
		},
		{
			"two attempts of a job are one job",
			Meter{Energy: 6 * j, Busy: 3},
			[]Use{{"a", 1}, {"b", 1}, {"a", 1}},
			Split{Jobs: []Share{{"a", 4 * j}, {"b", 2 * j}}},
		},
		{
			"the only tenant of a GPU pays what is active",
			Meter{Energy: 100 * j, Idle: 60 * j, Held: true},
			[]Use{{"a", 0}},
			Split{Idle: 60 * j, Jobs: []Share{{"a", 40 * j}}},
		},
		{
			"tenants that did nothing share alike",
			Meter{Energy: 7, Held: true},
			[]Use{{"b", 0}, {"a", 0}},
			Split{Jobs: []Share{{"a", 4}, {"b", 3}}},
		},
		{
			"idle is never more than all",
			Meter{Energy: 5, Idle: 9, Busy: 1},
			[]Use{{"a", 1}},
			Split{Idle: 5, Jobs: []Share{{"a", 0}}},
		},
		{
			"a counter began anew",
			Meter{Energy: -3 * j, Idle: j, Busy: 1},
			[]Use{{"a", 1}},
			Split{Unattributed: -3 * j, Jobs: []Share{{"a", 0}}, Reset: true},
		},
		{
			"work that is no number",
			Meter{Energy: 8, Busy: 1},
			[]Use{{"a", math.NaN()}, {"b", -1}},
			Split{Unattributed: 8, Jobs: []Share{{"a", 0}, {"b", 0}}},
		},
		{
			"work beyond all numbers",
			Meter{Energy: 8, Busy: 1},
			[]Use{{"a", math.Inf(1)}},
			Split{Unattributed: 8, Jobs: []Share{{"a", 0}}},
		},
		{
			"an odd microjoule goes to the largest remainder",
			Meter{Energy: 10, Busy: 3},
			[]Use{{"a", 1}, {"b", 1}, {"c", 1}},
			Split{Jobs: []Share{{"a", 4}, {"b", 3}, {"c", 3}}},
		},
		{
			"the largest energy there is",
			Meter{Energy: math.MaxInt64, Busy: 2},
			[]Use{{"a", 1}},
			Split{Unattributed: math.MaxInt64 / 2, Jobs: []Share{{"a", math.MaxInt64/2 + 1}}},
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
		Busy: rapid.Float64().Draw(t, "busy"), Held: rapid.Bool().Draw(t, "held"),
	}
	if rapid.Bool().Draw(t, "usual") {
		m.Energy, m.Idle = m.Energy%(1000*unit.Joule), m.Idle%(1000*unit.Joule)
	}
	uses := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Use {
		return Use{train.JobID(fmt.Sprintf("j%d", rapid.IntRange(0, 20).Draw(t, "job"))), rapid.OneOf(
			rapid.Float64Range(0, 64), rapid.Float64(), rapid.Just(0.0),
		).Draw(t, "work")}
	}), 0, 40).Draw(t, "uses")
	return m, uses
}

func TestEveryMicrojouleIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, uses := drawMeter(t)
		s := Divide(m, uses)
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
			if j.Energy < 0 || i > 0 && s.Jobs[i-1].Job >= j.Job {
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
			uses[len(works)-1-i] = Use{train.JobID(fmt.Sprintf("j%02d", len(works)-1-i)), w}
		}
		s := Divide(Meter{Energy: unit.Energy(rapid.Int64Range(0, 1<<50).Draw(t, "energy")), Busy: rapid.Float64Range(0, 2000).Draw(t, "busy")}, uses)
		for i := 1; i < len(s.Jobs); i++ {
			if s.Jobs[i].Energy > s.Jobs[i-1].Energy {
				t.Fatalf("%v pays more than %v", uses[i], uses[i-1])
			}
		}
	})
}
