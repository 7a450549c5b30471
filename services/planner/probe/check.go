package probe

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Check returns what a matrix achieves: the least number of rows over a link, and the greatest number of
// simultaneous failures (at most most) for which no two sets of failed links touch the same rows. It is exact at
// any size, and shares nothing with the construction but the incidence.
//
// Two different sets S and T touch the same rows only if some link x is in S and not in T. Each row over x then
// needs a link of T, each row over that link needs a link of S, and so on: the search adds one of the links of such
// a row, at most `most` to each side, until nothing is left to explain. Rows are short, so a link costs constant
// time.
func Check(m *fabric.Matrix, most int) (alpha, beta int) {
	alpha = len(m.Rows)
	for l := range m.Links() {
		alpha = min(alpha, len(m.Over(int32(l))))
	}
	for beta < most && !anyConfusion(m, beta+1) {
		beta++
	}
	return alpha, beta
}

// confusion is two sets of links whose failures touch the same rows.
type confusion struct{ a, b []int32 }

func anyConfusion(m *fabric.Matrix, most int) bool {
	s := &search{matrix: m, most: most, yield: func(confusion) bool { return false }}
	for x := range m.Links() {
		if !s.from(int32(x)) {
			return true
		}
	}
	return false
}

type search struct {
	matrix *fabric.Matrix
	most   int
	yield  func(confusion) bool
	skip   func(link int32) bool // links that come into neither; nil: none
	a, b   []int32               // a[0] never comes into b
	room   [][]int32             // scratch, by how many links both sides have
}

// from yields pairs of sets of up to most links that touch the same rows; only the first contains the link. It
// stops when yield returns false. If such pairs exist it yields some, maybe more than once. yield may keep the
// sets.
func (s *search) from(link int32) bool {
	s.a, s.b = append(s.a[:0], link), s.b[:0]
	return s.explain()
}

// explain adds links until both sides touch the same rows. It returns false to end the search.
func (s *search) explain() bool {
	if links, missing := s.missing(s.a, s.b); missing {
		return s.try(links, &s.b)
	}
	if links, missing := s.missing(s.b, s.a); missing {
		return s.try(links, &s.a)
	}
	return s.yield(confusion{a: slices.Clone(s.a), b: slices.Clone(s.b)})
}

// try adds each of some links to a side.
func (s *search) try(links []int32, side *[]int32) bool {
	for _, l := range links {
		if side == &s.b && l == s.a[0] || s.skip != nil && s.skip(l) {
			continue
		}
		*side = append(*side, l)
		on := s.explain()
		*side = (*side)[:len(*side)-1]
		if !on {
			return false
		}
	}
	return true
}

// missing reports whether the links touch rows that none of the others touches, and the further links that may mend
// this: any link of such a row, or, if only one more may be added, the links common to all such rows.
func (s *search) missing(these, others []int32) (links []int32, missing bool) {
	for _, l := range these {
		for _, r := range s.matrix.Over(l) {
			row := s.matrix.Rows[r]
			switch {
			case touches(row, others):
				continue
			case len(others) == s.most:
				return nil, true
			case len(others) < s.most-1:
				return row, true
			case !missing:
				links, missing = row, true
			default:
				if links = s.both(links, row); len(links) == 0 {
					return nil, true
				}
			}
		}
	}
	return links, missing
}

// both returns the links that two rows share.
func (s *search) both(x, y []int32) []int32 {
	at := len(s.a) + len(s.b)
	for len(s.room) <= at {
		s.room = append(s.room, nil)
	}
	common := s.room[at][:0]
	for _, l := range x {
		if slices.Contains(y, l) {
			common = append(common, l)
		}
	}
	s.room[at] = common
	return common
}

func touches(row, links []int32) bool {
	for _, l := range links {
		if slices.Contains(row, l) {
			return true
		}
	}
	return false
}
