package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// truth is what a matrix has, by trying every set of links: a second opinion on Check and on all that is built.
func truth(links int, rows [][]int32, most int) (alpha, beta int) {
	alpha = len(rows)
	over := make([]map[int]bool, links)
	for l := range over {
		over[l] = map[int]bool{}
	}
	for r, row := range rows {
		for _, l := range row {
			over[l][r] = true
		}
	}
	for l := range over {
		alpha = min(alpha, len(over[l]))
	}
	seen := map[string]bool{fmt.Sprint(make([]bool, len(rows))): true}
	for size := 1; size <= most; size++ {
		confused := false
		var try func(first int, set []int)
		try = func(first int, set []int) {
			if len(set) == size {
				touched := make([]bool, len(rows))
				for _, l := range set {
					for r := range over[l] {
						touched[r] = true
					}
				}
				key := fmt.Sprint(touched)
				confused = confused || seen[key]
				seen[key] = true
				return
			}
			for l := first; l < links; l++ {
				try(l+1, append(slices.Clone(set), l))
			}
		}
		try(0, nil)
		if confused {
			return alpha, size - 1
		}
	}
	return alpha, min(most, links)
}

func TestPublishedExample(t *testing.T) {
	rows := [][]int32{{0, 1}, {0, 2}}
	if alpha, beta := Check(fabric.NewMatrix(3, rows), 2); alpha != 1 || beta != 1 {
		t.Errorf("alpha %d, beta %d, want 1 and 1", alpha, beta)
	}
	if got := Choose(3, [][]int32{{0, 1}, {0, 2}, {1, 2}}, Goal{Alpha: 1, Beta: 1}, nil); len(got) != 2 {
		t.Errorf("chose %v, want two of the three", got)
	}
}

func TestCheckAgreesWithTryingAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links, rows := drawRows(t)
		most := rapid.IntRange(1, 3).Draw(t, "most")
		most = min(most, links)
		alpha, beta := Check(fabric.NewMatrix(links, rows), most)
		if a, b := truth(links, rows, most); alpha != a || beta != b {
			t.Fatalf("Check says %d, %d; truth is %d, %d; rows %v", alpha, beta, a, b, rows)
		}
	})
}

func drawRows(t *rapid.T) (int, [][]int32) {
	links := rapid.IntRange(1, 9).Draw(t, "links")
	row := rapid.SliceOfNDistinct(rapid.Int32Range(0, int32(links)-1), 1, min(4, links), rapid.ID)
	return links, rapid.SliceOfN(row, 1, 20).Draw(t, "rows")
}

// What the chosen rows have is what all candidates together have, up to the goal: greed costs rows and never a
// property.
func checkReached(t interface{ Fatalf(string, ...any) }, links int, all, chosen [][]int32, goal Goal) {
	mostAlpha, mostBeta := truth(links, all, goal.Beta)
	alpha, beta := truth(links, chosen, goal.Beta)
	if alpha < min(goal.Alpha, mostAlpha) || beta < min(goal.Beta, mostBeta) {
		t.Fatalf("goal %+v, reached %d and %d, all candidates have %d and %d", goal, alpha, beta, mostAlpha, mostBeta)
	}
}

func TestChosenRowsReachWhatCanBeReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links, rows := drawRows(t)
		goal := Goal{Alpha: rapid.IntRange(1, 3).Draw(t, "alpha"), Beta: rapid.IntRange(0, min(3, links)).Draw(t, "beta")}
		chosen := Choose(links, rows, goal, nil)
		checkReached(t, links, rows, pickRows(rows, chosen), goal)
		if again := Choose(links, rows, goal, nil); !slices.Equal(chosen, again) {
			t.Fatalf("chose %v, then %v", chosen, again)
		}
		for _, r := range Choose(links, rows, goal, chosen) {
			if !slices.Contains(chosen, r) {
				t.Fatalf("row %d is new though nothing has changed", r)
			}
		}
	})
}

func pickRows(rows [][]int32, chosen []int) [][]int32 {
	var picked [][]int32
	for _, r := range chosen {
		picked = append(picked, rows[r])
	}
	return picked
}

func TestGeneratedNetworks(t *testing.T) {
	for _, word := range []string{"fattree:4", "fattree:6", "vl2:4,4,1", "vl2:8,4,1", "bcube:2,2", "bcube:4,1", "bcube:3,2"} {
		for _, directed := range []bool{false, true} {
			for _, goal := range []Goal{{Alpha: 1}, {Alpha: 3}, {Alpha: 1, Beta: 1}, {Alpha: 2, Beta: 1}, {Alpha: 3, Beta: 1}, {Alpha: 1, Beta: 2}, {Alpha: 3, Beta: 2}} {
				_, p, _, err := fabric.Generate(word, directed)
				if err != nil {
					t.Fatal(err)
				}
				var all [][]int32
				for i := range p.Rounds {
					all = append(all, p.Round(i)...)
				}
				all = replicate(all, p.Links, p.Parts)
				rows := Plan(p, goal)
				alpha, beta := Check(fabric.NewMatrix(p.Links*p.Parts, rows), goal.Beta)
				trueAlpha, trueBeta := truth(p.Links*p.Parts, rows, goal.Beta)
				if alpha != trueAlpha || beta != trueBeta {
					t.Errorf("%s %t %+v: Check says %d, %d; truth is %d, %d", word, directed, goal, alpha, beta, trueAlpha, trueBeta)
				}
				// Whether all candidates would do better, Check may say: it was just held against the truth, and on
				// millions of sets trying all is slow.
				mostAlpha, mostBeta := Check(fabric.NewMatrix(p.Links*p.Parts, all), goal.Beta)
				if alpha < min(goal.Alpha, mostAlpha) || beta < min(goal.Beta, mostBeta) {
					t.Errorf("%s %t %+v: reached %d, %d, all candidates have %d, %d", word, directed, goal, alpha, beta, mostAlpha, mostBeta)
				}
			}
		}
	}
}

