// Package probe decides which paths of a network are probed: the probe matrix of deTector (ATC'17), whose rows are
// chosen so that each link is on enough of them and simultaneous failures can be distinguished. It sends nothing
// and knows nothing of loss.
package probe

import (
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Goal is the aim of a matrix: at least Alpha rows over each link, and any set of up to Beta failing links
// distinguished from all others by the rows that it touches.
type Goal struct {
	Alpha, Beta int
}

// Plan chooses rows among the candidates, for all parts. Links that no candidate covers stay uncovered; Check
// returns what was achieved.
func Plan(paths fabric.Paths, goal Goal) [][]int32 {
	s := newSolver(paths.Links, goal)
	// Rounds are alike in themselves. Taken in order they cover evenly, but the sums of two steps are the same
	// either way round, so that two links and two others end on the same rows. If every cover counts, a mixture is
	// better.
	mix := goal.Beta > 1 && goal.Alpha <= goal.Beta
	size := atOnce
	switch {
	case mix:
		size = atOnceMixed
	case goal.Alpha > 1:
		size = atOnceEven
	}
	for next, tried := 0, 0; next < paths.Rounds && tried < mostTried; size = min(2*size, atOnceMixed) {
		pool := slices.Clone(paths.Round(next))
		for next++; next < paths.Rounds && len(pool) < size; next++ {
			pool = append(pool, paths.Round(next)...)
		}
		tried += len(pool)
		if mix {
			rand.New(rand.NewPCG(1, 1)).Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		}
		s.offer(pool, nil)
		if (goal.Beta < 2 || s.repair()) && s.done() {
			break
		}
	}
	return replicate(s.chosen.Rows, paths.Links, paths.Parts)
}

// The number of candidates weighed against each other at first, doubled if they do not suffice. Each round covers
// every link about once, and the merit of a path depends on where it lies beside those already chosen, so more
// candidates add time and little else. If mostTried of them do not suffice, the others, which look like them, are
// not tried: there may be billions.
const (
	atOnceEven  = 1 << 10
	atOnce      = 1 << 15
	atOnceMixed = 1 << 17
	mostTried   = 1 << 22
)

// replicate repeats the rows of part 0 in all parts, which look alike.
func replicate(rows [][]int32, links, parts int) [][]int32 {
	all := make([][]int32, 0, len(rows)*parts)
	for part := range parts {
		for _, row := range rows {
			moved := make([]int32, len(row))
			for i, l := range row {
				moved[i] = l + int32(part*links)
			}
			all = append(all, moved)
		}
	}
	return all
}

// Choose picks rows among few candidates, those of kept first while they are still useful: a matrix changes no more
// than it must. It returns indices, in order.
func Choose(links int, rows [][]int32, goal Goal, kept []int) []int {
	s := newSolver(links, goal)
	s.offer(rows, kept)
	if goal.Beta > 1 {
		s.repair()
	}
	chosen := make([]int, 0, len(s.picked))
	for _, r := range s.picked {
		chosen = append(chosen, int(r))
	}
	slices.Sort(chosen)
	return chosen
}
