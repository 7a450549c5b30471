package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
)

// blockers are all the reasons why a gang waits, the dominant one first; ahead is the number of those that would be
// served before.
func (a *account) blockers(g *cluster.Gang, ahead int) []train.Reason {
	if never, is := a.spaces.Impossible(g); is {
		return []train.Reason{never}
	}
	limited, bound := a.bound(g)
	reasons := a.lost(g, bound)
	shares := a.sharing != nil && g.Shares()
	switch {
	case g.Head != nil:
		reasons = append(reasons, train.Reason{
			Code: HeadOfLineBlocked, Message: fmt.Sprintf("waits in line behind %s, which needs %s", g.Head.ID, cluster.Devices(g.Head.Least)),
			Hint: "the policy fifo lets nobody pass",
		})
		if shares {
			reasons = append(reasons, a.memory(g))
		}
		return reasons // devices may well be free
	case a.reserved[g] > 0:
		return append([]train.Reason{{
			Code: DevicesKept, Message: fmt.Sprintf("needs %s; %s kept for it since it has waited for too long", cluster.Devices(g.Least), cluster.Devices(a.reserved[g])),
		}}, reasons...)
	case bound:
		if reasons = append(reasons, limited); shares {
			reasons = append(reasons, a.memory(g))
		}
		return reasons
	case shares:
		r := a.memory(g)
		r.Hint = a.needs(g, ahead).Hint
		return append(reasons, r)
	}
	return append(reasons, a.needs(g, ahead))
}

// memory is the reason of a gang that found no place on a shared device.
func (a *account) memory(g *cluster.Gang) train.Reason {
	r := a.sharing.Blocker(g)
	if !g.Overused.Empty() && !g.Silent {
		r.Code = MemoryOutgrown
		r.Message += outgrown(g)
	}
	return r
}

// lost says what became of the devices that a gang had.
func (a *account) lost(g *cluster.Gang, bound bool) []train.Reason {
	goesOn := "it goes on from its checkpoint"
	if r := g.Running; r != nil && g.EpochsDone == 0 && !r.Saved && r.Epochs == 0 {
		goesOn = "it leaves at its first checkpoint, if that comes in time"
	}
	switch takers := a.takers(g); {
	case len(takers) > 0 && takers[0].Priority > g.Priority:
		return []train.Reason{{Code: PreemptedByPriority, Message: "its devices go to " + cluster.Names(takers), Hint: goesOn}}
	case len(takers) > 0:
		return []train.Reason{{Code: PreemptedByShorter, Message: "its devices go to " + cluster.Names(takers), Hint: goesOn}}
	case !g.Former.Empty() && !bound:
		return []train.Reason{{Code: PreemptedByShorter, Message: "its devices are needed otherwise", Hint: goesOn}}
	case g.Former.Empty() && g.Planned != nil && g.Parted.Empty() && g.Overused.Empty():
		if _, there := a.Locate(g.Planned); !there {
			return []train.Reason{{Code: DevicesGone, Message: "the devices that it was given are gone"}}
		}
		return []train.Reason{{Code: PreemptedByShorter, Message: "its devices are needed otherwise", Hint: goesOn}}
	}
	return nil
}

// bound is the reason of a gang that a quota or the power budget keeps from devices.
func (a *account) bound(g *cluster.Gang) (train.Reason, bool) {
	kept, watts := a.Ledger.Reserved(g)
	if quota, left, has := a.Ledger.Quota(g.Spec.Tenant); has && left-kept < g.Least {
		r := train.Reason{
			Code: QuotaReached, Message: fmt.Sprintf("needs %s; %q holds %d of its quota of %d", cluster.Devices(g.Least), g.Spec.Tenant, quota-left, quota),
			Hint: "it starts when jobs of the same tenant end",
		}
		if kept > 0 {
			r.Message += fmt.Sprintf(", and keeps %s more for jobs that have waited for too long", cluster.Devices(kept))
		}
		if quota < g.Least {
			r.Hint = "lower min_devices or ask for a larger quota"
		}
		return r, true
	}
	if a.spaces.Of(g).Free >= g.Least && !a.allowed(g) {
		r := train.Reason{
			Code: PowerBudgetReached, Message: fmt.Sprintf("needs %s, and the power budget leaves %.0f W", cluster.Devices(g.Least), max(a.Ledger.Watts(), 0)),
			Hint: "it starts when others end, or with a larger power budget",
		}
		if watts > 0 {
			r.Message += fmt.Sprintf(", %.0f W of them for jobs that have waited for too long", watts)
		}
		return r, true
	}
	return train.Reason{}, false
}

// allowed says whether quotas and the power budget leave enough for a gang.
func (a *account) allowed(g *cluster.Gang) bool {
	return a.Ledger.Allowed(g, a.MostWatts) >= g.Least
}

// needs is the plain reason: too few devices are free.
func (a *account) needs(g *cluster.Gang, ahead int) train.Reason {
	space, where := a.spaces.Of(g), " on one node"
	if a.Spans {
		where = ""
	}
	what := cluster.Devices(g.Least)
	if g.Servers != nil {
		what += " and 1 parameter server"
	}
	r := train.Reason{
		Code:    WaitingForDevices,
		Message: fmt.Sprintf("needs %s%s%s, %d free, %d more needed", what, where, feasible.Selector(g), space.Free, max(g.Least-space.Free, 0)),
	}
	if idle := space.Idle - space.Free; idle > 0 {
		r.Message += fmt.Sprintf("; %d idle, reserved for %s", idle, a.reservedAhead(g))
	}
	if ahead > 0 {
		r.Message += "; ahead: " + cluster.Names(a.waiting[:ahead])
	}
	r.Hint = a.silentBelow(g.Priority)
	return r
}

