package probe

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// solver is the state of one construction: how often each link is covered, and the sets of links that no chosen row
// distinguishes. Uncovered links are set 0. Candidates come one pool at a time; only take changes the set and
// weight of a link.
type solver struct {
	goal   Goal
	weight []int32
	set    []int32
	size   []int32   // by set
	lists  [][]int32 // by set, but for set 0
	spare  []int32   // scratch: how many links of a set a row has, zero outside of a call
	touch  []int32   // scratch: the sets of a row

	chosen *fabric.Matrix
	// doubtful are the links that the chosen rows may confuse with others, if sets of links are to be
	// distinguished.
	doubtful []int32

	pool   *fabric.Matrix
	picked []int32 // of the pool, in the order of choice
	key    []int32 // by row of the pool: its place in the queue, or one of the below
	queue  queue
}

// These stand instead of a position in the queue.
const (
	taken   = -1
	useless = -2
	unrated = -3
	aside   = -4
)

// newSolver starts with nothing chosen. To distinguish Beta links that fail at once, each needs at least Beta rows:
// with fewer, links that share its rows hide it.
func newSolver(links int, goal Goal) *solver {
	if goal.Beta > 1 {
		goal.Alpha = max(goal.Alpha, goal.Beta)
	}
	s := &solver{
		goal: goal, weight: make([]int32, links), set: make([]int32, links), chosen: fabric.NewMatrix(links, nil), doubtful: make([]int32, links),
		size: []int32{int32(links)}, lists: [][]int32{nil}, spare: []int32{0},
	}
	for l := range s.doubtful {
		s.doubtful[l] = int32(l)
	}
	return s
}

// done reports whether every link is covered as often as required and, for single links, distinguished from all
// others.
func (s *solver) done() bool {
	return slices.Min(s.weight) >= int32(s.goal.Alpha) && (s.goal.Beta == 0 || len(s.size)-1 == len(s.set))
}

// value is the merit of a row, less being better. useful reports whether it covers a link that needs it or
// distinguishes links. It is the score of the paper: the sum of weights minus the sets on the row. If one cover is
// enough it is refined: only sets that the row splits count, and among equal scores the row that splits more comes
// first, since a row with one new link and three that it distinguishes settles all of them, whereas four new links
// need three further splits. If links need more covers, rows over uncovered links come first among equals, so that
// covers are even.
func (s *solver) value(row []int32) (key int32, useful bool) {
	sum, fresh := int32(0), int32(0)
	for _, l := range row {
		sum += s.weight[l]
		useful = useful || s.weight[l] < int32(s.goal.Alpha)
		if s.weight[l] == 0 {
			fresh++
		}
	}
	if s.goal.Beta == 0 {
		return reach * sum / int32(len(row)), useful
	}
	splits, sets := s.splits(row)
	useful = useful || splits > 0
	if s.goal.Alpha > 1 {
		return (sum-sets+reach)*reach + reach - 1 - fresh, useful
	}
	return (sum-splits+reach)*reach + reach - 1 - splits, useful
}

// reach is more than the links of any row: a path of packets has fewer hops.
const reach = 256

// splits counts the sets of which the row has some links and not all. Set 0 is split whenever the row has a link of
// it, since a covered link leaves it.
func (s *solver) splits(row []int32) (splits, sets int32) {
	s.tally(row)
	for _, g := range s.touch {
		if s.halved(g) {
			splits++
		}
		s.spare[g] = 0
	}
	return splits, int32(len(s.touch))
}

// tally lists the sets of a row in touch, and counts in spare how many links of each the row has.
func (s *solver) tally(row []int32) {
	s.touch = s.touch[:0]
	for _, l := range row {
		if s.spare[s.set[l]]++; s.spare[s.set[l]] == 1 {
			s.touch = append(s.touch, s.set[l])
		}
	}
}

func (s *solver) halved(set int32) bool { return set == 0 || s.spare[set] < s.size[set] }

