package diagnose

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// ring has a row over each two neighbouring links: every link is on two rows and no two links are on the same rows.
func ring(links int) *fabric.Matrix {
	rows := make([][]int32, links)
	for i := range rows {
		rows[i] = []int32{int32(i), int32((i + 1) % links)}
	}
	return fabric.NewMatrix(links, rows)
}

func sent(rows, each int) []Count {
	counts := make([]Count, rows)
	for i := range counts {
		counts[i].Sent = each
	}
	return counts
}

func links(suspects []Suspect) []int32 {
	var all []int32
	for _, s := range suspects {
		all = append(all, s.Link)
	}
	slices.Sort(all)
	return all
}

func TestLocalise(t *testing.T) {
	for name, c := range map[string]struct {
		lost map[int]int // by row, of 1000; row i has links i and i+1
		want []int32
	}{
		"nothing lost":                      {},
		"background":                        {lost: map[int]int{0: 1, 3: 2, 4: 1}},
		"in full":                           {lost: map[int]int{2: 1000, 3: 1000}, want: []int32{3}},
		"one in a hundred":                  {lost: map[int]int{2: 9, 3: 12}, want: []int32{3}},
		"one row of two blames no link":     {lost: map[int]int{2: 400}},
		"two apart":                         {lost: map[int]int{2: 1000, 3: 1000, 6: 20, 7: 22}, want: []int32{3, 7}},
		"the one between two is let off":    {lost: map[int]int{1: 1000, 2: 1000, 3: 1000, 4: 1000}, want: []int32{2, 4}},
		"the one between two, unequal rows": {lost: map[int]int{1: 300, 2: 310, 3: 30, 4: 29}, want: []int32{2, 4}},
	} {
		counts := sent(10, 1000)
		for r, n := range c.lost {
			counts[r].Lost = n
		}
		if got := links(Localise(ring(10), counts, Options{})); !slices.Equal(got, c.want) {
			t.Errorf("%s: named %v, want %v", name, got, c.want)
		}
	}
}

func TestLossOfALinkIsThatOfTheRowsThatItAloneExplains(t *testing.T) {
	counts := sent(10, 1000)
	counts[2].Lost, counts[3].Lost, counts[4].Lost = 100, 145, 50 // link 3 loses 10 %, link 4 loses 5 %
	got := Localise(ring(10), counts, Options{})
	if len(got) != 2 || got[0].Link != 3 || got[1].Link != 4 || got[0].Loss != 0.1 || got[1].Loss != 0.05 {
		t.Errorf("%+v", got)
	}
	for _, s := range got {
		if s.Confidence <= 0.9 || s.Confidence > 1 || s.Rows != 2 {
			t.Errorf("%+v", s)
		}
	}
}

// Link 3 lost packets and has stopped, and link 4 has begun to: together that looks like link 5, which is on a row of
// each.
func TestWhatAKnownLinkExplainsIsNoEvidenceAgainstOthers(t *testing.T) {
	m := fabric.NewMatrix(9, [][]int32{{3, 5}, {4, 5}, {3, 6}, {4, 7}, {4, 8}})
	counts := sent(5, 100)
	counts[0].Lost, counts[1].Lost = 2, 2
	if got := links(Localise(m, counts, Options{})); !slices.Equal(got, []int32{5}) {
		t.Errorf("named %v: nothing shows link 3", got)
	}
	if got := links(Localise(m, counts, Options{Known: map[int32]bool{3: true}})); slices.Contains(got, 5) {
		t.Errorf("named %v", got)
	}
}

func TestRowsWithoutProbesSayNothing(t *testing.T) {
	counts := sent(10, 1000)
	counts[2] = Count{Sent: 1000, Lost: 500}
	counts[3] = Count{}
	if got := links(Localise(ring(10), counts, Options{})); !slices.Equal(got, []int32{3}) {
		t.Errorf("named %v: of the links of row 2, link 3 has no row that speaks for it", got)
	}
}

// Two nodes probe each other: the link out of one and the link into the other are on the same row. The same holds for
// a network of racks with one node each.
func TestOfLinksOnTheSameRowsOneIsNamedForAll(t *testing.T) {
	for name, c := range map[string]struct {
		rows [][]int32
		lost []int // of 1000
		want []int32
	}{
		"in full":                         {[][]int32{{1, 0}, {2, 3}}, []int{1000, 0}, []int32{0}},
		"some":                            {[][]int32{{1, 0}, {2, 3}}, []int{0, 20}, []int32{2}},
		"both":                            {[][]int32{{1, 0}, {2, 3}}, []int{300, 20}, []int32{0, 2}},
		"three, of several rows":          {[][]int32{{0, 1, 4}, {0, 1, 4}, {2, 3}}, []int{20, 30, 0}, []int32{0}},
		"beside one on other rows":        {[][]int32{{0, 1}, {0, 1, 2}, {2}, {2}}, []int{0, 20, 20, 20}, []int32{2}},
		"beside one that is not quite so": {[][]int32{{0, 1, 2}, {0, 1, 2}, {2}}, []int{20, 20, 0}, []int32{0}},
	} {
		m := fabric.NewMatrix(5, c.rows)
		counts, lags := sent(len(c.rows), 1000), make([]Lag, len(c.rows))
		for r, n := range c.lost {
			counts[r].Lost, lags[r] = n, Lag{Slots: 3}
			if n > 0 {
				lags[r].Slow = 3
			}
		}
		if got := links(Localise(m, counts, Options{})); !slices.Equal(got, c.want) {
			t.Errorf("%s: named %v for losses, want %v", name, got, c.want)
		}
		if got := links(LocaliseSlow(m, lags, Options{})); !slices.Equal(got, c.want) {
			t.Errorf("%s: named %v as slow, want %v", name, got, c.want)
		}
	}
}

