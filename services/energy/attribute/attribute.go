// Package attribute says who used the energy of a component in an interval. It keeps no books.
//
// For every component and interval, exactly and in whole microjoules:
//
//	E = idle + sum of jobs + unattributed
//
// idle is what the component would have spent anyway. The rest, the active part, is shared in two steps, each by the method of the largest remainder:
// what contexts on a GPU cost by being there, in proportion to their time; then the dynamic part, in proportion to work (CPU seconds, SM-utilisation
// seconds). All who worked take part: the jobs, and the rest of the machine, whose part stays unattributed. Each part is at least 0 when E is.
package attribute

import (
	"cmp"
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
	// Context is what contexts cost beyond that, 0 where it is not known; ContextSeconds is the time of all of them, 0 where only that of jobs is known.
	Context        unit.Energy
	ContextSeconds float64
	// Busy is the work of all together, jobs and others; 0 where only that of jobs is known: then what is active is theirs alone.
	Busy float64
	// Held says that whoever is on the component uses it whether or not work was seen, as a process with a context on a GPU does.
	Held bool
}

// Use is what a job used of a component.
type Use struct {
	Job  train.JobID
	Work float64
	// ContextSeconds is how long it had a context on the component.
	ContextSeconds float64
	// Reserved is the part of the component that is kept for the job, from 0 to 1.
	Reserved float64
	// Estimated says that nobody sampled the work.
	Estimated bool
}

// Share is a job's part.
type Share struct {
	Job train.JobID
	// Energy is its active part, Estimated what of that was shared by an estimate of work.
	Energy    unit.Energy
	Estimated unit.Energy
	// Idle is the idle part that the job is charged for since it keeps the component: see Reserve.
	Idle unit.Energy
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
		sum += j.Energy + j.Idle
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

// give adds parts to those of the jobs, and the last one to what nobody is known to have used.
func (s *Split) give(parts []unit.Energy) {
	for i := range s.Jobs {
		s.Jobs[i].Energy += parts[i]
	}
	s.Unattributed += parts[len(s.Jobs)]
}

// unsampled are the weights where no work was seen: on a device that is held those of the contexts, else all tenants alike, else nobody is known to have worked.
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

// Reserve charges the idle part to the jobs that keep the component, by the part that each keeps; what nobody keeps stays idle.
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

// Overhead splits what a node spent beyond its measured components (fans, boards, the loss of power supplies): it follows the joules of the components, those
// that are idle or nobody's included. What no component spent anything beside is idle.
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

// mostAmount keeps sums of work within the range of numbers; nothing real comes near.
const mostAmount = 1e100

// clean makes work that is no number, negative or endless none.
func clean(amount float64) float64 {
	if !(amount > 0 && amount <= mostAmount) {
		return 0
	}
	return amount
}

// combine adds up the uses of each job, ordered by job.
func combine(uses []Use) []Use {
	sorted := slices.Clone(uses)
	for i, u := range sorted {
		sorted[i].Work, sorted[i].ContextSeconds, sorted[i].Reserved = clean(u.Work), clean(u.ContextSeconds), min(clean(u.Reserved), 1)
	}
	// By all amounts: the order of a sum of floating-point numbers must not depend on the order of the uses.
	slices.SortFunc(sorted, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Work, b.Work), cmp.Compare(a.ContextSeconds, b.ContextSeconds), cmp.Compare(a.Reserved, b.Reserved))
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

// weigh turns the amounts of jobs, and that of all together, into whole weights: those of the jobs and last that of all others. They are fractions of the
// largest amount with 40 bits each, so that sums of many still fit. Nil where nobody did anything.
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
