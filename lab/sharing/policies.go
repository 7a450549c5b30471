package sharing

import (
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/services/planner/share"
)

// Policy decides which jobs share a device. It learns what it would learn on a live cluster.
type Policy interface {
	// Choose returns the index of the running job beside which a newcomer starts, or -1 to let it wait.
	Choose(newcomer curve.Kind, running []curve.Kind) int
	// Watched reports the rates of two jobs that have shared a device for a minute and asks whether they stay
	// together. If not, the newcomer leaves.
	Watched(first, newcomer curve.Kind, firstRate, newcomerRate float64) (stay bool)
	// OutOfMemory reports that a newcomer did not fit beside a running job.
	OutOfMemory(first, newcomer curve.Kind)
}

// PolicyNames are the names that FindPolicy knows.
func PolicyNames() []string {
	return []string{"exclusive", "first-fit", "best-fit", "interference", "oracle"}
}

// FindPolicy returns a policy that has learnt nothing yet, nil for an unknown name. With memoryDeclared, interference
// knows what memory jobs declare.
func FindPolicy(name string, table Table, memoryDeclared bool) Policy {
	switch name {
	case "exclusive":
		return exclusive{}
	case "first-fit":
		return firstFit{table: table}
	case "best-fit":
		return bestFit{memory: table.Memory}
	case "oracle":
		return oracle{table: table}
	case "interference":
		p := &interference{model: curve.NewInterference("", nil)}
		if memoryDeclared {
			p.memory = table.Memory
		}
		return p
	}
	return nil
}

// interference is the live planner's own rule. It knows the kinds of jobs, its measurements and, unless memory is
// nil, what memory jobs declare.
type interference struct {
	model  *curve.Interference
	memory map[curve.Kind]float64
}

func (p *interference) coRunner(kind curve.Kind) share.Tenant {
	return share.Tenant{Kind: kind, Weight: 1, Memory: p.memory[kind]}
}

func (p *interference) Choose(newcomer curve.Kind, running []curve.Kind) int {
	places := make([]share.Place, len(running))
	for i, kind := range running {
		places[i] = share.Place{Model: p.model, Newcomer: p.coRunner(newcomer), Tenants: []share.Tenant{p.coRunner(kind)}}
	}
	return share.Choose(places)
}

func (p *interference) Watched(first, newcomer curve.Kind, firstRate, newcomerRate float64) bool {
	p.model.Shared(first, newcomer, firstRate, newcomerRate)
	return share.Stay([]share.Tenant{p.coRunner(first), p.coRunner(newcomer)}, []float64{firstRate, newcomerRate})
}

func (p *interference) OutOfMemory(first, newcomer curve.Kind) {
	p.model.OutOfMemory(first, newcomer)
}

// exclusive never lets jobs share.
type exclusive struct{ deaf }

func (exclusive) Choose(curve.Kind, []curve.Kind) int { return -1 }

// firstFit takes the first device on which the measurements say that the two jobs can run.
type firstFit struct {
	deaf
	table Table
}

func (p firstFit) Choose(newcomer curve.Kind, running []curve.Kind) int {
	for i, kind := range running {
		if p.table.Rates[curve.KindPair{Self: newcomer, Beside: kind}] > 0 {
			return i
		}
	}
	return -1
}

// bestFit takes the device that the declared memory fills most.
type bestFit struct {
	deaf
	memory map[curve.Kind]float64
}

func (p bestFit) Choose(newcomer curve.Kind, running []curve.Kind) int {
	best := -1
	for i, kind := range running {
		if p.memory[newcomer]+p.memory[kind] <= 1 && (best < 0 || p.memory[kind] > p.memory[running[best]]) {
			best = i
		}
	}
	return best
}

// oracle reads the rates of every pair from the measurements and takes the device of the highest sum. It is greedy,
// so it is no bound.
type oracle struct {
	deaf
	table Table
}

func (p oracle) Choose(newcomer curve.Kind, running []curve.Kind) int {
	best, most := -1, 1.05
	for i, kind := range running {
		if sum := p.table.together(newcomer, kind); sum > most {
			best, most = i, sum
		}
	}
	return best
}

// together is the sum of the rates of two kinds beside each other.
func (t Table) together(a, b curve.Kind) float64 {
	return t.Rates[curve.KindPair{Self: a, Beside: b}] + t.Rates[curve.KindPair{Self: b, Beside: a}]
}

// deaf learns nothing.
type deaf struct{}

func (deaf) Watched(_, _ curve.Kind, _, _ float64) bool { return true }

func (deaf) OutOfMemory(_, _ curve.Kind) {}
