package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// The codes of reasons, for programs; the words beside them may change.
const (
	// Allocations.
	ReasonPlaced             = "Placed"
	ReasonKept               = "Kept"
	ReasonRestartNotWorth    = "RestartNotWorth"
	ReasonGrewByMarginalGain = "GrewByMarginalGain"
	ReasonShrunkForOthers    = "ShrunkForOthers"
	ReasonShrunkForSpeed     = "ShrunkForSpeed"
	ReasonMoved              = "Moved"
	ReasonSampling           = "Sampling"
	ReasonReplacedStraggler  = "ReplacedStraggler"
	// Waiting.
	ReasonNoNode              = "NoNode"
	ReasonDevicesTooFew       = "DevicesTooFew"
	ReasonDevicesGone         = "DevicesGone"
	ReasonPreemptedByPriority = "PreemptedByPriority"
	ReasonPreemptedByShorter  = "PreemptedByShorter"
	ReasonHeadOfLineBlocked   = "HeadOfLineBlocked"
	ReasonWaitingForDevices   = "WaitingForDevices"
	ReasonWaitingForMemory    = "WaitingForMemory"
	ReasonQuotaReached        = "QuotaReached"
	ReasonPowerBudgetReached  = "PowerBudgetReached"
)

// named is what the words need of a policy.
type named interface{ Name() string }

// account is the finished board with what the words need.
type account struct {
	*board
	policy named
	// owner is the job that gets a device, former the one that held it when the decision began, by node and device.
	owner, former [][]*candidate
	waiting       []*candidate // in the order in which they would be served
	silent        []*candidate // cannot be asked to leave
	// starts are predicted waits by rank; 0 when unknown.
	starts []float64
	spaces map[spaceKey]space
}

// space is the most devices that a job of a size and memory finds in one place, all of them and those that are free.
type space struct{ widest, free int }

type spaceKey struct {
	memory unit.Bytes
	least  int
	wish   int
}

