package probe

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Check says what a matrix truly has: the least number of rows over a link, and up to which number of links that fail at once (no more than most) no two sets of
// failures touch the same rows. It is exact whatever the size, and shares nothing with the construction but the incidence.
//
// Two sets S and T touch the same rows and differ: then some link x is in S and not in T. Each row over x needs a link of T, each row over that one a link
// of S, and so on: the search adds one of the links of such a row, at most `most` to each side, until nothing is left to explain. Rows are short, so a link costs
// a constant.
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
	found := false
	confusions(m, most, func(confusion) bool {
		found = true
		return false
	})
	return found
}

// confusions shows every two sets of up to most links that touch the same rows, some of them more than once, until yield returns false. The sets are yield's to keep.
func confusions(m *fabric.Matrix, most int, yield func(confusion) bool) {
	s := &search{matrix: m, most: most, yield: yield}
	for x := range m.Links() {
		s.a, s.b = append(s.a[:0], int32(x)), s.b[:0]
		if !s.explain() {
			return
		}
	}
}

type search struct {
	matrix *fabric.Matrix
	most   int
	yield  func(confusion) bool
	skip   func(link int32) bool // links that come into neither; nil: none
	a, b   []int32               // a[0] never comes into b
}

// explain adds links until both sides touch the same rows. It returns false when it shall end.
func (s *search) explain() bool {
	if row := s.missing(s.a, s.b); row != nil {
		return s.try(row, &s.b)
	}
	if row := s.missing(s.b, s.a); row != nil {
		return s.try(row, &s.a)
	}
	return s.yield(confusion{a: slices.Clone(s.a), b: slices.Clone(s.b)})
}

// try adds each link of the row to a side that has room.
func (s *search) try(row []int32, side *[]int32) bool {
	if len(*side) == s.most {
		return true
	}
	for _, l := range row {
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

// missing is a row that links of these touch and none of the others does.
func (s *search) missing(these, others []int32) []int32 {
	for _, l := range these {
		for _, r := range s.matrix.Over(l) {
			if row := s.matrix.Rows[r]; !touches(row, others) {
				return row
			}
		}
	}
	return nil
}

func touches(row, links []int32) bool {
	for _, l := range links {
		for _, m := range row {
			if l == m {
				return true
			}
		}
	}
	return false
}
