// Package explain turns a finished decision into a plan with a reason for every job. Phases note why they decide as
// they do (cluster.Notes); here is the one place that makes sentences of that.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/colocate"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
)

// The codes of reasons, for programs; the words beside them may change.
const (
	// Allocations.
	Placed             = "Placed"
	Kept               = "Kept"
	RestartNotWorth    = "RestartNotWorth"
	GrewByMarginalGain = "GrewByMarginalGain"
	ShrunkForOthers    = "ShrunkForOthers"
	ShrunkForSpeed     = "ShrunkForSpeed"
	Moved              = "Moved"
	Sampling           = "Sampling"
	ReplacedStraggler  = "ReplacedStraggler"
	MemoryOutgrown     = "MemoryOutgrown"
	SizeWanted         = "SizeWanted"
	// Waiting.
	DevicesGone          = "DevicesGone"
	PreemptedByPriority  = "PreemptedByPriority"
	PreemptedByShorter   = "PreemptedByShorter"
	HeadOfLineBlocked    = "HeadOfLineBlocked"
	LongQueue            = "LongQueue"
	WaitingForDevices    = "WaitingForDevices"
	WaitingForServer     = "WaitingForServer"
	WaitingForMainMemory = "WaitingForMainMemory"
	DevicesKept          = "DevicesKept"
	QuotaReached         = colocate.QuotaReached
	PowerBudgetReached   = "PowerBudgetReached"
)

// account is the finished decision with what the words need.
type account struct {
	*cluster.Snapshot
	sharing *colocate.Sharing
	spaces  *feasible.Spaces
	// owner is the gang that came first to a device, former the one that held it when the decision began, by node and
	// device.
	owner, former [][]*cluster.Gang
	waiting       []*cluster.Gang // in the order in which they would be served
	silent        []*cluster.Gang // cannot be asked to leave
	silentNames   map[int]string  // by the priority that they are below
	reservedNames map[int]string  // by the number of reservations ahead
	// reserved counts the devices that are free for each of them alone.
	reserved map[*cluster.Gang]int
	// forecasts are by rank.
	forecasts []train.Forecast
}

