// Package attribute says who used the energy of a component in an interval. It keeps no books.
//
// For every component and interval, exactly and in whole microjoules:
//
//	E = idle + sum of jobs + unattributed
//
// idle is what the component would have spent anyway. The rest, the active part, is shared in proportion to work (CPU seconds, SM-utilisation seconds) by
// all who worked: the jobs, and the rest of the machine, whose part stays unattributed. It is Kepler's rule with the sum kept exact by the method of the
// largest remainder. Each part is at least 0 when E is.
package attribute

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Meter is what one component spent.
type Meter struct {
	Energy unit.Energy
	// Idle is the part that is spent without any work, 0 where it is not known.
	Idle unit.Energy
	// Busy is the work of all together, jobs and others; 0 where only that of jobs is known: then what is active is theirs alone.
	Busy float64
	// Held says that whoever is on the component uses it whether or not work was seen, as a process with a context on a GPU does.
	Held bool
}

// Use is the work of a job.
type Use struct {
	Job  train.JobID
	Work float64
}

// Share is a job's part.
type Share struct {
	Job    train.JobID
	Energy unit.Energy
}

// Split is the energy of a component in its parts.
type Split struct {
	Idle         unit.Energy
	Unattributed unit.Energy
	// Jobs are ordered by id, each once, those that got nothing included.
	Jobs []Share
	// Reset is set for a negative energy: a counter began anew, and nothing can be said of the interval. All of it is unattributed.
	Reset bool
}

// Sum is the energy that was split.
func (s Split) Sum() unit.Energy {
	sum := s.Idle + s.Unattributed
	for _, j := range s.Jobs {
		sum += j.Energy
	}
	return sum
}

// Divide splits the energy of one meter among idleness, jobs and the rest. The order of uses does not matter.
func Divide(m Meter, uses []Use) Split {
	jobs := combine(uses)
	s := Split{Jobs: make([]Share, len(jobs))}
	for i, u := range jobs {
		s.Jobs[i].Job = u.Job
	}
	if m.Energy < 0 {
		s.Reset, s.Unattributed = true, m.Energy
		return s
	}
	s.Idle = min(max(m.Idle, 0), m.Energy)
	active := m.Energy - s.Idle

	weights := weigh(jobs, m)
	parts := apportion(active, weights)
	for i := range jobs {
		s.Jobs[i].Energy = parts[i]
	}
	s.Unattributed = parts[len(jobs)]
	return s
}

// combine adds up the uses of each job, ordered by job. Work that is no number or negative is none.
func combine(uses []Use) []Use {
	sorted := slices.Clone(uses)
	for i, u := range sorted {
		if !(u.Work > 0) {
			sorted[i].Work = 0
		}
	}
	// By work too: the order of a sum of floating-point numbers must not depend on the order of the uses.
	slices.SortFunc(sorted, func(a, b Use) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Work, b.Work)) })
	var jobs []Use
	for _, u := range sorted {
		if n := len(jobs); n > 0 && jobs[n-1].Job == u.Job {
			jobs[n-1].Work += u.Work
			continue
		}
		jobs = append(jobs, u)
	}
	return jobs
}

// weigh turns work into whole weights, those of the jobs and last that of all others. They are fractions of the largest work with 40 bits each, so
// that sums of many still fit.
func weigh(jobs []Use, m Meter) []uint64 {
	const one = 1 << 40
	sum, largest := 0.0, 0.0
	for _, u := range jobs {
		sum += u.Work
		largest = max(largest, u.Work)
	}
	others := 0.0
	if m.Busy > sum {
		others = m.Busy - sum
	}
	largest = max(largest, others)
	weights := make([]uint64, len(jobs)+1)
	switch {
	case math.IsInf(largest, 1) || largest == 0 && !m.Held || len(jobs) == 0:
		weights[len(jobs)] = 1 // nobody is known to have done it
		return weights
	case largest == 0:
		for i := range jobs {
			weights[i] = 1
		}
		return weights
	}
	for i, u := range jobs {
		weights[i] = uint64(math.Round(u.Work / largest * one))
	}
	weights[len(jobs)] = uint64(math.Round(others / largest * one))
	return weights
}

// apportion splits a whole amount in proportion to weights by the method of the largest remainder; of equal remainders the first one gets more.
func apportion(amount unit.Energy, weights []uint64) []unit.Energy {
	total := uint64(0)
	for _, w := range weights {
		total += w
	}
	parts := make([]unit.Energy, len(weights))
	remainders := make([]uint64, len(weights))
	left := amount
	for i, w := range weights {
		// amount x w does not fit 64 bits; the quotient does, since w <= total.
		high, low := bits.Mul64(uint64(amount), w)
		quotient, remainder := bits.Div64(high, low, total)
		parts[i], remainders[i] = unit.Energy(quotient), remainder
		left -= parts[i]
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainders[b], remainders[a]) })
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}