// explain turns the board into a plan with a reason for every job.
func explain(b *board, p named) train.Plan {
	a := newAccount(b, p)
	made := train.Plan{Policy: p.Name(), Allocations: []train.Allocation{}}
	for _, c := range b.jobs {
		if !c.got.held() {
			continue
		}
		allocation := train.Allocation{Job: c.ID, Reason: a.allocated(c), Batch: c.batch}
		if parts := b.parts(&c.got); len(parts) > 1 {
			allocation.Parts = parts
		} else {
			allocation.Node, allocation.Devices = parts[0].Node, parts[0].Devices
		}
		if c.predicted.source != fromNothing {
			allocation.RemainingSeconds = c.remaining(c.got.total())
		}
		made.Allocations = append(made.Allocations, allocation)
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
	for i, c := range a.waiting {
		made.Waiting = append(made.Waiting, train.Waiting{Job: c.ID, Blockers: a.blockers(c, i), StartInSeconds: a.starts[c.rank]})
	}
	return made
}

func newAccount(b *board, p named) *account {
	a := &account{board: b, policy: p, owner: b.owners(), former: b.owners(), spaces: map[spaceKey]space{}}
	for _, c := range b.jobs {
		if c.pinned {
			a.silent = append(a.silent, c)
		}
		c.first.own(a.former, c)
		if !c.got.held() {
			a.waiting = append(a.waiting, c)
			continue
		}
		c.got.own(a.owner, c)
	}
	slices.SortFunc(a.waiting, func(x, y *candidate) int { return cmp.Compare(x.turn, y.turn) })
	a.starts = a.predictStarts()
	return a
}

// owners has room for a job for each device, by node.
func (b *board) owners() [][]*candidate {
	owners, all := make([][]*candidate, len(b.nodes)), make([]*candidate, b.total)
	for i := range b.nodes {
		n := len(b.nodes[i].devices)
		owners[i], all = all[:n:n], all[n:]
	}
	return owners
}

// own enters a job as the one that has the devices of a place.
func (p *place) own(owners [][]*candidate, c *candidate) {
	for i := range p.spread() {
		for _, d := range p.part(i).devices {
			owners[p.part(i).node][d] = c
		}
	}
}

// parts names the devices of a place.
func (b *board) parts(p *place) []train.Part {
	parts := make([]train.Part, p.spread())
	for i := range parts {
		part := p.part(i)
		parts[i] = train.Part{Node: b.nodes[part.node].id, Devices: b.ids(part.node, part.devices)}
	}
	return parts
}

// ids are the names of devices of a node.
func (b *board) ids(node int, devices []int) []train.DeviceID {
	ids := make([]train.DeviceID, len(devices))
	for i, d := range devices {
		ids[i] = b.nodes[node].devices[d].ID
	}
	return ids
}

// where names a place in words.
func (a *account) where(p *place) string {
	if p.spread() > 1 {
		return fmt.Sprintf("%s on %d nodes", devices(p.total()), p.spread())
	}
	return fmt.Sprintf("%s of node %s", devices(p.size), a.nodes[p.node].id)
}

// allocated says why a job gets what it gets.
func (a *account) allocated(c *candidate) train.Reason {
	had, has := c.first.total(), c.got.total()
	switch {
	case !c.first.held():
		return a.placed(c)
	case c.sampled && has != had:
		return train.Reason{Code: ReasonSampling, Message: fmt.Sprintf("goes on with %s instead of %d for an epoch: how fast it is there is not known, and nobody waits",
			devices(has), had)}
	case len(c.replaced) > 0 && has == had:
		return c.replacedSlow()
	case c.first.same(&c.got):
		return a.kept(c)
	case c.got.node != c.first.node && c.got.spread() == 1:
		return train.Reason{Code: ReasonMoved, Message: fmt.Sprintf("goes on with %s: %s", a.where(&c.got), a.lostTo(c))}
	case has > had && c.predicted.source == fromNothing:
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("gets %s instead of %d", a.where(&c.got), had)}
	case has > had:
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("%s instead of %d save %.0f s of %.0f s; the restart costs %.0f s",
			devices(has), had, c.saves(had, has), c.remaining(had), a.restartSeconds(c))}
	case has < had:
		if before, after := c.remaining(had), c.remaining(has); after < before {
			return train.Reason{Code: ReasonShrunkForSpeed, Message: fmt.Sprintf("%s are predicted to save %.0f s of %.0f s against %d", devices(has), before-after, before, had)}
		}
		return train.Reason{Code: ReasonShrunkForOthers, Message: fmt.Sprintf("keeps %d of %s: %s", has, devices(had), a.lostTo(c))}
	case c.got.spread() > 1 || c.first.spread() > 1:
		return train.Reason{Code: ReasonMoved, Message: "goes on with " + a.where(&c.got)}
	}
	return train.Reason{Code: ReasonMoved, Message: fmt.Sprintf("goes on with other devices of node %s: %s", a.nodes[c.got.node].id, a.lostTo(c))}
}

// restartSeconds is the price of a restart of a job.
func (b *board) restartSeconds(c *candidate) float64 {
	if c.RestartSeconds > 0 {
		return c.RestartSeconds
	}
	return b.tuning.RestartSeconds
}

// placed is the reason of a job that held nothing.
func (a *account) placed(c *candidate) train.Reason {
	message := "gets " + a.where(&c.got)
	if _, marginal := a.policy.(Optimus); marginal && c.got.size > c.min {
		before, after := c.remaining(c.min), c.remaining(c.got.size)
		words := fmt.Sprintf("%s; %d instead of %d save %.0f s of %.0f s", message, c.got.size, c.min, before-after, before)
		if c.predicted.source != fromModel {
			words += " as far as can be told before the first epoch"
		}
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: words}
	}
	if leaving := a.leaving(c); len(leaving) > 0 {
		message += ", which " + strings.Join(leaving, ", ") + " must leave first"
	}
	return train.Reason{Code: ReasonPlaced, Message: message}
}

