package probe

import (
	"fmt"
	"maps"
	"slices"
)

// repair adds rows of the pool until no two sets of up to Beta links touch the same rows, or no row of the pool
// distinguishes such sets. The paper uses a virtual link for each union of links, and there are too many unions;
// repair looks only at the few sets that the chosen rows confuse. It reports whether no such sets are left.
func (s *solver) repair() bool {
	for {
		confused := s.confused()
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

// confusionsAtOnce bounds the memory for confused sets: those left out are found again once these are
// distinguished.
const confusionsAtOnce = 1 << 18

// confused lists sets of links that the chosen rows confuse. A link without such a set is never looked at again:
// further rows confuse nothing more.
func (s *solver) confused() []confusion {
	seen := map[string]bool{}
	var all []confusion
	var left []int32
	found := false
	look := &search{matrix: s.chosen, most: s.goal.Beta, yield: func(c confusion) bool {
		slices.Sort(c.a)
		slices.Sort(c.b)
		if slices.Compare(c.a, c.b) > 0 {
			c.a, c.b = c.b, c.a
		}
		found = true
		if name := fmt.Sprint(c); !seen[name] {
			seen[name] = true
			all = append(all, c)
		}
		return len(all) < confusionsAtOnce
	}}
	for i, link := range s.doubtful {
		found = false
		on := look.from(link)
		if found {
			left = append(left, link)
		}
		if !on {
			left = append(left, s.doubtful[i+1:]...)
			break
		}
	}
	s.doubtful = left
	return all
}

// tellApart chooses greedily: always the row that distinguishes the most pairs.
func (s *solver) tellApart(confused []confusion) (added []int32) {
	by := map[int32][]int32{} // row of the pool: the pairs that it tells apart
	for i, c := range confused {
		for _, l := range append(slices.Clone(c.a), c.b...) {
			for _, r := range s.pool.Over(l) {
				row := s.pool.Rows[r]
				if s.key[r] == taken || touches(row, c.a) == touches(row, c.b) {
					continue
				}
				if known := by[r]; len(known) == 0 || known[len(known)-1] != int32(i) {
					by[r] = append(known, int32(i))
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

// confuses reports whether a row would leave links confused with each other that are covered often enough.
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
			look.from(l)
		}
	}
	for _, l := range row {
		s.weight[l]--
	}
	s.chosen.Drop()
	return found
}
