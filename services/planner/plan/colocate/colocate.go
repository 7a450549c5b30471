// Package colocate decides which jobs share a device: a place beside others is one more placement, valued by the
// predicted interference (package share). One gang of each shared device, the primary, came first; its guests have all
// their devices beside it. A policy decides about primaries only.
package colocate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/queue"
	"github.com/switchyard-dl/switchyard/services/planner/share"
)

// Sharing is who shares which device at one moment of a decision.
type Sharing struct {
	s *cluster.Snapshot
	// Kept are the devices to which no newcomer comes.
	Kept *queue.Kept
	// at is where gangs are: what they hold, and what they are given once that is settled.
	at func(*cluster.Gang) cluster.Placement
	// devices are those that primaries have, in order, and by node and place.
	devices []*device
	by      [][]*device
	// owed is the memory of devices that jobs use beyond their parts.
	owed map[cluster.Spot]unit.Bytes
	// interference is what was measured on devices of each type and driver.
	interference map[typed]*curve.Interference
	// refused is the least memory for which gangs alike found no place.
	refused map[likeness]unit.Bytes
	// best are the places where gangs alike that found none would do most, for those with the least memory of them.
	best map[likeness]bestPlace
	// most is the most memory that is left to gangs of a tenant, a class and a size.
	most map[memoryKey]unit.Bytes
	// quotas are what those of tenants leave beside all that is held and nominated, or given.
	quotas map[string]int
}

type bestPlace struct {
	memory unit.Bytes
	at     []cluster.Spot
}

type memoryKey struct {
	tenant         string
	across         bool
	class, devices int
}

// device is a device that may be shared: its gangs, the primary first, and the memory that is left.
type device struct {
	cluster.Spot
	primary *cluster.Gang
	gangs   []*cluster.Gang
	left    unit.Bytes
	// company is equal for devices with co-runners that are equal to a newcomer; empty if they are on several devices.
	company string
}

type typed struct{ model, driver string }

// New is for a snapshot. It sees what gangs hold.
func New(s *cluster.Snapshot) *Sharing {
	return &Sharing{
		s: s, owed: map[cluster.Spot]unit.Bytes{}, interference: map[typed]*curve.Interference{},
		at: func(g *cluster.Gang) cluster.Placement { return g.Held },
	}
}

// Any says whether any gang may share a device.
func Any(s *cluster.Snapshot) bool {
	return slices.ContainsFunc(s.Gangs, (*cluster.Gang).Shares)
}

// Look finds out who is where.
func (c *Sharing) Look() {
	c.devices, c.by = nil, make([][]*device, len(c.s.Nodes))
	c.refused, c.best, c.most = map[likeness]unit.Bytes{}, map[likeness]bestPlace{}, map[memoryKey]unit.Bytes{}
	for _, g := range c.s.Gangs {
		if p := c.at(g); g.Shares() && g.Primary == nil {
			c.open(g, p)
		}
	}
	slices.SortFunc(c.devices, func(x, y *device) int { return cluster.CompareSpots(x.Spot, y.Spot) })
	for _, g := range c.s.Gangs {
		if p := c.at(g); g.Primary != nil && !p.Empty() {
			c.enter(g, p)
		}
	}
}

func (c *Sharing) open(g *cluster.Gang, p cluster.Placement) {
	for _, d := range p.Spots() {
		here := &device{Spot: d, primary: g, gangs: []*cluster.Gang{g}}
		if p.Memory > 0 {
			here.left = c.s.Device(d).Memory - p.Memory
		}
		if p.Size() == 1 {
			here.company = c.s.Device(d).Type() + "/" + c.s.Device(d).Driver + kindWords(g)
		}
		if c.by[d.Node] == nil {
			c.by[d.Node] = make([]*device, len(c.s.Nodes[d.Node].Devices))
		}
		c.by[d.Node][d.Device], c.devices = here, append(c.devices, here)
	}
}

func kindWords(g *cluster.Gang) string {
	return fmt.Sprint("/", g.Kind(), g.Priority)
}

