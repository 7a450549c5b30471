// Package attribute computes who used the energy of a component in an interval. It keeps no books.
//
// For every component and interval, exactly and in whole microjoules:
//
//	E = idle + sum of jobs + unattributed
//
// idle is what the component would have spent anyway. The rest, the active part, is shared in two steps, each by the
// method of the largest remainder: first the cost of contexts on a GPU, in proportion to their time; then the dynamic
// part, in proportion to work (CPU seconds, SM-utilisation seconds). All workers take part: the jobs, and the rest of
// the machine, whose part stays unattributed. Each part is at least 0 if E is.
package attribute

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Meter is the energy of one component.
type Meter struct {
	Energy unit.Energy
	// Idle is the energy spent without any work, 0 if unknown.
	Idle unit.Energy
	// Context is the cost of contexts beyond that, 0 if unknown; ContextSeconds is the time of all of them, 0 if only
	// that of jobs is known.
	Context        unit.Energy
	ContextSeconds float64
	// Busy is the work of all together, jobs and others; 0 if only that of jobs is known: then the active part is
	// theirs alone.
	Busy float64
	// Held reports that every process on the component uses it whether or not work was seen, like a process with a
	// context on a GPU.
	Held bool
}

// Use is a job's use of a component.
type Use struct {
	Job  train.JobID
	Work float64
	// ContextSeconds is the time it had a context on the component.
	ContextSeconds float64
	// Reserved is the fraction of the component reserved for the job, from 0 to 1.
	Reserved float64
	// Estimated reports that the work was not sampled.
	Estimated bool
}

// Share is a job's part.
type Share struct {
	Job train.JobID
	// Energy is its active part, Estimated the portion of it that was shared by an estimate of work.
	Energy    unit.Energy
	Estimated unit.Energy
	// Idle is the idle energy charged to the job for holding the component: see Reserve.
	Idle unit.Energy
}

// Split is the energy of a component in its parts.
type Split struct {
	Idle         unit.Energy
	Unattributed unit.Energy
	// Jobs are ordered by id, each once, including those with nothing.
	Jobs []Share
	// Reset is set for a negative energy: a counter was reset, and the interval is unknown. All of it is unattributed.
	Reset bool
}

// Sum returns the energy that was split.
func (s Split) Sum() unit.Energy {
	sum := s.Idle + s.Unattributed
	for _, j := range s.Jobs {
		sum += j.Energy + j.Idle
	}
	return sum
}

// Divide splits the energy of one meter among idle, jobs and the rest. The order of uses does not matter.
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

	byContext := weigh(amounts(jobs, func(u Use) float64 { return u.ContextSeconds }), m.ContextSeconds)
	if byContext != nil {
		contexts := min(max(m.Context, 0), active)
		active -= contexts
		s.give(apportion(contexts, byContext))
	}
	byWork := weigh(amounts(jobs, func(u Use) float64 { return u.Work }), m.Busy)
	estimated := byWork == nil
	if estimated {
		byWork = unsampled(len(jobs), m.Held, byContext)
	}
	parts := apportion(active, byWork)
	s.give(parts)
	for i, u := range jobs {
		if estimated || u.Estimated {
			s.Jobs[i].Estimated = parts[i]
		}
	}
	return s
}

// give adds parts to those of the jobs, and the last part to the unattributed energy.
func (s *Split) give(parts []unit.Energy) {
	for i := range s.Jobs {
		s.Jobs[i].Energy += parts[i]
	}
	s.Unattributed += parts[len(s.Jobs)]
}

// unsampled returns the weights if no work was seen: on a held device those of the contexts, else equal weights for all
// jobs, else nobody is known to have worked.
func unsampled(jobs int, held bool, byContext []uint64) []uint64 {
	if held && byContext != nil {
		return byContext
	}
	weights := make([]uint64, jobs+1)
	if !held || jobs == 0 {
		weights[jobs] = 1
		return weights
	}
	for i := range jobs {
		weights[i] = 1
	}
	return weights
}

