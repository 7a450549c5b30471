package colocate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
	"github.com/switchyard-dl/switchyard/services/planner/share"
)

// The codes of what keeps a gang from a shared device.
const (
	WaitingForMemory = "WaitingForMemory"
	SlowTogether     = "SlowTogether"
	QuotaReached     = "QuotaReached"
)

// CoRunners says in words who else is on the devices of a gang, and what that costs it; empty if nobody is.
func (c *Sharing) CoRunners(g *cluster.Gang) string {
	at := g.Got.Spots()
	gangs := c.company(at)
	var names []string
	for _, o := range gangs {
		if o != g && cluster.Meet(o.Got.Spots(), at) {
			names = append(names, string(o.ID))
		}
	}
	i := slices.Index(gangs, g)
	if len(names) == 0 || i < 0 {
		return ""
	}
	rates, measured := share.Rates(c.known(at[0]), c.tenants(gangs))
	return fmt.Sprintf(" beside %s, at %.0f %% of its speed alone (%s)", several(names), 100*rates[i], basis(measured[i]))
}

// several lists names, at most three of them.
func several(names []string) string {
	const most = 3
	words := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	return words
}

// basis says what a rate rests on.
func basis(measured int) string {
	switch measured {
	case 0:
		return "predicted"
	case 1:
		return "measured once"
	}
	return fmt.Sprintf("measured %d times", measured)
}

// Blocker is the reason of a gang that may share and found no place: it does too little beside others, or too little
// memory is free.
func (c *Sharing) Blocker(g *cluster.Gang) train.Reason {
	if g.Notes.Separated != nil {
		return *g.Notes.Separated
	}
	if best := c.leastBad(g); best != nil {
		return *c.disturbance(g, best, append(c.company(best), g), false)
	}
	return c.needs(g)
}

// leastBad returns where a gang that found no place has room and would do most, or nil if it has room nowhere. The best
// place for a gang alike that needs less memory is the best for this one, if there is room.
func (c *Sharing) leastBad(g *cluster.Gang) []cluster.Spot {
	alike, memory := likenessOf(g), g.DeviceMemory()
	known, has := c.best[alike]
	has = has && g.Planned == nil && g.Running == nil && known.memory <= memory
	if has && (known.at == nil || c.fits(g, known.at)) {
		return known.at
	}
	var best []cluster.Spot
	most := 0.0
	rooms := c.rooms(g)
	for _, at := range rooms[:min(len(rooms), mostPlaces)] {
		if together := c.together(g, at); best == nil || together > most {
			best, most = at, together
		}
	}
	if g.Planned == nil && g.Running == nil {
		c.best[alike] = bestPlace{memory, best}
	}
	return best
}

// together is what gangs would do with one more on their devices, as a part of what the weightiest of them would do
// alone.
func (c *Sharing) together(g *cluster.Gang, at []cluster.Spot) float64 {
	tenants := append(c.tenants(c.company(at)), c.tenant(g, at))
	rates, _ := share.Rates(c.known(at[0]), tenants)
	sum, alone := 0.0, 0.0
	for i, t := range tenants {
		sum, alone = sum+t.Weight*rates[i], max(alone, t.Weight)
	}
	return sum / alone
}

// disturbance says why a gang does not go, or stay, where it finds room.
func (c *Sharing) disturbance(g *cluster.Gang, at []cluster.Spot, gangs []*cluster.Gang, leaves bool) *train.Reason {
	where := train.OnNodes(c.s.Named(cluster.On(at, 0)))
	if !leaves && c.Kept.From(g, at) {
		words := where + " is kept for a job that has waited too long for a device of its own"
		if len(at) > 1 {
			words = "some of " + where + " are kept for a job that has waited too long for devices of its own"
		}
		return &train.Reason{Code: SlowTogether, Message: words}
	}
	if more := c.charged(g, at); !leaves && more > c.quota(g) {
		return &train.Reason{Code: QuotaReached, Message: fmt.Sprintf("beside jobs of other tenants on %s it would count %s more against its quota", where, cluster.Devices(more))}
	}
	others := slices.DeleteFunc(slices.Clone(gangs), func(o *cluster.Gang) bool { return o == g })
	tenants := append(c.tenants(others), c.tenant(g, at))
	rates, measured := share.Rates(c.known(at[0]), tenants)
	var words []string
	for i, o := range append(others, g) {
		if o == g || cluster.Meet(c.at(o).Spots(), at) {
			words = append(words, fmt.Sprintf("%s at %.0f %% of its speed alone (%s)", o.ID, 100*rates[i], basis(measured[i])))
		}
	}
	verb := "waits for a device of its own: on "
	if len(at) > 1 {
		verb = "waits for devices of its own: on "
	}
	if leaves {
		verb = "is separated from its co-runners: on "
	}
	who := "they would get too little done together: "
	if share.TooSlow(tenants, rates) {
		who = "one of them would be too slow: "
	}
	return &train.Reason{Code: SlowTogether, Message: verb + where + " " + who + several(words)}
}

// needs is the reason of a gang that found no memory.
func (c *Sharing) needs(g *cluster.Gang) train.Reason {
	most := c.mostLeft(g)
	where, found := "one device", "a device that may be shared"
	if g.Least > 1 {
		if where = fmt.Sprintf("each of %d devices", g.Least); !c.s.Spans {
			where += " of one node"
		}
		found = fmt.Sprintf("each of %d devices that may be shared", g.Least)
	}
	words := fmt.Sprintf("needs %s of GPU memory on %s%s; ", g.DeviceMemory(), where, feasible.Selector(g))
	if most > 0 {
		return train.Reason{Code: WaitingForMemory, Message: words + fmt.Sprintf("the most that is free on %s is %s", found, most)}
	}
	return train.Reason{Code: WaitingForMemory, Message: words + "no device is free, and none that jobs of its tenant share has memory left"}
}

// mostLeft is the most memory that a gang may have of each of as many devices as it needs.
func (c *Sharing) mostLeft(g *cluster.Gang) unit.Bytes {
	key, isNew := memoryKey{g.Spec.Tenant, g.Spec.ShareAcrossTenants, g.Class, g.Least}, g.Planned == nil && g.Running == nil
	if most, known := c.most[key]; known && isNew {
		return most
	}
	var most unit.Bytes
	for _, here := range c.devices {
		n := &c.s.Nodes[here.Node]
		if n.Shared && here.primary.SharesWith(g) && g.Suits(n) {
			most = max(most, c.leftOnSeveral(g, here.primary))
		}
	}
	if isNew {
		c.most[key] = most
	}
	return most
}

// leftOnSeveral is what a gang may have of each of as many devices of a primary as it needs; 0 if that has fewer.
func (c *Sharing) leftOnSeveral(g, primary *cluster.Gang) unit.Bytes {
	var left []unit.Bytes
	for _, d := range c.at(primary).Spots() {
		left = append(left, c.leftFor(g, c.find(d)))
	}
	slices.Sort(left)
	if i := len(left) - g.Least; i >= 0 {
		return left[i]
	}
	return 0
}