func (c *Sharing) enter(g *cluster.Gang, p cluster.Placement) {
	for _, d := range p.Spots() {
		if here := c.find(d); here != nil {
			here.gangs, here.left = append(here.gangs, g), here.left-p.Memory
			if here.company != "" {
				here.company += kindWords(g)
			}
		}
	}
}

func (c *Sharing) find(d cluster.Spot) *device {
	if d.Node >= len(c.by) || c.by[d.Node] == nil {
		return nil
	}
	return c.by[d.Node][d.Device]
}

// leftFor is the memory that a gang may have of a device: a gang that is there already may have what others owe.
func (c *Sharing) leftFor(g *cluster.Gang, here *device) unit.Bytes {
	if slices.Contains(g.Held.Spots(), here.Spot) || slices.Contains(g.Overused.Spots(), here.Spot) {
		return here.left
	}
	return here.left - c.owed[here.Spot]
}

// fits says whether a gang may have devices beside their primary: the tenants allow it, each device has the memory, and
// of two gangs that meet one has all devices of the other.
func (c *Sharing) fits(g *cluster.Gang, at []cluster.Spot) bool {
	first, part := c.find(at[0]), c.s.GuestPart(g, at)
	if first == nil || first.primary == g || !first.primary.SharesWith(g) || part == 0 {
		return false
	}
	for _, d := range at {
		here := c.find(d)
		if here == nil || here.primary != first.primary || part > c.leftFor(g, here) {
			return false
		}
		for _, o := range here.gangs {
			if on := c.at(o).Spots(); o != g && (!o.SharesWith(g) || !cluster.Within(on, at) && !cluster.Within(at, on)) {
				return false
			}
		}
	}
	return cluster.Within(at, g.Held.Spots()) || c.suits(g, at)
}

// suits says whether a gang may come to some devices: their nodes suit it, and no bad link is between them.
func (c *Sharing) suits(g *cluster.Gang, at []cluster.Spot) bool {
	island := c.s.Nodes[at[0].Node].Island
	return !slices.ContainsFunc(at, func(d cluster.Spot) bool {
		n := &c.s.Nodes[d.Node]
		return !g.Suits(n) || n.Island != island && d.Node != at[0].Node
	})
}

// likeness holds what decides whether a waiting gang finds a place beside others: equal gangs all find one, or all do
// not. If a gang finds no place, equal gangs that need more memory are assumed to find none either.
type likeness struct {
	kind     curve.Kind
	devices  int
	priority int
	tenant   string
	across   bool
	class    int
	starved  bool
}

func likenessOf(g *cluster.Gang) likeness {
	return likeness{g.Kind(), g.Least, g.Priority, g.Spec.Tenant, g.Spec.ShareAcrossTenants, g.Class, g.Starved}
}

// choose returns the devices, with enough memory left, where a gang adds most to the progress of all; among equals the
// devices with the least memory left. It returns nil if the gang adds too little everywhere.
func (c *Sharing) choose(g *cluster.Gang) []cluster.Spot {
	if !g.Shares() {
		return nil
	}
	waits := g.Planned == nil && g.Running == nil // else its part may be another than that of gangs like it
	alike := likeness{}
	if waits {
		alike = likenessOf(g)
		if least, known := c.refused[alike]; known && least <= g.DeviceMemory() {
			return nil
		}
	}
	fitting := c.unlike(slices.DeleteFunc(c.rooms(g), func(at []cluster.Spot) bool {
		return c.Kept.From(g, at) || c.charged(g, at) > c.quota(g)
	}))
	places := make([]share.Place, len(fitting))
	for i, at := range fitting {
		places[i] = share.Place{Model: c.known(at[0]), Newcomer: c.tenant(g, at), Tenants: c.tenants(c.company(at))}
	}
	if i := share.Choose(places); i >= 0 {
		return fitting[i]
	}
	if waits {
		c.refused[alike] = g.DeviceMemory()
	}
	return nil
}

// mostPlaces bounds how many places a gang compares.
const mostPlaces = 128

