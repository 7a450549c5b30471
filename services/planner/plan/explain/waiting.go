package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
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
			Code: HeadOfLineBlocked, Message: fmt.Sprintf("waits in line behind %s, which needs %s", g.Head.ID, g.Head.Asks()),
			Hint: "the policy fifo lets nobody pass",
		})
		if shares {
			reasons = append(reasons, a.memory(g))
		}
		return reasons // devices may well be free
	case a.reserved[g] > 0:
		return append([]train.Reason{{
			Code: DevicesKept, Message: fmt.Sprintf("needs %s; %s kept for it since it has waited for too long", g.Asks(), cluster.Devices(a.reserved[g])),
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

// Behind are the reasons of jobs so far back in the queue that the decision does not weigh them.
func Behind(jobs []train.JobID) []train.Waiting {
	reasons := []train.Reason{{
		Code: LongQueue, Message: "waits so far back in a long queue that plans do not weigh it yet", Hint: "it comes nearer as those before it start; a higher priority goes first",
	}}
	waiting := make([]train.Waiting, len(jobs))
	for i, id := range jobs {
		waiting[i] = train.Waiting{Job: id, Blockers: reasons}
	}
	return waiting
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
	goesOn := goesOn(g)
	switch takers := a.takers(g); {
	case len(takers) > 0 && takers[0].Priority > g.Priority:
		return []train.Reason{{Code: PreemptedByPriority, Message: "its devices go to " + cluster.Names(takers), Hint: goesOn}}
	case len(takers) > 0:
		return []train.Reason{{Code: PreemptedByShorter, Message: "its devices go to " + cluster.Names(takers), Hint: goesOn}}
	case !g.Former.Empty() && !bound:
		return []train.Reason{{Code: PreemptedByShorter, Message: "its devices are needed otherwise", Hint: goesOn}}
	case g.Former.Empty() && g.Planned != nil && g.Parted.Empty() && g.Overused.Empty():
		return []train.Reason{a.without(g, goesOn)}
	}
	return nil
}

// goesOn says how a gang goes on that loses its devices; empty if it has not begun.
func goesOn(g *cluster.Gang) string {
	switch r := g.Running; {
	case g.EpochsDone > 0 || r != nil && (r.Saved || r.Epochs > 0):
		return "it goes on from its checkpoint"
	case r != nil:
		return "it leaves at its first checkpoint, if that comes in time"
	}
	return ""
}

// without says what became of the devices that the last plan gave to a gang that holds nothing.
func (a *account) without(g *cluster.Gang, goesOn string) train.Reason {
	if e := a.ExcludedFrom(g); e != nil {
		return train.Reason{Code: e.Reason.Code, Message: "gives up its devices: " + e.Reason.Message, Hint: e.Reason.Hint}
	}
	switch p, there := a.Locate(g.Planned); {
	case !there:
		return train.Reason{Code: DevicesGone, Message: "the devices that it was given are gone"}
	case g.Running == nil && !g.StartsOn(g.Planned.Places()[0].Node):
		return train.Reason{Code: train.NodeNotOffered, Message: fmt.Sprintf("the scheduler of the cluster would no longer start it on node %s", g.Planned.Places()[0].Node)}
	case p.Memory > 0 && a.GuestPart(g, p.Spots()) == 0:
		return train.Reason{
			Code: DevicesGone, Message: fmt.Sprintf("jobs no longer share the devices of node %s", g.Planned.Places()[0].Node),
			Hint: fmt.Sprintf("other nodes have the label %s=true", train.SharingLabel),
		}
	}
	return train.Reason{Code: PreemptedByShorter, Message: "its devices are needed otherwise", Hint: goesOn}
}

// bound is the reason of a gang that a quota or the power budget keeps from devices.
func (a *account) bound(g *cluster.Gang) (train.Reason, bool) {
	kept, watts := a.Ledger.Reserved(g)
	if quota, left, has := a.Ledger.Quota(g.Spec.Tenant); has && left-kept < g.Least {
		r := train.Reason{
			Code: QuotaReached, Message: fmt.Sprintf("needs %s; %q holds %d of its quota of %d", g.Asks(), g.Spec.Tenant, quota-left, quota),
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
			Code: PowerBudgetReached, Message: fmt.Sprintf("needs %s, and the power budget leaves %.0f W", g.Asks(), max(a.Ledger.Watts(), 0)),
			Hint: "it starts when others end, or with a larger power budget",
		}
		if a.Ledger.Granted(g, a.LeastWatts) < g.Least {
			r.Hint = "it needs a larger power budget"
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
	what := feasible.Wants(g)
	if g.Servers != nil {
		what += " and 1 parameter server"
		space = a.spaces.Devices(g)
	}
	r := train.Reason{
		Code:    WaitingForDevices,
		Message: fmt.Sprintf("needs %s%s%s, %d free, %d more needed", what, where, feasible.Selector(g), space.Free, max(g.Least-space.Free, 0)),
	}
	if g.Servers != nil && space.Free >= g.Least && a.spaces.Of(g).Free < g.Least {
		r = a.needsServer(g, space.Free, where)
	}
	if free, most := a.beyondMemory(g); space.Free < g.Least && free >= g.Least {
		r = train.Reason{Code: WaitingForMainMemory, Message: fmt.Sprintf("needs %s%s%s; %s free, and no node with a free device has more than %s left",
			what, where, feasible.Selector(g), areFree(free), most)}
	}
	if small := a.tooSmall(g); small > 0 && g.Need.Kind == train.KindGPU {
		r.Message += "; the largest that is free has " + small.Exact()
	}
	if kept := a.spaces.Kept(g); len(kept) > 0 {
		r.Message += "; " + feasible.KeptWords(kept)
	}
	if idle := space.Idle - space.Free; idle > 0 {
		r.Message += fmt.Sprintf("; %d idle, reserved for %s", idle, a.reservedAhead(g))
	}
	if ahead > 0 {
		r.Message += "; ahead: " + cluster.Names(a.waiting[:ahead])
	}
	if s := a.State.Balances[g.Spec.Tenant]; g.Overuse > 0 && s.Used > s.Granted {
		r.Message += fmt.Sprintf("; %q has used %.0f %% of recent device time, its shares are %.0f %%: tenants that have used less of theirs go first",
			g.Spec.Tenant, 100*s.Used, 100*s.Granted)
	}
	r.Hint = a.silentBelow(g.Priority)
	return r
}

// beyondMemory is how many devices are free in one place for a gang if it needed no main memory, and the most main
// memory that is left on a node with a free one.
func (a *account) beyondMemory(g *cluster.Gang) (free int, most unit.Bytes) {
	if g.RAM == 0 {
		return 0, 0
	}
	byModel := map[string]int{}
	for i := range a.Nodes {
		n, here := &a.Nodes[i], a.Ledger.Free(i)
		if !g.Suits(n) || here <= 0 {
			continue
		}
		if a.Spans {
			byModel[n.Model+n.Island] += here
			here = byModel[n.Model+n.Island]
		}
		free, most = max(free, here), max(most, unit.Bytes(a.Ledger.RAMLeft(i)))
	}
	return free, most
}

// tooSmall is the memory of the largest free device that would suit a gang if it had more memory; 0 if there is none.
func (a *account) tooSmall(g *cluster.Gang) unit.Bytes {
	var most unit.Bytes
	for i := range a.Nodes {
		n := &a.Nodes[i]
		if !g.Fits(n.Memory) && a.Ledger.FreeFor(g, i) > 0 && n.Spec.Has(g.Spec.NodeLabels) && g.Need.Suits(n.Spec) {
			most = max(most, unit.Bytes(n.Memory))
		}
	}
	return most
}

// areFree counts free devices in words.
func areFree(n int) string {
	if n == 1 {
		return "1 device is"
	}
	return cluster.Devices(n) + " are"
}

// needsServer is the reason of a gang for whose server no node has the cores or the memory left.
func (a *account) needsServer(g *cluster.Gang, free int, where string) train.Reason {
	cores, ram := 0, int64(0)
	for i := range a.Nodes {
		if g.Suits(&a.Nodes[i]) && a.Ledger.FreeFor(g, i) > 0 {
			cores, ram = max(cores, a.Ledger.CoresLeft(i)), max(ram, a.Ledger.RAMLeft(i))
		}
	}
	r := train.Reason{Code: WaitingForServer, Hint: "lower what a parameter server needs, or wait until others end"}
	need := fmt.Sprintf("needs %s and %s%s%s; %s free", g.Asks(), cluster.ServerWords(g), where, feasible.Selector(g), areFree(free))
	switch {
	case g.Servers.Cores > cores && cores == 0:
		r.Message = need + ", and no node with a free device has a core left"
	case g.Servers.Cores > cores:
		r.Message = fmt.Sprintf("%s, and no node with a free device has more than %s left", need, cluster.Cores(cores))
	case g.Servers.MemoryMiB<<20 > ram:
		r.Message = fmt.Sprintf("%s, and no node with a free device has more than %s left", need, unit.Bytes(ram))
	default:
		r.Message = need + ", but the server leaves too few of them cores"
	}
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
