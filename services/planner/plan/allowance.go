package plan

import (
	"maps"
	"math"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// allowance is what may be given away beside the devices themselves: by the quotas of tenants and the power budget.
type allowance struct {
	// quotas are the devices that a tenant may still get, watts what all may draw more than now.
	quotas map[string]int
	watts  float64
}

// slackWatts is less than any device draws: watts are rounded, and added up in another order each time.
const slackWatts = 1e-3

// newAllowance is the allowance before anything was given away: idle devices draw power, too.
func newAllowance(s State) allowance {
	a := allowance{quotas: s.Quotas, watts: math.Inf(1)}
	if s.PowerBudgetWatts > 0 {
		var idle unit.Power // whole numbers: the order of the nodes must not matter
		for i := range s.Nodes {
			for k := range s.Nodes[i].Devices {
				idle += s.Nodes[i].Devices[k].IdlePower()
			}
		}
		a.watts = s.PowerBudgetWatts - idle.Watts()
	}
	return a
}

func (a allowance) clone() allowance {
	a.quotas = maps.Clone(a.quotas)
	return a
}

// take gives devices to a tenant, each of which draws so many watts more then; a negative number gives back.
func (a *allowance) take(tenant string, devices int, watts float64) {
	if _, bound := a.quotas[tenant]; bound {
		a.quotas[tenant] -= devices
	}
	a.watts -= float64(devices) * watts
}

// most is how many devices of a kind a tenant may still get.
func (a *allowance) most(tenant string, watts float64) int {
	most := math.MaxInt32
	if left, bound := a.quotas[tenant]; bound {
		most = max(left, 0)
	}
	if watts > 0 && a.watts < float64(most)*watts {
		most = max(int((a.watts+slackWatts)/watts), 0)
	}
	return most
}

// rival says whether what a tenant takes may be missing to another one.
func (a *allowance) rival(tenant, other string) bool {
	_, bound := a.quotas[tenant]
	return bound && tenant == other || !math.IsInf(a.watts, 1)
}

// covers says whether a tenant may still get so many devices that draw so many watts more together.
func (a *allowance) covers(tenant string, devices int, watts float64) bool {
	left, bound := a.quotas[tenant]
	return (!bound || devices <= left) && watts <= a.watts+slackWatts
}
