package baselines

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Optimus is Optimus in the form in which it was published as a baseline of Pollux (OSDI'21), "Optimus+Oracle":
// marginal gain over gangs without parameter servers, with the true remaining steps and step times in place of fits.
// Each job gets one device in the order of submission while there are any; then each further device goes to the job
// whose remaining time it shortens most. A gang whose size does not change stays where it is, the others are placed
// again, the small ones first.
type Optimus struct {
	plain
	trace Trace
}

// Name is optimus: in simulations this is the form that others compare with.
func (Optimus) Name() string { return "optimus" }

// Bounds are the sizes whose step times are known.
func (p Optimus) Bounds(j *state.Job, _ train.Spec) (least, most int) {
	if told := p.trace[j.ID]; told != nil {
		return 1, max(len(told.StepSeconds), 1)
	}
	return 1, 1
}

// Decide gives devices by marginal gain.
func (p Optimus) Decide(r *policy.Round) {
	line := bySubmission(r)
	resize(r, line, p.sizes(line, r.Total-r.Ledger.Taken(), largestGroup(r)))
}

// gain is the time that one more device saves a gang, by its place in the line.
type gain struct {
	gang    int
	seconds float64
}

func (p Optimus) sizes(line []*cluster.Gang, left, largest int) []int {
	sizes := make([]int, len(line))
	queue := cluster.Heap[gain]{Less: func(x, y gain) bool {
		if x.seconds != y.seconds {
			return x.seconds > y.seconds
		}
		return x.gang < y.gang
	}}
	offer := func(i int) {
		if o := p.trace[line[i].ID]; o != nil && sizes[i] < min(len(o.StepSeconds), largest) {
			if saved := (o.StepSeconds[sizes[i]-1] - o.StepSeconds[sizes[i]]) * o.RemainingSteps(line[i].EpochsDone); saved > 0 {
				queue.Push(gain{i, saved})
			}
		}
	}
	for i := range line {
		if left == 0 {
			return sizes
		}
		sizes[i] = 1
		left--
	}
	for i := range line {
		offer(i)
	}
	for left > 0 && queue.Len() > 0 {
		best := queue.Pop().gang
		sizes[best]++
		left--
		offer(best)
	}
	return sizes
}