// Reserve charges the idle part to the jobs that hold the component, by the part that each holds; the rest stays idle.
func (s *Split) Reserve(uses []Use) {
	if s.Reset {
		return
	}
	kept := amounts(combine(uses), func(u Use) float64 { return u.Reserved })
	weights := weigh(kept, 1)
	if len(kept) != len(s.Jobs) || weights == nil {
		return
	}
	parts := apportion(s.Idle, weights)
	for i := range s.Jobs {
		s.Jobs[i].Idle = parts[i]
	}
	s.Idle = parts[len(s.Jobs)]
}

// Overhead splits what a node spent beyond its measured components (fans, boards, losses of power supplies) in
// proportion to the joules of the components, including idle and unattributed ones. If the components spent nothing it
// is idle.
func Overhead(energy unit.Energy, components []Split) Split {
	if energy < 0 {
		return Split{Unattributed: energy, Reset: true}
	}
	idle, others, byJob := unit.Energy(0), unit.Energy(0), map[train.JobID]unit.Energy{}
	for _, c := range components {
		if c.Reset {
			continue
		}
		idle, others = idle+c.Idle, others+c.Unattributed
		for _, j := range c.Jobs {
			byJob[j.Job] += j.Energy + j.Idle
		}
	}
	s := Split{}
	for job := range byJob {
		s.Jobs = append(s.Jobs, Share{Job: job})
	}
	slices.SortFunc(s.Jobs, func(a, b Share) int { return cmp.Compare(a.Job, b.Job) })
	weights, total := make([]uint64, len(s.Jobs)+2), unit.Energy(0)
	for i, j := range s.Jobs {
		weights[i] = uint64(byJob[j.Job])
		total += byJob[j.Job]
	}
	weights[len(s.Jobs)], weights[len(s.Jobs)+1] = uint64(others), uint64(idle)
	if total+others+idle == 0 {
		s.Idle = energy
		return s
	}
	parts := apportion(energy, weights)
	s.give(parts)
	s.Idle = parts[len(s.Jobs)+1]
	return s
}

// mostAmount keeps sums of work within the range of numbers; real values come nowhere near.
const mostAmount = 1e100

// clean maps NaN, negative and infinite work to 0.
func clean(amount float64) float64 {
	if !(amount > 0 && amount <= mostAmount) {
		return 0
	}
	return amount
}

// combine sums the uses of each job, ordered by job.
func combine(uses []Use) []Use {
	sorted := slices.Clone(uses)
	for i, u := range sorted {
		sorted[i].Work, sorted[i].ContextSeconds, sorted[i].Reserved = clean(u.Work), clean(u.ContextSeconds), min(clean(u.Reserved),
			1)
	}
	// Sort by all amounts: the order of a sum of floating-point numbers must not depend on the order of the uses.
	slices.SortFunc(sorted, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Work, b.Work),
			cmp.Compare(a.ContextSeconds, b.ContextSeconds), cmp.Compare(a.Reserved, b.Reserved))
	})
	var jobs []Use
	for _, u := range sorted {
		n := len(jobs)
		if n == 0 || jobs[n-1].Job != u.Job {
			jobs = append(jobs, u)
			continue
		}
		last := &jobs[n-1]
		last.Work += u.Work
		last.ContextSeconds += u.ContextSeconds
		last.Reserved += u.Reserved
		last.Estimated = last.Estimated || u.Estimated
	}
	return jobs
}

func amounts(jobs []Use, of func(Use) float64) []float64 {
	all := make([]float64, len(jobs))
	for i, u := range jobs {
		all[i] = of(u)
	}
	return all
}

// weigh turns the amounts of jobs, and the total amount, into whole weights: those of the jobs and last that of all
// others. They are fractions of the largest amount with 40 bits each, so that large sums still fit. It returns nil if
// all amounts are 0.
func weigh(jobs []float64, all float64) []uint64 {
	const one = 1 << 40
	sum, largest := 0.0, 0.0
	for _, a := range jobs {
		sum += a
		largest = max(largest, a)
	}
	others := max(clean(all)-sum, 0)
	largest = max(largest, others)
	if largest == 0 {
		return nil
	}
	weights := make([]uint64, 0, len(jobs)+1)
	for _, a := range append(slices.Clip(jobs), others) {
		weights = append(weights, uint64(a/largest*one+0.5))
	}
	return weights
}

// apportion splits a whole amount in proportion to weights by the method of the largest remainder; of equal remainders
// the first gets more.
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