func TestPathsAreNoMoreThanPublished(t *testing.T) {
	_, p, err := fabric.FatTree(18, false)
	if err != nil {
		t.Fatal(err)
	}
	for goal, most := range map[Goal]int{{Alpha: 1}: 729, {Alpha: 2}: 1485, {Alpha: 3}: 2187, {Alpha: 1, Beta: 1}: 1269, {Alpha: 1, Beta: 2}: 1512} {
		rows := Plan(p, goal)
		alpha, beta := Check(fabric.NewMatrix(p.Links*p.Parts, rows), goal.Beta)
		t.Logf("alpha %d, beta %d: %d paths, published %d", goal.Alpha, goal.Beta, len(rows), most)
		if len(rows) > most || alpha < goal.Alpha || beta < goal.Beta {
			t.Errorf("%+v: %d paths with %d, %d, want %d at most", goal, len(rows), alpha, beta, most)
		}
	}
}

func TestLargeNetworksAreWhole(t *testing.T) {
	for _, word := range []string{"fattree:72", "vl2:140,120,100", "bcube:8,4"} {
		_, p, _, err := fabric.Generate(word, false)
		if err != nil {
			t.Fatal(err)
		}
		rows := Plan(p, Goal{Alpha: 2, Beta: 1})
		if alpha, beta := Check(fabric.NewMatrix(p.Links*p.Parts, rows), 1); alpha != 2 || beta != 1 {
			t.Errorf("%s: %d paths with %d, %d", word, len(rows), alpha, beta)
		}
	}
}

// A path that is gone costs the rows that ran over it, and few others change.
func TestChoiceIsStable(t *testing.T) {
	topology, _, err := fabric.FatTree(6, true)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := topology.Routes(true)
	if err != nil {
		t.Fatal(err)
	}
	p := topology.Candidates(routes, true)
	rows := p.Round(0)
	for _, goal := range []Goal{{Alpha: 3, Beta: 1}, {Alpha: 1, Beta: 2}} {
		before := Choose(p.Links, rows, goal, nil)
		gone := int32(17)
		var left [][]int32
		index := map[int]int{}
		var kept []int
		for r, row := range rows {
			if !slices.Contains(row, gone) {
				index[r] = len(left)
				left = append(left, row)
			}
		}
		for _, r := range before {
			if at, still := index[r]; still {
				kept = append(kept, at)
			}
		}
		after := Choose(p.Links, left, goal, kept)
		fresh := 0
		for _, r := range after {
			if !slices.Contains(kept, r) {
				fresh++
			}
		}
		if fresh > 4*(len(before)-len(kept)) {
			t.Errorf("%+v: %d of %d rows are gone and %d new ones came", goal, len(before)-len(kept), len(before), fresh)
		}
	}
}

func TestRecordedVectors(t *testing.T) {
	data := os.Getenv("SWITCHYARD_DATA")
	if data == "" {
		t.Skip("SWITCHYARD_DATA names no folder of recorded data")
	}
	text, err := os.ReadFile(filepath.Join(data, "detector", "pmc_pll_vectors_fattree.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Links    int       `json:"links"`
		Paths    [][]int32 `json:"paths"`
		Selected []int     `json:"selected"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if alpha, beta := Check(fabric.NewMatrix(v.Links, pickRows(v.Paths, v.Selected)), 2); alpha != 3 || beta != 1 {
		t.Errorf("the recorded choice has %d and %d", alpha, beta)
	}
	chosen := Choose(v.Links, v.Paths, Goal{Alpha: 3, Beta: 1}, nil)
	checkReached(t, v.Links, v.Paths, pickRows(v.Paths, chosen), Goal{Alpha: 3, Beta: 1})
	if len(chosen) > len(v.Selected) {
		t.Errorf("chose %d rows, recorded are %d", len(chosen), len(v.Selected))
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, word := range []string{"fattree:12", "fattree:24", "fattree:72", "vl2:40,24,40", "vl2:140,120,100", "bcube:8,4"} {
		b.Run(word, func(b *testing.B) {
			for b.Loop() {
				_, p, _, err := fabric.Generate(word, false)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(Plan(p, Goal{Alpha: 2, Beta: 1}))), "paths")
			}
		})
	}
}