// take chooses a row and reports each link whose weight, set or size of set changes.
func (s *solver) take(row []int32, changed func(link int32)) {
	for _, l := range row {
		s.weight[l]++
	}
	if s.goal.Beta > 0 {
		s.split(row)
	}
	for _, l := range row {
		changed(l)
	}
	if s.goal.Beta == 0 {
		return
	}
	for _, g := range s.touch {
		for _, l := range s.lists[g] {
			changed(l)
		}
	}
}

// split moves the links of the row out of their sets into new ones, and leaves in touch the sets that lost links.
func (s *solver) split(row []int32) {
	s.tally(row)
	fresh := make([]int32, len(s.touch))
	for i, g := range s.touch {
		fresh[i] = g
		if s.halved(g) {
			fresh[i] = int32(len(s.size))
			s.size, s.lists, s.spare = append(s.size, 0), append(s.lists, nil), append(s.spare, 0)
		}
	}
	for _, l := range row {
		for i, g := range s.touch {
			if s.set[l] != g || fresh[i] == g {
				continue
			}
			s.size[g]--
			s.leave(g, l)
			s.set[l] = fresh[i]
			s.size[fresh[i]]++
			s.lists[fresh[i]] = append(s.lists[fresh[i]], l)
			break
		}
	}
	for _, g := range s.touch {
		s.spare[g] = 0
	}
}

// leave removes a link from the list of its set. Set 0 has no list: it holds most of the links at first, and its
// other members change no row's value.
func (s *solver) leave(set, link int32) {
	list := s.lists[set]
	for i, l := range list {
		if l == link {
			list[i] = list[len(list)-1]
			s.lists[set] = list[:len(list)-1]
			return
		}
	}
}

// offer replaces the pool and takes rows of it until none is useful: first the kept rows, then always the best. A
// useless row stays useless: covers only grow and sets only shrink.
func (s *solver) offer(rows [][]int32, kept []int) {
	s.pool, s.picked, s.queue = fabric.NewMatrix(len(s.weight), rows), nil, nil
	s.key = make([]int32, len(rows))
	for r := range rows {
		s.key[r] = unrated
	}
	for _, r := range kept {
		// A single row cannot show whether it distinguishes several links.
		if _, useful := s.value(rows[r]); (useful || s.goal.Beta > 1) && s.key[r] != taken {
			s.pick(int32(r), func(int32) {})
		}
	}
	s.rateAll(unrated)
	s.takeBest(s.goal.Beta > 1)
	s.rateAll(aside)
	s.takeBest(false)
}

// takeBest takes the best row until none is useful. If wary, it skips rows that would leave links confused.
func (s *solver) takeBest(wary bool) {
	var dirty []int32
	mark := make([]bool, len(s.key))
	for {
		r, ok := s.queue.pop(s.key)
		if !ok {
			return
		}
		if wary && s.confuses(s.pool.Rows[r]) {
			s.key[r] = aside
			continue
		}
		s.pick(r, func(link int32) {
			for _, other := range s.pool.Over(link) {
				if s.key[other] >= 0 && !mark[other] {
					mark[other] = true
					dirty = append(dirty, other)
				}
			}
		})
		for _, other := range dirty {
			mark[other] = false
			s.rate(other)
		}
		dirty = dirty[:0]
	}
}

// rateAll rates the rows in a given state.
func (s *solver) rateAll(state int32) {
	for r := range s.key {
		if s.key[r] == state {
			s.rate(int32(r))
		}
	}
}

// pick takes a row of the pool.
func (s *solver) pick(r int32, changed func(link int32)) {
	row := s.pool.Rows[r]
	s.key[r] = taken
	s.picked = append(s.picked, r)
	s.chosen.Add(row)
	s.take(row, changed)
}

// rate puts a row at its present position.
func (s *solver) rate(r int32) {
	key, useful := s.value(s.pool.Rows[r])
	switch {
	case !useful:
		s.key[r] = useless
	case key != s.key[r]:
		s.key[r] = key
		s.queue.push(key, r)
	}
}