// unlike orders places by the memory that is left there, and keeps the first of those with equal co-runners, as many as
// a gang compares.
func (c *Sharing) unlike(places [][]cluster.Spot) [][]cluster.Spot {
	type place struct {
		at   []cluster.Spot
		left unit.Bytes
	}
	order := make([]place, len(places))
	for i, at := range places {
		order[i] = place{at, c.find(at[0]).left}
		for _, d := range at[1:] {
			order[i].left = min(order[i].left, c.find(d).left)
		}
	}
	slices.SortStableFunc(order, func(x, y place) int { return cmp.Compare(x.left, y.left) })
	places, seen := places[:0], map[string]bool{}
	for _, p := range order {
		company := ""
		if len(p.at) == 1 {
			company = c.find(p.at[0]).company
		}
		if company == "" || !seen[company] {
			places, seen[company] = append(places, p.at), true
		}
	}
	return places[:min(len(places), mostPlaces)]
}

// rooms are the devices that have memory for a gang, as many as it needs at least. For each primary it tries the sets
// of the gangs that are there, on one node if that has enough of them, and among the devices that no smaller gang has
// those on which the gang would be fastest.
func (c *Sharing) rooms(g *cluster.Gang) [][]cluster.Spot {
	var found [][]cluster.Spot
	add := func(at []cluster.Spot) {
		held := cluster.Within(at, g.Held.Spots())
		barred := slices.ContainsFunc(at, func(d cluster.Spot) bool {
			n := &c.s.Nodes[d.Node]
			return !n.Shared || !held && n.IsClosed(d.Device)
		})
		if !barred && c.fits(g, at) {
			found = append(found, at)
		}
	}
	for _, here := range c.devices {
		if g.Least == 1 {
			if g.DeviceMemory() <= here.left || !g.Held.Empty() || !g.Overused.Empty() {
				add([]cluster.Spot{here.Spot})
			}
			continue
		}
		all := c.at(here.primary).Spots()
		if here.Spot != all[0] {
			continue
		}
		for _, set := range c.sets(c.company(all), g.Least) {
			if len(set) > g.Least {
				set = c.fastest(g, set)
			}
			if len(set) == g.Least {
				add(set)
			}
		}
	}
	return found
}

// quota is how many more devices that of its tenant leaves to a gang.
func (c *Sharing) quota(g *cluster.Gang) int {
	if left, bound := c.quotas[g.Spec.Tenant]; bound {
		return max(left, 0)
	}
	return math.MaxInt
}

// charged is how many of some devices would count against the quota of a gang's tenant: those where it has no gang yet.
func (c *Sharing) charged(g *cluster.Gang, at []cluster.Spot) int {
	n := 0
	for _, d := range at {
		if !slices.ContainsFunc(c.find(d).gangs, func(o *cluster.Gang) bool { return o.Spec.Tenant == g.Spec.Tenant }) {
			n++
		}
	}
	return n
}

// sets are the sets of at least the given number of devices that gangs have: on each node with that number of them, or
// if there is none, on all of their nodes.
func (c *Sharing) sets(gangs []*cluster.Gang, least int) [][]cluster.Spot {
	var sets [][]cluster.Spot
	add := func(p cluster.Placement) bool {
		at := p.Spots()
		if len(at) >= least && !slices.ContainsFunc(sets, func(s []cluster.Spot) bool { return slices.Equal(s, at) }) {
			sets = append(sets, at)
		}
		return len(at) >= least
	}
	for _, g := range gangs {
		p, apart := c.at(g), false
		for _, part := range p.Parts {
			apart = add(cluster.Placement{Parts: []cluster.Part{part}}) || apart
		}
		if !apart {
			add(p)
		}
	}
	return sets
}

