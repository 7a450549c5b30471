package plan

import (
	"cmp"
	"slices"
)

// spot is a device by its numbers on the board.
type spot struct{ node, device int }

func compareSpots(x, y spot) int {
	return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.device, y.device))
}

// spots are devices of one node in order; none where a job has no device.
type spots []spot

func (s spots) somewhere() bool { return len(s) > 0 }

func (s spots) has(at spot) bool { return slices.Contains(s, at) }

// within says whether all of them are among others.
func (s spots) within(others spots) bool {
	return !slices.ContainsFunc(s, func(at spot) bool { return !others.has(at) })
}

// meets says whether any of them is among others.
func (s spots) meets(others spots) bool { return slices.ContainsFunc(s, others.has) }
