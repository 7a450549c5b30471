package plan

import (
	"container/heap"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// OptimusOracle is Optimus in the form in which it was published as a baseline of Pollux (OSDI'21), "Optimus+Oracle": marginal gain over gangs without
// parameter servers, told the true remaining steps and the true step times instead of fitting them. Each job gets one device in order of
// submission while there are any; then each further one goes where it shortens the remaining time most. A gang whose size does not change stays
// where it is, the others are placed anew, the small ones first.
type OptimusOracle struct{}

// Name is optimus: in simulations this is the form that others compare with.
func (OptimusOracle) Name() string { return "optimus" }

func (p OptimusOracle) decide(s State) train.Plan { return allot(s, p) }

func (p OptimusOracle) grant(f *fleet) {
	sizes := p.sizes(f, f.newShelves().largest())
	f.resize(sizes)
}

// sizes gives devices by marginal gain.
func (OptimusOracle) sizes(f *fleet, largest int) []int {
	sizes := make([]int, len(f.gangs))
	left := f.free
	var queue sizeGains
	offer := func(i int) {
		if o := f.gangs[i].Oracle; o != nil && sizes[i] < min(len(o.StepSeconds), largest) {
			if gain := (o.StepSeconds[sizes[i]-1] - o.StepSeconds[sizes[i]]) * o.RemainingSteps; gain > 0 {
				heap.Push(&queue, sizeGain{i, gain})
			}
		}
	}
	for i := range f.gangs {
		if left == 0 {
			return sizes
		}
		sizes[i] = 1
		left--
	}
	for i := range f.gangs {
		offer(i)
	}
	for left > 0 && len(queue) > 0 {
		best := heap.Pop(&queue).(sizeGain).gang
		sizes[best]++
		left--
		offer(best)
	}
	return sizes
}

// sizeGains is a heap of gains, the largest first, then the earliest gang.
type sizeGains []sizeGain

type sizeGain struct {
	gang int
	gain float64
}

func (q sizeGains) Len() int { return len(q) }
func (q sizeGains) Less(i, j int) bool {
	if q[i].gain != q[j].gain {
		return q[i].gain > q[j].gain
	}
	return q[i].gang < q[j].gang
}
func (q sizeGains) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop make it a heap.Interface.
func (q *sizeGains) Push(x any) { *q = append(*q, x.(sizeGain)) }

// Pop takes the last one off.
func (q *sizeGains) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