// fastest are as many of some devices as a gang needs on which it would be fastest, of those on which it fits and that
// no gang has that is smaller than these.
func (c *Sharing) fastest(g *cluster.Gang, of []cluster.Spot) []cluster.Spot {
	type choice struct {
		cluster.Spot
		rate float64
	}
	var free []choice
	for _, d := range of {
		here, alone := c.find(d), []cluster.Spot{d}
		smaller := func(o *cluster.Gang) bool { on := c.at(o).Spots(); return len(on) > 1 && !cluster.Within(of, on) }
		if !c.fits(g, alone) || c.Kept.From(g, alone) || slices.ContainsFunc(here.gangs, smaller) {
			continue
		}
		rates, _ := share.Rates(c.known(d), append(c.tenants(here.gangs), c.tenant(g, alone)))
		free = append(free, choice{d, rates[len(rates)-1]})
	}
	slices.SortStableFunc(free, func(x, y choice) int { return cmp.Compare(y.rate, x.rate) })
	var chosen []cluster.Spot
	for _, o := range free[:min(len(free), g.Least)] {
		chosen = append(chosen, o.Spot)
	}
	slices.SortFunc(chosen, cluster.CompareSpots)
	return chosen
}

// company are all gangs on the devices of the primaries that have some of these, each once.
func (c *Sharing) company(at []cluster.Spot) []*cluster.Gang {
	var gangs []*cluster.Gang
	for _, d := range at {
		here := c.find(d)
		if here == nil || slices.Contains(gangs, here.primary) {
			continue
		}
		for _, of := range c.at(here.primary).Spots() {
			for _, g := range c.find(of).gangs {
				if !slices.Contains(gangs, g) {
					gangs = append(gangs, g)
				}
			}
		}
	}
	return gangs
}

// known is what was measured on devices like one.
func (c *Sharing) known(at cluster.Spot) *curve.Interference {
	d := c.s.Device(at)
	of := typed{d.Type(), d.Driver}
	if c.interference[of] == nil {
		known := c.s.State.Interference[curve.InterferenceKey(d)]
		if known == nil {
			known = curve.NewInterference(d.Driver, nil)
		}
		c.interference[of] = known
	}
	return c.interference[of]
}

// tenant is a gang on devices as package share weighs it: by its priority, 1 at the usual one, times its devices. A
// large gang that is held up loses the work of all of them.
func (c *Sharing) tenant(g *cluster.Gang, at []cluster.Spot) share.Tenant {
	const usual, least = 50, 5
	t := share.Tenant{
		Kind: g.Kind().On(len(at), len(cluster.On(at, 0).Parts)), Weight: float64(max(g.Priority, least)) / usual * float64(len(at)),
		Memory: float64(c.s.GuestPart(g, at)) / float64(max(c.s.Device(at[0]).Memory, 1)),
	}
	for _, d := range at {
		t.On = append(t.On, d.Node*c.s.Largest+d.Device)
	}
	return t
}

func (c *Sharing) tenants(gangs []*cluster.Gang) []share.Tenant {
	all := make([]share.Tenant, len(gangs))
	for i, g := range gangs {
		all[i] = c.tenant(g, c.at(g).Spots())
	}
	return all
}

// canMove says whether a gang may be asked to leave its device for the sake of speed.
func (c *Sharing) canMove(g *cluster.Gang) bool {
	r, t := g.Running, c.s.Tuning
	if r == nil {
		return true
	}
	return !c.s.NoNews && r.Spoke && !r.StopPending && (g.Measured() && r.Seconds >= t.MinRescaleSeconds || !t.AtEpochs) && g.RecentRestarts < t.MaxRestartsPerHour
}

// worth is the progress, in seconds of a job of weight 1 alone, that a guest on devices of its own adds by the end of
// its training, less the restart and what a change must save beyond it.
func (c *Sharing) worth(g *cluster.Gang) float64 {
	at := c.at(g).Spots()
	gangs := c.company(at)
	tenants, i := c.tenants(gangs), slices.Index(gangs, g)
	if i < 0 {
		return math.Inf(-1)
	}
	weight := tenants[i].Weight
	faster := share.Apart(c.known(at[0]), tenants, i) - c.s.Tuning.Hysteresis*weight
	return faster*g.RemainingOn(len(at), len(c.at(g).Parts)) - weight*c.s.RestartSeconds(g)
}
