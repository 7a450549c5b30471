package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// blockCase is one case of testdata/blocks.json, which the Python package's test reads, too.
type blockCase struct {
	Name      string     `json:"name"`
	Servers   int        `json:"servers"`
	Sizes     []int64    `json:"sizes"`
	Slices    [][4]int64 `json:"slices"` // block, server, offset, size
	Published *struct {
		Requests int     `json:"requests"`
		Spread   float64 `json:"spread_percent"`
	} `json:"published"`
}

func TestBlocksAreBalanced(t *testing.T) {
	data, err := os.ReadFile("testdata/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []blockCase
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatal(len(cases), err)
	}
	published := 0
	for _, c := range cases {
		placed, err := BalanceBlocks(c.Sizes, c.Servers)
		if err != nil {
			t.Fatal(c.Name, err)
		}
		got := make([][4]int64, len(placed))
		for i, s := range placed {
			got[i] = [4]int64{int64(s.Block), int64(s.Server), s.Offset, s.Size}
		}
		if !slices.Equal(got, c.Slices) {
			t.Errorf("%s: got\n%v, want\n%v", c.Name, got, c.Slices)
		}
		if c.Published == nil {
			continue
		}
		published++
		load, total := make([]int64, c.Servers), int64(0)
		for _, s := range placed {
			load[s.Server] += s.Size
			total += s.Size
		}
		spread := 100 * float64(slices.Max(load)-slices.Min(load)) * float64(c.Servers) / float64(total)
		digits := 100.0 // as many as were published
		if c.Published.Spread > 1 {
			digits = 10
		}
		if len(placed) != c.Published.Requests || math.Round(spread*digits) != math.Round(c.Published.Spread*digits) {
			t.Errorf("%s: %d requests, spread %.3f %%; published are %d and %g %%", c.Name, len(placed), spread, c.Published.Requests, c.Published.Spread)
		}
	}
	if published != 2 {
		t.Errorf("%d published figures, want 2", published)
	}
}

func TestEverySliceIsPlacedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 1<<30), 0, 60).Draw(t, "sizes")
		servers := rapid.IntRange(1, 12).Draw(t, "servers")
		placed, err := BalanceBlocks(sizes, servers)
		if err != nil {
			t.Fatal(err)
		}
		next, load, total, largest := make([]int64, len(sizes)), make([]int64, servers), int64(0), int64(0)
		seen := make([]bool, len(sizes))
		for _, s := range placed {
			if s.Server < 0 || s.Server >= servers || s.Offset != next[s.Block] {
				t.Fatalf("slice %+v does not follow offset %d", s, next[s.Block])
			}
			next[s.Block] += s.Size
			load[s.Server] += s.Size
			total += s.Size
			largest = max(largest, s.Size)
			seen[s.Block] = true
		}
		for i, size := range sizes {
			if next[i] != size || !seen[i] {
				t.Fatalf("block %d has %d of %d", i, next[i], size)
			}
		}
		// As with any list scheduling, no server has more than the mean and one slice; the small ones, placed by count, add at most 1 % each.
		small := total / int64(servers) / 100 * int64(len(sizes))
		if most := slices.Max(load); most > total/int64(servers)+largest+small+1 {
			t.Fatalf("load %v of %d", load, total)
		}
	})
}

func TestBlocksThatCannotBeBalanced(t *testing.T) {
	for _, c := range []struct {
		sizes   []int64
		servers int
	}{{[]int64{1}, 0}, {[]int64{1}, -1}, {[]int64{-1}, 2}, {[]int64{math.MaxInt64}, 2}, {[]int64{1 << 55, 1 << 55}, 2}} {
		if s, err := BalanceBlocks(c.sizes, c.servers); err == nil {
			t.Error(fmt.Sprint(c), s)
		}
	}
}