// reservedAhead names the gangs ahead of one for which devices are reserved.
func (a *account) reservedAhead(g *cluster.Gang) string {
	at := a.Ledger.ReservedAhead(g)
	names, known := a.reservedNames[at]
	if !known {
		var ahead []*cluster.Gang
		for _, o := range a.Gangs[:g.Rank] {
			if a.reserved[o] > 0 {
				ahead = append(ahead, o)
			}
		}
		names = cluster.Names(ahead)
		a.reservedNames[at] = names
	}
	return names
}

// silentBelow says which gangs of lower priorities cannot be asked to leave, and why.
func (a *account) silentBelow(priority int) string {
	words, known := a.silentNames[priority]
	if known {
		return words
	}
	of := func(unsaved bool) string {
		return cluster.Names(slices.DeleteFunc(slices.Clone(a.silent), func(o *cluster.Gang) bool {
			return o.Priority >= priority || o.Unsaved != unsaved
		}))
	}
	var all []string
	if names := of(false); names != "" {
		all = append(all, names+" cannot be asked to leave: no call of the job API yet")
	}
	if names := of(true); names != "" {
		all = append(all, names+" cannot be asked to leave: no checkpoint yet")
	}
	words = strings.Join(all, "; ")
	a.silentNames[priority] = words
	return words
}

// predictedStarts is for how many waiting jobs a start is predicted: further down the queue a number would only
// pretend.
const predictedStarts = 200

// ground is the place in which a gang finds its devices: a node, or all nodes of a kind if gangs may span them.
type ground struct {
	devices  int
	memory   int64
	class    string
	releases []release
}

// release is a number of devices that come free after a time in seconds.
type release struct {
	seconds float64
	devices int
}

// grounds are all of them, and the one of each node.
func (a *account) grounds() ([]ground, []int) {
	type kind struct {
		model, class, island string
		memory               int64
	}
	var all []ground
	of, byKind := make([]int, len(a.Nodes)), map[kind]int{}
	for i := range a.Nodes {
		n := &a.Nodes[i]
		is := kind{n.Model, n.Class, n.Island, n.Memory}
		at, known := byKind[is]
		if !known || !a.Spans {
			at = len(all)
			byKind[is] = at
			all = append(all, ground{memory: n.Memory, class: n.Class})
		}
		of[i] = at
		g := &all[at]
		g.devices += len(n.Devices)
		if free := a.Ledger.Free(i); free > 0 {
			g.releases = append(g.releases, release{0, free})
		}
	}
	return all, of
}

// after returns the time until the given number of devices is free, infinite if it never is.
func (g *ground) after(devices int) float64 {
	for _, r := range g.releases {
		if devices -= r.devices; devices <= 0 {
			return r.seconds
		}
	}
	return math.Inf(1)
}

// occupy takes the first devices that come free and gives them back after until seconds.
func (g *ground) occupy(devices int, until float64) {
	taken := devices
	for i := range g.releases {
		take := min(g.releases[i].devices, taken)
		g.releases[i].devices -= take
		taken -= take
	}
	g.releases = slices.DeleteFunc(g.releases, func(r release) bool { return r.devices == 0 })
	r := release{until, devices}
	at, _ := slices.BinarySearchFunc(g.releases, r, func(x, y release) int { return cmp.Compare(x.seconds, y.seconds) })
	g.releases = slices.Insert(g.releases, at, r)
}

// predictStarts plays the queue forward: each waiting gang in turn starts with its least where enough devices are
// released first, by the predicted ends of those that hold them. A wait of 0 means that it is unknown.
func (a *account) predictStarts() []float64 {
	starts := make([]float64, len(a.Gangs))
	line := a.line()
	if len(line) == 0 {
		return starts
	}
	grounds, of := a.grounds()
	for _, g := range a.Gangs {
		if g.Primary != nil {
			continue
		}
		for _, part := range g.Got.Parts {
			at := &grounds[of[part.Node]]
			at.releases = append(at.releases, release{end(g, g.Got.Size()), part.Count})
		}
	}
	for i := range grounds {
		slices.SortFunc(grounds[i].releases, func(x, y release) int { return cmp.Compare(x.seconds, y.seconds) })
	}
	for _, g := range line {
		best, start := -1, math.Inf(1)
		for i := range grounds {
			at := &grounds[i]
			if at.devices >= g.Least && g.SuitsKind(at.memory, at.class) && at.after(g.Least) < start {
				best, start = i, at.after(g.Least)
			}
		}
		if best >= 0 {
			starts[g.Rank] = start
			grounds[best].occupy(g.Least, start+end(g, g.Least))
		}
	}
	return starts
}

// line is the first waiting gangs that could run and that quotas and the power budget let run: nobody foresees when
// these have room again.
func (a *account) line() []*cluster.Gang {
	var line []*cluster.Gang
	for _, g := range a.waiting {
		if _, never := a.spaces.Impossible(g); !never && a.allowed(g) {
			line = append(line, g)
		}
		if len(line) == predictedStarts {
			break
		}
	}
	return line
}

// end is the predicted time until a gang ends, in seconds; infinite if the planner knows nothing about it.
func end(g *cluster.Gang, size int) float64 {
	if g.Source() == cluster.FromNothing {
		return math.Inf(1)
	}
	return g.Remaining(size)
}
