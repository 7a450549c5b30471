package probe

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// repair adds rows of the pool until no two sets of up to Beta links touch the same rows, or none of the pool tells such sets apart. Instead of a virtual link for
// each union of links, of which there are too many, only the sets that the chosen rows confuse are looked at: they are few. It returns whether none is left.
func (s *solver) repair() bool {
	for {
		confused := distinct(s.chosen, s.goal.Beta)
		if len(confused) == 0 {
			return true
		}
		added := s.tellApart(confused)
		if len(added) == 0 {
			return false
		}
		for _, r := range added {
			s.pick(r, func(int32) {})
		}
	}
}

// confusionsAtOnce bounds the memory for sets that are confused: those that were left out are found again when these are told apart.
const confusionsAtOnce = 1 << 18

func distinct(in *fabric.Matrix, most int) []confusion {
	seen := map[string]bool{}
	var all []confusion
	confusions(in, most, func(c confusion) bool {
		slices.Sort(c.a)
		slices.Sort(c.b)
		if slices.Compare(c.a, c.b) > 0 {
			c.a, c.b = c.b, c.a
		}
		if name := fmt.Sprint(c); !seen[name] {
			seen[name] = true
			all = append(all, c)
		}
		return len(all) < confusionsAtOnce
	})
	return all
}

// tellApart chooses greedily: always the row that tells the most of the pairs apart.
func (s *solver) tellApart(confused []confusion) (added []int32) {
	by := map[int32][]int32{} // row of the pool: the pairs that it tells apart
	for i, c := range confused {
		for _, l := range append(slices.Clone(c.a), c.b...) {
			for _, r := range s.pool.Over(l) {
				row := s.pool.Rows[r]
				if s.key[r] != taken && touches(row, c.a) != touches(row, c.b) && !slices.Contains(by[r], int32(i)) {
					by[r] = append(by[r], int32(i))
				}
			}
		}
	}
	var q queue
	keys := make([]int32, len(s.key))
	value := func(r int32) int32 { return int32(len(confused) - len(by[r])) }
	for _, r := range slices.Sorted(maps.Keys(by)) {
		keys[r] = value(r)
		q.push(keys[r], r)
	}
	done := make([]bool, len(confused))
	for {
		r, ok := q.pop(keys)
		if !ok {
			return added
		}
		by[r] = slices.DeleteFunc(by[r], func(i int32) bool { return done[i] })
		if len(by[r]) == 0 {
			continue
		}
		if v := value(r); v > keys[r] {
			keys[r] = v
			q.push(v, r)
			continue
		}
		for _, i := range by[r] {
			done[i] = true
		}
		added = append(added, r)
	}
}

// confuses tells whether a row would leave links that are covered often enough confused with each other.
func (s *solver) confuses(row []int32) bool {
	enough := int32(s.goal.Alpha)
	s.chosen.Add(row)
	for _, l := range row {
		s.weight[l]++
	}
	found := false
	look := search{matrix: s.chosen, most: s.goal.Beta, skip: func(l int32) bool { return s.weight[l] < enough }, yield: func(confusion) bool {
		found = true
		return false
	}}
	for _, l := range row {
		if s.weight[l] == enough && !found {
			look.a, look.b = append(look.a[:0], l), look.b[:0]
			look.explain()
		}
	}
	for _, l := range row {
		s.weight[l]--
	}
	s.chosen.Drop()
	return found
}

// finish takes, of the rows that were set aside, those that are still of use.
func (s *solver) finish() {
	for r := range s.key {
		if s.key[r] == aside {
			s.key[r] = unrated
			s.rate(int32(r))
		}
	}
	for {
		r, ok := s.queue.pop(s.key)
		if !ok {
			return
		}
		if key, useful := s.value(s.pool.Rows[r]); !useful {
			s.key[r] = useless
		} else if key != s.key[r] {
			s.key[r] = key
			s.queue.push(key, r)
		} else {
			s.pick(r, func(int32) {})
		}
	}
}
