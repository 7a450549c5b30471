package diagnose

import (
	"maps"
	"slices"
)

// Ends are where the probes of a row start and arrive.
type Ends struct {
	From, To string
}

// Silent lists the ends between which and all others no probe passed, in either direction, of at least three others: what died there is the node and no link that
// others use. Their rows would accuse the links on the way.
func Silent(ends []Ends, counts []Count) []string {
	others := map[string]map[string]bool{} // end: those that it was probed with
	heard := map[string]bool{}
	meet := func(end, other string) {
		if others[end] == nil {
			others[end] = map[string]bool{}
		}
		others[end][other] = true
	}
	for r, e := range ends {
		n := counts[r]
		if n.Sent == 0 {
			continue
		}
		meet(e.From, e.To)
		meet(e.To, e.From)
		if n.Lost < n.Sent {
			heard[e.From], heard[e.To] = true, true
		}
	}
	var silent []string
	for _, end := range slices.Sorted(maps.Keys(others)) {
		if !heard[end] && len(others[end]) >= 3 {
			silent = append(silent, end)
		}
	}
	return silent
}

// Without gives the counts with nothing sent on the rows that start or arrive at one of the ends.
func Without(silent []string, ends []Ends, counts []Count) []Count {
	left := slices.Clone(counts)
	for r, e := range ends {
		if slices.Contains(silent, e.From) || slices.Contains(silent, e.To) {
			left[r] = Count{}
		}
	}
	return left
}
