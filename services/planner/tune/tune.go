// Package tune chooses the micro-batches of jobs that share a device, by trying a few. The next trial follows from
// the earlier trials alone, so a round of tuning survives the planner that conducts it. How a batch is set, and how
// heartbeats arrive, is decided elsewhere.
package tune

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

// MaxTrials bounds the combinations of batches that a round tries: each costs the jobs some steps.
const MaxTrials = 8

// mostCombinations bounds the time that a choice takes. Jobs with more combinations keep their batches.
const mostCombinations = 1 << 16

// Tenant is one of the jobs on a device.
type Tenant struct {
	// Batches are the micro-batches it can run with, in ascending order.
	Batches []int
	// Alone is the expected progress per second with each of them on a device of its own, as a part of the greatest,
	// times the weight of the job.
	Alone []float64
	// Memory is the part of the device's memory that each of them is expected to need; nil if unknown.
	Memory []float64
}

// Round is the input of a round of tuning.
type Round struct {
	Tenants []Tenant
	// Start are the present batches of the jobs, as indices of Batches.
	Start []int
	// MemoryLimit is the part of the device that the expected memory may fill.
	MemoryLimit float64
}

// Trial is one combination that was tried.
type Trial struct {
	// Choice holds an index of Batches for each job.
	Choice []int `json:"choice"`
	// Progress is the sum of the jobs' progress per second, each in the unit of Alone. It is 0 if memory ran out.
	Progress float64 `json:"progress"`
}

// Next returns the combination to try next; more is false when the round is over. The first trial is the present
// combination, if it fits.
func (r Round) Next(trials []Trial) (choice []int, more bool) {
	if len(trials) >= MaxTrials || r.combinations() > mostCombinations {
		return nil, false
	}
	b := r.learn(trials)
	if len(trials) == 0 && b.open(r.cell(r.Start)) {
		return slices.Clone(r.Start), true
	}
	const rounding = 1e-9 // of equals the first is tried, on every machine
	best, most := -1, 0.0
	for cell := range r.combinations() {
		if !b.open(cell) {
			continue
		}
		if gain := b.expectedImprovement(cell); best < 0 || gain > most+rounding {
			best, most = cell, gain
		}
	}
	if best < 0 {
		return nil, false
	}
	return r.choice(best), true
}

// Settle returns the best combination tried, or the present one if none was better.
func (r Round) Settle(trials []Trial) []int {
	best, most := r.Start, 0.0
	for _, t := range trials {
		if t.Progress > most {
			best, most = t.Choice, t.Progress
		}
	}
	return slices.Clone(best)
}

// belief is the knowledge after some trials.
type belief struct {
	round   Round
	process *curve.Process[int] // of the progress beyond expected, by cell
	tried   map[int]bool
	failed  [][]int
	best    float64
}

func (r Round) learn(trials []Trial) belief {
	const noise = 0.02 // of a measurement
	b := belief{round: r, process: curve.NewProcess(0, r.kernel), tried: map[int]bool{}}
	for _, t := range trials {
		cell := r.cell(t.Choice)
		b.tried[cell] = true
		if t.Progress <= 0 {
			b.failed = append(b.failed, t.Choice)
			continue
		}
		b.best = max(b.best, t.Progress)
		b.process.Add(cell, t.Progress-r.expected(t.Choice), noise)
	}
	return b
}

// kernel is the covariance of the effects of two combinations on the speeds. Each job's batch has an effect by
// itself, and all batches have one together; both change smoothly with the logarithm of the batch (Matérn, 5/2).
func (r Round) kernel(x, y int) float64 {
	const (
		variance  = 0.05
		doublings = 2
	)
	a, b := r.choice(x), r.choice(y)
	sum, product := 0.0, 1.0
	for i, t := range r.Tenants {
		apart := math.Abs(math.Log2(float64(t.Batches[a[i]]) / float64(t.Batches[b[i]])))
		alike := curve.Matern(apart / doublings)
		sum, product = sum+alike, product*alike
	}
	return variance * (sum + product)
}

// usual is the usual progress of jobs on one device together, as a multiple of one alone.
const usual = 1.2

// expected is the progress of a combination if sharing costs each job the usual part.
func (r Round) expected(choice []int) float64 {
	sum := 0.0
	for i, t := range r.Tenants {
		sum += t.Alone[choice[i]]
	}
	return usual * sum / float64(len(r.Tenants))
}

// open reports whether a combination may be tried: it was not tried before, its memory should fit, and no combination
// with batches all as small has failed.
func (b belief) open(cell int) bool {
	choice := b.round.choice(cell)
	asLarge := func(failed []int) bool {
		for i := range failed {
			if choice[i] < failed[i] {
				return false
			}
		}
		return true
	}
	return !b.tried[cell] && b.round.memory(choice) <= b.round.MemoryLimit && !slices.ContainsFunc(b.failed, asLarge)
}

func (r Round) memory(choice []int) float64 {
	sum := 0.0
	for i, t := range r.Tenants {
		if t.Memory != nil {
			sum += t.Memory[choice[i]]
		}
	}
	return sum
}

// expectedImprovement is the amount by which a combination is expected to surpass the best one.
func (b belief) expectedImprovement(cell int) float64 {
	value, deviation := b.process.Predict(cell)
	return curve.ExpectedImprovement(value+b.round.expected(b.round.choice(cell))-b.best, deviation)
}

// combinations is the number of cells of the grid.
func (r Round) combinations() int {
	n := 1
	for _, t := range r.Tenants {
		n = min(n*len(t.Batches), mostCombinations+1)
	}
	return n
}

// cell numbers a combination, choice is its inverse.
func (r Round) cell(choice []int) int {
	n := 0
	for i, t := range r.Tenants {
		n = n*len(t.Batches) + choice[i]
	}
	return n
}

func (r Round) choice(cell int) []int {
	choice := make([]int, len(r.Tenants))
	for i := len(choice) - 1; i >= 0; i-- {
		n := len(r.Tenants[i].Batches)
		choice[i], cell = cell%n, cell/n
	}
	return choice
}