// Plan says who gets what, and why. sharing is nil if no gang may share a device.
func Plan(s *cluster.Snapshot, sharing *colocate.Sharing) train.Plan {
	if sharing != nil {
		sharing.Look()
	}
	a := newAccount(s, sharing)
	made := train.Plan{Allocations: []train.Allocation{}, PowerBudgetWatts: s.State.PowerBudgetWatts}
	for _, g := range s.Gangs {
		if !g.Got.Empty() {
			made.Allocations = append(made.Allocations, a.allocation(g))
		}
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
	for i, g := range a.waiting {
		w := train.Waiting{Job: g.ID, Blockers: a.blockers(g, i), Forecast: a.forecasts[g.Rank]}
		if start := w.Forecast.Start; start != nil {
			w.StartInSeconds = start.Expected
		}
		if i < holdersShown {
			w.Holders = a.holders(g)
		}
		made.Waiting = append(made.Waiting, w)
	}
	return made
}

func newAccount(s *cluster.Snapshot, sharing *colocate.Sharing) *account {
	a := &account{Snapshot: s, sharing: sharing, spaces: feasible.NewSpaces(s), owner: owners(s), former: owners(s), silentNames: map[int]string{}, reservedNames: map[int]string{}}
	for _, g := range s.Gangs {
		if g.Stuck() && !g.Got.Empty() {
			a.silent = append(a.silent, g)
		}
		own(a.former, g.Former, g)
		if g.Got.Empty() {
			a.waiting = append(a.waiting, g)
			continue
		}
		own(a.owner, g.Got, g)
	}
	slices.SortStableFunc(a.waiting, func(x, y *cluster.Gang) int { return cmp.Compare(x.Turn, y.Turn) })
	a.reserved = a.reservations()
	a.forecast()
	return a
}

// reservations count the devices that are kept for each gang that waits.
func (a *account) reservations() map[*cluster.Gang]int {
	kept := map[*cluster.Gang]int{}
	for i, r := range a.Ledger.Reservations() {
		if r.For.Got.Empty() {
			kept[r.For] += a.Ledger.KeptBy(i)
		}
	}
	return kept
}

func owners(s *cluster.Snapshot) [][]*cluster.Gang {
	all := make([]*cluster.Gang, s.Total)
	by := make([][]*cluster.Gang, len(s.Nodes))
	for i := range s.Nodes {
		n := len(s.Nodes[i].Devices)
		by[i], all = all[:n:n], all[n:]
	}
	return by
}

// own enters a gang as the owner of the devices of a placement. A guest owns only devices without another owner.
func own(owners [][]*cluster.Gang, p cluster.Placement, g *cluster.Gang) {
	for _, part := range p.Parts {
		for _, d := range part.Devices {
			if owners[part.Node][d] == nil || g.Primary == nil {
				owners[part.Node][d] = g
			}
		}
	}
}

func (a *account) allocation(g *cluster.Gang) train.Allocation {
	made := train.Allocation{Job: g.ID, Reason: a.allocated(g), Batch: g.Batch, BatchChoice: batchChoice(g)}
	parts := a.Named(g.Got)
	if made.Memory = g.Got.Memory; len(parts) > 1 {
		made.Parts = parts
	} else {
		made.Node, made.Devices = parts[0].Node, parts[0].Devices
	}
	for _, part := range g.Got.Parts {
		node, last := a.Nodes[part.Node].ID, len(made.Servers)-1
		switch {
		case part.Servers == 0:
		case last >= 0 && made.Servers[last].Node == node:
			made.Servers[last].Count += part.Servers
		default:
			made.Servers = append(made.Servers, train.ServerPart{Node: node, Count: part.Servers})
		}
	}
	if g.Primary != nil {
		made.Beside = g.Primary.ID
	}
	if made.Forecast = a.forecasts[g.Rank]; made.Forecast.Finish != nil {
		made.RemainingSeconds = made.Forecast.Finish.Expected
	}
	return made
}

// allocated says why a gang gets what it gets.
func (a *account) allocated(g *cluster.Gang) train.Reason {
	if g.Notes.Reason != nil {
		return *g.Notes.Reason
	}
	r := a.whole(g)
	if a.sharing != nil && g.Got.Memory > 0 {
		r = a.part(g, r)
	}
	return r
}

// part adds to the reason of a gang how much of its devices it has, and who else is on them.
func (a *account) part(g *cluster.Gang, r train.Reason) train.Reason {
	if g.Primary != nil {
		where := train.OnNodes(a.Named(g.Got))
		switch {
		case g.Held.Empty() && g.Former.Empty():
			r = train.Reason{Code: Placed, Message: "gets " + where}
		case g.Got.SameDevices(g.Former) && (g.Running == nil || g.Running.Memory == g.Got.Memory):
			r = train.Reason{Code: Kept, Message: "keeps " + where}
		default:
			r = train.Reason{Code: Moved, Message: "goes on with " + where}
		}
		r.Message += a.sharing.CoRunners(g)
	} else {
		each := ""
		if g.Got.Size() > 1 {
			each = " of each"
		}
		r.Message += fmt.Sprintf("; it has %s of the memory%s%s", g.Got.Memory, each, a.sharing.CoRunners(g))
	}
	if !g.Overused.Empty() && !g.Silent {
		r.Code = MemoryOutgrown
		r.Message += outgrown(g)
	}
	return r
}

func outgrown(g *cluster.Gang) string {
	return fmt.Sprintf("; it has outgrown the %s with which it was started", g.Running.Memory)
}

// whole is the reason of a gang without regard to co-runners.
func (a *account) whole(g *cluster.Gang) train.Reason {
	had, has := g.Former.Size(), g.Got.Size()
	switch {
	case wanted(g):
		why := "its experiment wants to know how fast it is there"
		if g.Resized {
			why = "its user asks for that"
		}
		return train.Reason{Code: SizeWanted, Message: fmt.Sprintf("goes on with %s instead of %d: %s", cluster.Devices(has), g.Planned.Size(), why)}
	case g.Former.Empty():
		return a.placed(g)
	case g.Notes.Sampled && !g.Got.SameShape(g.Former):
		span := "an epoch"
		if g.AnyStep() {
			span = "some steps"
		}
		return train.Reason{Code: Sampling, Message: fmt.Sprintf("goes on with %s instead of %s for %s: how fast it is there is not known, and nobody waits",
			cluster.Amount(g.Got), instead(g), span)}
	case g.Former.SameDevices(g.Got) && g.Former.Servers() == g.Got.Servers():
		return a.kept(g)
	case has != had || g.Former.Servers() != g.Got.Servers():
		return a.resized(g)
	}
	return a.moved(g)
}

// moved is the reason of a gang that has as much elsewhere.
func (a *account) moved(g *cluster.Gang) train.Reason {
	switch {
	case len(g.Notes.Links) > 0:
		return train.Reason{
			Code: feasible.LinkDegraded, Message: fmt.Sprintf("goes on with %s: between the nodes that it had, %s", a.Where(g.Got), cluster.LossWords(g.Notes.Links)),
		}
	case len(g.Notes.Replaced) > 0:
		return replaced(g)
	case len(g.Got.Parts) > 1 || len(g.Former.Parts) > 1:
		return train.Reason{Code: Moved, Message: "goes on with " + a.Where(g.Got)}
	case g.Got.Parts[0].Node != g.Former.Parts[0].Node:
		return train.Reason{Code: Moved, Message: fmt.Sprintf("goes on with %s: %s", a.Where(g.Got), a.lostTo(g))}
	}
	return train.Reason{Code: Moved, Message: fmt.Sprintf("goes on with other devices of node %s: %s", a.Nodes[g.Got.Parts[0].Node].ID, a.lostTo(g))}
}

// wanted says whether a gang has the size that its experiment wants, and had another one.
func wanted(g *cluster.Gang) bool {
	has := g.Got.Size()
	return g.Planned != nil && has == g.WantsDevices && has != g.Planned.Size()
}

// instead names what a gang had, in short if only the number of devices differs.
func instead(g *cluster.Gang) string {
	if g.Former.Servers() == 0 && g.Got.Servers() == 0 {
		return fmt.Sprint(g.Former.Size())
	}
	return cluster.Amount(g.Former)
}

// seconds is the predicted time to the end with a placement.
func (a *account) seconds(g *cluster.Gang, p cluster.Placement) float64 {
	return g.RemainingWith(p.Size(), p.Servers(), a.NodesFor(p.Size()))
}

// resized is the reason of a gang that has another size than before.
func (a *account) resized(g *cluster.Gang) train.Reason {
	had, has := g.Former.Size(), g.Got.Size()
	grew := has > had || has == had && g.Got.Servers() > g.Former.Servers()
	before, after := a.seconds(g, g.Former), a.seconds(g, g.Got)
	switch {
	case grew && g.Source() == cluster.FromNothing:
		return train.Reason{Code: GrewByMarginalGain, Message: fmt.Sprintf("gets %s instead of %s", a.Where(g.Got), instead(g))}
	case grew:
		return train.Reason{Code: GrewByMarginalGain, Message: fmt.Sprintf("%s instead of %s save %.0f s of %.0f s; the restart costs %.0f s",
			cluster.Amount(g.Got), instead(g), g.Changeable()*(before-after), before, a.RestartSeconds(g))}
	case after < before:
		return train.Reason{Code: ShrunkForSpeed, Message: fmt.Sprintf("with %s instead of %s it is predicted to save %.0f s of %.0f s",
			cluster.Amount(g.Got), instead(g), before-after, before)}
	case g.Former.Servers() > 0 || g.Got.Servers() > 0 || !g.Former.On(g.Got.Parts[0].Node):
		return train.Reason{Code: ShrunkForOthers, Message: fmt.Sprintf("goes on with %s instead of %s: %s", a.Where(g.Got), cluster.Amount(g.Former), a.lostTo(g))}
	}
	return train.Reason{Code: ShrunkForOthers, Message: fmt.Sprintf("keeps %d of %s: %s", has, cluster.Devices(had), a.lostTo(g))}
}

// placed is the reason of a gang that held nothing.
func (a *account) placed(g *cluster.Gang) train.Reason {
	message := "gets " + a.Where(g.Got)
	if g.Notes.ByGain && g.Primary == nil {
		least := g.Got.Lesser(g.Least, g.ServersLeast())
		before, after := a.seconds(g, least), a.seconds(g, g.Got)
		words := fmt.Sprintf("%s; %d instead of %d save %.0f s of %.0f s", message, g.Got.Size(), g.Least, before-after, before)
		if g.Servers != nil {
			words = fmt.Sprintf("%s, which save %.0f s of %.0f s against %s", message, before-after, before, cluster.Amount(least))
		}
		if g.Source() != cluster.FromModel {
			words += " as far as the planner can predict before the first epoch"
		}
		return train.Reason{Code: GrewByMarginalGain, Message: words}
	}
	if e := a.ExcludedFrom(g); e != nil {
		return train.Reason{Code: Moved, Message: fmt.Sprintf("goes on with %s: %s", a.Where(g.Got), e.Reason.Message)}
	}
	if bad := a.BadLinks(); len(bad) > 0 && len(g.Got.Parts) > 1 {
		message += ", off others: " + cluster.LossWords(bad)
	}
	if leaving := a.leaving(g); len(leaving) > 0 {
		message += ", which " + strings.Join(leaving, ", ") + " must leave first"
	} else if g.Primary == nil && wereReserved(g) {
		message += ", kept for it since it has waited for too long"
	}
	return train.Reason{Code: Placed, Message: message}
}

// wereReserved says whether what a gang gets was reserved for it.
func wereReserved(g *cluster.Gang) bool {
	return !slices.ContainsFunc(g.Got.Parts, func(part cluster.Part) bool {
		return !slices.ContainsFunc(g.Notes.Reserved, func(r cluster.Reservation) bool { return r.Node == part.Node && r.Count >= part.Count })
	})
}

// kept is the reason of a gang that goes on as it is.
func (a *account) kept(g *cluster.Gang) train.Reason {
	r := train.Reason{Code: Kept, Message: "keeps " + cluster.Amount(g.Got)}
	if e := a.ExcludedFrom(g); e != nil {
		r.Message += "; " + e.Reason.Message
	}
	free := 0
	if len(g.Got.Parts) == 1 && g.Notes.MayGrow {
		free = min(a.Ledger.Most(g, g.Got.Parts[0].Node), g.Most-g.Got.Size())
	}
	switch {
	case g.Unsaved:
		r.Message += "; it is not asked to leave before its first checkpoint"
	case g.Silent:
		r.Message += "; it has not called the job API yet, so it cannot be asked to leave"
	case g.Stay == cluster.StayClosed:
		r.Message += "; it stays as it is"
	case g.Resized && g.Got.Size() != g.WantsDevices:
		r.Message += fmt.Sprintf("; its user asks for %d, and it gets them when they are free", g.WantsDevices)
	case free > 0:
		why, code := a.noGrowth(g, free)
		r.Code, r.Message = code, r.Message+"; "+why
	}
	return r
}

// noGrowth says why a gang does not grow although devices of its node are free.
func (a *account) noGrowth(g *cluster.Gang, free int) (why, code string) {
	switch {
	case g.RecentRestarts >= a.Tuning.MaxRestartsPerHour:
		return fmt.Sprintf("it was restarted %d times within an hour, as often as is allowed", g.RecentRestarts), Kept
	case g.Stay == cluster.StayCoRunner && g.Beside.Priority > g.Priority:
		return fmt.Sprintf("it does not grow while %s beside it has the higher priority", g.Beside.ID), Kept
	case g.Stay == cluster.StayCoRunner:
		return fmt.Sprintf("it may grow once %s beside it has finished an epoch there", g.Beside.ID), Kept
	case !g.MayMove && g.AnyStep():
		return "it may grow once the time of its steps on them is known", Kept
	case !g.MayMove:
		return "it may grow once it has finished an epoch on them", Kept
	}
	return fmt.Sprintf("%d more would save %.0f s of %.0f s, less than a restart must save",
		free, max(g.Saves(g.Got.Size(), g.Got.Size()+free), 0), g.Remaining(g.Got.Size())), RestartNotWorth
}

// replaced is the reason of a gang that leaves slow devices.
func replaced(g *cluster.Gang) train.Reason {
	var words []string
	for _, s := range g.Notes.Replaced {
		words = append(words, fmt.Sprintf("goes on with %s in place of %s, where worker %d took %.2g times as long for a step as the others", s.With, s.Slow.Device, s.Slow.Rank, s.Slow.Slowdown))
	}
	return train.Reason{Code: ReplacedStraggler, Message: strings.Join(words, "; ")}
}

// lostTo names the gangs that get devices which a gang held.
func (a *account) lostTo(g *cluster.Gang) string {
	takers := a.takers(g)
	if len(takers) == 0 {
		return "the others are needed otherwise"
	}
	return "the others go to " + cluster.Names(takers)
}

func (a *account) takers(g *cluster.Gang) []*cluster.Gang { return others(g.Former, a.owner, g) }

// leaving names the gangs that held what a gang gets.
func (a *account) leaving(g *cluster.Gang) []string {
	var names []string
	for _, o := range others(g.Got, a.former, g) {
		names = append(names, string(o.ID))
	}
	return names
}

// others returns the gangs that have devices of a placement, except the given gang.
func others(p cluster.Placement, owners [][]*cluster.Gang, g *cluster.Gang) []*cluster.Gang {
	var found []*cluster.Gang
	for _, part := range p.Parts {
		for _, d := range part.Devices {
			if o := owners[part.Node][d]; o != nil && o != g && !slices.Contains(found, o) {
				found = append(found, o)
			}
		}
	}
	return found
}