// kept is the reason of a job that goes on as it is.
func (a *account) kept(c *candidate) train.Reason {
	r := train.Reason{Code: ReasonKept, Message: "keeps " + devices(c.got.total())}
	grows := false
	switch a.policy.(type) {
	case Optimus, Switchyard:
		grows = a.tuning.AtEpochs || !a.spans
	}
	free := 0
	if c.got.spread() == 1 {
		free = min(a.most(c, c.got.node), c.max-c.got.size)
	}
	switch {
	case c.pinned:
		r.Message += "; it has not called the job API yet, so it cannot be asked to leave"
	case !grows || free <= 0:
	case c.RecentRestarts >= a.tuning.MaxRestartsPerHour:
		r.Message += fmt.Sprintf("; it was restarted %d times within an hour, as often as is allowed", c.RecentRestarts)
	case !c.rescalable:
		r.Message += "; it may grow once it has finished an epoch on them"
	default:
		r.Code = ReasonRestartNotWorth
		r.Message += fmt.Sprintf("; %d more would save %.0f s of %.0f s, less than a restart must save",
			free, max(c.saves(c.got.size, c.got.size+free), 0), c.remaining(c.got.size))
	}
	return r
}

// lostTo names the jobs that get devices which c held.
func (a *account) lostTo(c *candidate) string {
	takers := a.takers(c)
	if len(takers) == 0 {
		return "the others are needed otherwise"
	}
	return "the others go to " + list(takers)
}

func (a *account) takers(c *candidate) []*candidate { return others(&c.first, a.owner, c) }

// leaving names the jobs that held what c gets.
func (a *account) leaving(c *candidate) []string {
	var names []string
	for _, o := range others(&c.got, a.former, c) {
		names = append(names, string(o.ID))
	}
	return names
}

// others are the jobs besides c that have devices of a place.
func others(p *place, owners [][]*candidate, c *candidate) []*candidate {
	var found []*candidate
	for i := range p.spread() {
		for _, d := range p.part(i).devices {
			if o := owners[p.part(i).node][d]; o != nil && o != c && !slices.Contains(found, o) {
				found = append(found, o)
			}
		}
	}
	return found
}

// space is what a job finds in one place.
func (a *account) space(c *candidate) space {
	key := spaceKey{c.Spec.EstimatedMemory(), c.min, c.wish}
	if r, known := a.spaces[key]; known {
		return r
	}
	r, sums := space{}, map[string]space{}
	for i := range a.nodes {
		n := &a.nodes[i]
		if !c.suits(n.memory, n.traits) || !a.spans && len(n.devices) < c.min {
			continue
		}
		here := space{len(n.devices), n.free()}
		if a.spans {
			here.widest, here.free = here.widest+sums[n.model].widest, here.free+sums[n.model].free
			sums[n.model] = here
		}
		r.widest, r.free = max(r.widest, here.widest), max(r.free, here.free)
	}
	a.spaces[key] = r
	return r
}

// blockers are all the reasons why a job waits, the dominant one first; ahead is the number of those that would be served before.
func (a *account) blockers(c *candidate, ahead int) []train.Reason {
	if len(a.nodes) == 0 {
		return []train.Reason{{Code: ReasonNoNode, Message: "no node is alive", Hint: "start a node agent"}}
	}
	if none, unlabelled := a.labelled(c); unlabelled {
		return []train.Reason{none}
	}
	if a.space(c).widest < c.min {
		return []train.Reason{a.tooFew(c)}
	}
	limited, bound := a.bound(c)
	var reasons []train.Reason
	switch takers := a.takers(c); {
	case len(takers) > 0 && takers[0].Priority > c.Priority:
		reasons = append(reasons, train.Reason{Code: ReasonPreemptedByPriority, Message: "its devices go to " + list(takers), Hint: "it goes on from its checkpoint"})
	case len(takers) > 0 || c.first.held() && !bound:
		r := train.Reason{Code: ReasonPreemptedByShorter, Message: "its devices are needed otherwise", Hint: "it goes on from its checkpoint"}
		if len(takers) > 0 {
			r.Message = "its devices go to " + list(takers)
		}
		reasons = append(reasons, r)
	case !c.first.held() && c.Planned != nil:
		reasons = append(reasons, train.Reason{Code: ReasonDevicesGone, Message: "the devices that it was given are gone"})
	}
	if c.head != nil {
		reasons = append(reasons, train.Reason{
			Code: ReasonHeadOfLineBlocked, Message: fmt.Sprintf("waits in line behind %s, which needs %s", c.head.ID, devices(c.head.min)),
			Hint: "the policy fifo lets nobody pass",
		})
	}
	if c.head != nil {
		return reasons // devices may well be free
	}
	if bound {
		return append(reasons, limited)
	}
	return append(reasons, a.needs(c, ahead))
}

