package sharing

import (
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/services/planner/share"
)

// Policy decides which jobs share a device. It is told what a live cluster would tell it.
type Policy interface {
	// Choose gives the index in hosts of the job beside which a newcomer starts, or -1 to let it wait.
	Choose(newcomer curve.Kind, hosts []curve.Kind) int
	// Watched tells the rates of two jobs that have shared a device for a minute, and asks whether they stay together. If not, the newcomer leaves.
	Watched(tenant, newcomer curve.Kind, tenantRate, newcomerRate float64) (stay bool)
	// OutOfMemory tells that a newcomer did not fit beside a tenant.
	OutOfMemory(tenant, newcomer curve.Kind)
}

// PolicyNames are the names that FindPolicy knows.
func PolicyNames() []string {
	return []string{"exclusive", "first-fit", "best-fit", "interference", "oracle"}
}

// FindPolicy gives a policy that has learnt nothing yet, nil where there is none of the name. memoryDeclared says whether interference is told what memory
// jobs declare.
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

// interference is the live planner's own rule. It knows the kinds of jobs, what it has measured and, unless memory is nil, what memory they declare.
type interference struct {
	model  *curve.Interference
	memory map[curve.Kind]float64
}

func (p *interference) tenant(kind curve.Kind) share.Tenant {
	return share.Tenant{Kind: kind, Weight: 1, Memory: p.memory[kind]}
}

func (p *interference) Choose(newcomer curve.Kind, hosts []curve.Kind) int {
	places := make([]share.Place, len(hosts))
	for i, host := range hosts {
		places[i] = share.Place{Model: p.model, Newcomer: p.tenant(newcomer), Tenants: []share.Tenant{p.tenant(host)}}
	}
	return share.Choose(places)
}

func (p *interference) Watched(tenant, newcomer curve.Kind, tenantRate, newcomerRate float64) bool {
	p.model.Shared(tenant, newcomer, tenantRate, newcomerRate)
	return share.Stay([]share.Tenant{p.tenant(tenant), p.tenant(newcomer)}, []float64{tenantRate, newcomerRate})
}

func (p *interference) OutOfMemory(tenant, newcomer curve.Kind) {
	p.model.OutOfMemory(tenant, newcomer)
}

// exclusive never lets jobs share.
type exclusive struct{ deaf }

func (exclusive) Choose(curve.Kind, []curve.Kind) int { return -1 }

// firstFit takes the first device on which two jobs can run, which it reads from the measurements.
type firstFit struct {
	deaf
	table Table
}

func (p firstFit) Choose(newcomer curve.Kind, hosts []curve.Kind) int {
	for i, host := range hosts {
		if p.table.Rates[curve.KindPair{Self: newcomer, Beside: host}] > 0 {
			return i
		}
	}
	return -1
}

// bestFit takes the device that declared memory fills most.
type bestFit struct {
	deaf
	memory map[curve.Kind]float64
}

func (p bestFit) Choose(newcomer curve.Kind, hosts []curve.Kind) int {
	best := -1
	for i, host := range hosts {
		if p.memory[newcomer]+p.memory[host] <= 1 && (best < 0 || p.memory[host] > p.memory[hosts[best]]) {
			best = i
		}
	}
	return best
}

// oracle reads the rates of every pair from the measurements and takes the device of the highest sum. It is greedy, so it is no bound.
type oracle struct {
	deaf
	table Table
}

func (p oracle) Choose(newcomer curve.Kind, hosts []curve.Kind) int {
	best, most := -1, 1.05
	for i, host := range hosts {
		if sum := p.table.together(newcomer, host); sum > most {
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