func TestAHealthyNetworkIsLeftAlone(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := ring(200)
	named := 0
	for range 500 {
		counts := sent(200, 1000)
		for r := range counts {
			for range 1000 {
				if rnd.Float64() < 1e-4 {
					counts[r].Lost++
				}
			}
		}
		named += len(Localise(m, counts, Options{}))
	}
	if named > 5 { // Doubt is 0.01 of 500
		t.Errorf("%d links named in 500 windows", named)
	}
}

// Whatever the counts, each named link has its own lossy rows, none is named twice, and the rates are fractions.
func TestSuspectsAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "links")
		row := rapid.SliceOfNDistinct(rapid.Int32Range(0, int32(n)-1), 1, min(4, n), rapid.ID)
		m := fabric.NewMatrix(n, rapid.SliceOfN(row, 1, 20).Draw(t, "rows"))
		counts := make([]Count, len(m.Rows))
		for i := range counts {
			counts[i].Sent = rapid.IntRange(0, 1000).Draw(t, "sent")
			counts[i].Lost = rapid.IntRange(0, counts[i].Sent).Draw(t, "lost")
		}
		got := Localise(m, counts, Options{})
		owned := map[int32]int{}
		for _, s := range got {
			for _, r := range m.Over(s.Link) {
				owned[r]++
			}
		}
		for i, s := range got {
			if s.Loss < 0 || s.Loss > 1 || s.Confidence < 0 || s.Confidence > 1 || s.Lost > s.Sent {
				t.Fatalf("%+v", s)
			}
			if slices.ContainsFunc(got[:i], func(o Suspect) bool { return o.Link == s.Link }) {
				t.Fatalf("%d is named twice", s.Link)
			}
			if !slices.ContainsFunc(m.Over(s.Link), func(r int32) bool { return owned[r] == 1 && counts[r].Lost > 0 }) {
				t.Fatalf("%+v explains nothing that the others do not", s)
			}
		}
	})
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		n, k int
		p    float64
	}{{10, 1, 0.01}, {10, 3, 0.2}, {1000, 5, 1e-3}, {20, 20, 0.5}, {50, 30, 0.5}} {
		want := 0.0
		for i := c.k; i <= c.n; i++ {
			choose := 1.0
			for j := range i {
				choose *= float64(c.n-j) / float64(j+1)
			}
			want += choose * math.Pow(c.p, float64(i)) * math.Pow(1-c.p, float64(c.n-i))
		}
		if got := tail(c.n, c.k, c.p); math.Abs(got-want) > 1e-9*want {
			t.Errorf("tail(%d, %d, %g) = %g, want %g", c.n, c.k, c.p, got, want)
		}
	}
	if tail(10, 0, 0.1) != 1 || tail(10, 11, 0.1) != 0 || tail(10, 1, 0.5) != 1 {
		t.Error("the ends are wrong")
	}
}

func TestHealthWaitsForMoreThanOneWindow(t *testing.T) {
	var h Health
	at := time.Unix(0, 0).UTC()
	state := func(suspected, probed bool) string {
		at = at.Add(30 * time.Second)
		w := Window{End: at, Probed: func(int32) bool { return probed }, Slots: func(int32) int { return 2 }}
		if suspected {
			w.Suspects = []Suspect{{Link: 7, Loss: 0.05, Confidence: 0.9}}
		}
		before := h[7].Degraded
		h = h.Fold(w)
		switch now := h[7].Degraded; {
		case now == before:
			return ""
		case now:
			return "degraded"
		default:
			return "recovered"
		}
	}
	for i, step := range []struct {
		suspected, probed bool
		want              string
	}{
		{true, true, ""},           // one window is not enough
		{false, true, ""},          //
		{true, true, "degraded"},   // two of three
		{true, true, ""},           //
		{false, true, ""},          //
		{false, false, ""},         // silence
		{false, true, ""},          //
		{true, true, ""},           // begins again
		{false, true, ""},          //
		{false, true, ""},          //
		{false, true, ""},          //
		{false, true, "recovered"}, // four in a row
		{true, true, ""},
	} {
		if got := state(step.suspected, step.probed); got != step.want {
			t.Errorf("window %d: %q, want %q", i, got, step.want)
		}
		if i == 4 && (!h[7].Since.Equal(time.Unix(30, 0)) || h[7].Loss != 0.05) {
			t.Errorf("%+v", h[7])
		}
	}
	for range 3 {
		state(false, true)
	}
	if len(h) != 0 {
		t.Errorf("links that have been good for long are still held: %+v", h)
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
	var rows [][]int32
	for _, r := range v.Selected {
		rows = append(rows, v.Paths[r])
	}
	m := fabric.NewMatrix(v.Links, rows)
	fail := func(failed ...int32) []int32 {
		counts := sent(len(rows), 10)
		for _, l := range failed {
			for _, r := range m.Over(l) {
				counts[r].Lost = 10
			}
		}
		return links(Localise(m, counts, Options{}))
	}
	inexact := 0
	for a := range int32(v.Links) {
		if got := fail(a); !slices.Equal(got, []int32{a}) {
			t.Errorf("link %d failed, named %v", a, got)
		}
		for b := a + 1; b < int32(v.Links); b++ {
			if !slices.Equal(fail(a, b), []int32{a, b}) {
				inexact++
			}
		}
	}
	t.Logf("%d of 496 pairs are not exact, recorded are 44", inexact)
	if inexact > 44 {
		t.Errorf("%d of 496 pairs are not exact", inexact)
	}
}