// bound is the reason of a job that a quota or the power budget keeps from devices.
func (a *account) bound(c *candidate) (train.Reason, bool) {
	if left, has := a.allowance.quotas[c.Spec.Tenant]; has && left < c.min {
		quota := a.granted.quotas[c.Spec.Tenant]
		r := train.Reason{
			Code: ReasonQuotaReached, Message: fmt.Sprintf("needs %s; %q holds %d of its quota of %d", devices(c.min), c.Spec.Tenant, quota-left, quota),
			Hint: "it starts when jobs of the same tenant end",
		}
		if quota < c.min {
			r.Hint = "lower min_devices or ask for a larger quota"
		}
		return r, true
	}
	if a.space(c).free >= c.min && !a.allowed(c) {
		return train.Reason{
			Code: ReasonPowerBudgetReached, Message: fmt.Sprintf("needs %s, and the power budget leaves %.0f W", devices(c.min), max(a.allowance.watts, 0)),
			Hint: "it starts when others end, or with a larger power budget",
		}, true
	}
	return train.Reason{}, false
}

// tooFew is the reason of a job that the present nodes can never hold.
func (a *account) tooFew(c *candidate) train.Reason {
	where, widest := " on one node", "the largest has"
	if a.spans {
		where, widest = "", "there are"
	}
	r := train.Reason{
		Code: ReasonDevicesTooFew, Message: fmt.Sprintf("needs %s%s, and %s %d", devices(c.min), where, widest, a.widest()),
		Hint: "lower min_devices or add devices",
	}
	switch {
	case a.widest() < c.min:
	case c.wish != nowhere:
		r.Message = fmt.Sprintf("needs %s%s%s, and there are not so many", devices(c.min), where, withLabels(c))
		r.Hint = "lower min_devices or what is asked of the node"
	default:
		r.Message = fmt.Sprintf("needs %s of %s each%s, and no node has them", devices(c.min), c.Spec.EstimatedMemory(), where)
		r.Hint = "lower min_devices or estimated_memory_mib"
	}
	return r
}

// needs is the plain reason: too few devices are free.
func (a *account) needs(c *candidate, ahead int) train.Reason {
	free, where := a.space(c).free, " on one node"
	if a.spans {
		where = ""
	}
	r := train.Reason{
		Code:    ReasonWaitingForDevices,
		Message: fmt.Sprintf("needs %s%s%s, %d free, %d more needed", devices(c.min), where, withLabels(c), free, max(c.min-free, 0)),
	}
	if ahead > 0 {
		r.Message += "; ahead: " + list(a.waiting[:ahead])
	}
	var silent []*candidate
	for _, o := range a.silent {
		if o.Priority < c.Priority {
			silent = append(silent, o)
		}
	}
	if len(silent) > 0 {
		r.Hint = list(silent) + " cannot be asked to leave: no call of the job API yet"
	}
	return r
}

// devices counts devices in words.
func devices(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// list names at most three jobs with their priorities.
func list(jobs []*candidate) string {
	const most = 3
	var names []string
	for _, c := range jobs[:min(len(jobs), most)] {
		names = append(names, fmt.Sprintf("%s (priority %d)", c.ID, c.Priority))
	}
	words := strings.Join(names, ", ")
	if more := len(jobs) - most; more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	return words
}
