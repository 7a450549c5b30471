package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
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
)

// account is the finished board with what the words need.
type account struct {
	*board
	policy sharer
	// owner is the job that gets a device, former the one that held it when the decision began, by node and device.
	owner, former [][]*candidate
	waiting       []*candidate // in the order in which they would be served
	silent        []*candidate // cannot be asked to leave
	// starts are predicted waits by rank; 0 when unknown.
	starts []float64
}

// explain turns the board into a plan with a reason for every job.
func explain(b *board, p sharer) train.Plan {
	a := newAccount(b, p)
	made := train.Plan{Policy: p.Name(), Allocations: []train.Allocation{}}
	for _, c := range b.jobs {
		if !c.got.held() {
			continue
		}
		allocation := train.Allocation{Job: c.ID, Node: b.nodes[c.got.node].id, Devices: b.ids(c.got), Reason: a.allocated(c)}
		if c.predicted.source != fromNothing {
			allocation.RemainingSeconds = c.remaining(c.got.size)
		}
		made.Allocations = append(made.Allocations, allocation)
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
	for i, c := range a.waiting {
		made.Waiting = append(made.Waiting, train.Waiting{Job: c.ID, Blockers: a.blockers(c, i), StartInSeconds: a.starts[c.rank]})
	}
	return made
}

func newAccount(b *board, p sharer) *account {
	a := &account{board: b, policy: p, owner: make([][]*candidate, len(b.nodes)), former: make([][]*candidate, len(b.nodes))}
	for i := range b.nodes {
		a.owner[i] = make([]*candidate, len(b.nodes[i].devices))
		a.former[i] = make([]*candidate, len(b.nodes[i].devices))
	}
	for _, c := range b.jobs {
		if c.pinned {
			a.silent = append(a.silent, c)
		}
		for _, d := range c.first.devices {
			a.former[c.first.node][d] = c
		}
		if !c.got.held() {
			a.waiting = append(a.waiting, c)
			continue
		}
		for _, d := range c.got.devices {
			a.owner[c.got.node][d] = c
		}
	}
	slices.SortFunc(a.waiting, func(x, y *candidate) int { return cmp.Compare(x.turn, y.turn) })
	a.starts = a.predictStarts()
	return a
}

func (b *board) ids(p place) []train.DeviceID {
	ids := make([]train.DeviceID, 0, p.size)
	for _, d := range p.devices {
		ids = append(ids, b.nodes[p.node].devices[d].ID)
	}
	return ids
}

// allocated says why a job gets what it gets.
func (a *account) allocated(c *candidate) train.Reason {
	had, has := c.first, c.got
	switch {
	case !had.held():
		return a.placed(c)
	case c.sampled && has.size != had.size:
		return train.Reason{Code: ReasonSampling, Message: fmt.Sprintf("goes on with %s instead of %d for an epoch: how fast it is there is not known, and nobody waits",
			devices(has.size), had.size)}
	case len(c.replaced) > 0 && has.size == had.size:
		return c.replacedSlow()
	case has.node != had.node:
		return train.Reason{Code: ReasonMoved, Message: fmt.Sprintf("goes on with %s of node %s: %s", devices(has.size), a.nodes[has.node].id, a.lostTo(c))}
	case slices.Equal(had.devices, has.devices):
		return a.kept(c)
	case has.size > had.size:
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("%s instead of %d save %.0f s of %.0f s; the restart costs %.0f s",
			devices(has.size), had.size, c.saves(had.size, has.size), c.remaining(had.size), a.tuning.RestartSeconds)}
	case has.size < had.size:
		if before, after := c.remaining(had.size), c.remaining(has.size); after < before {
			return train.Reason{Code: ReasonShrunkForSpeed, Message: fmt.Sprintf("%s are predicted to save %.0f s of %.0f s against %d", devices(has.size), before-after, before, had.size)}
		}
		return train.Reason{Code: ReasonShrunkForOthers, Message: fmt.Sprintf("keeps %d of %s: %s", has.size, devices(had.size), a.lostTo(c))}
	}
	return train.Reason{Code: ReasonMoved, Message: fmt.Sprintf("goes on with other devices of node %s: %s", a.nodes[has.node].id, a.lostTo(c))}
}

// placed is the reason of a job that held nothing.
func (a *account) placed(c *candidate) train.Reason {
	message := fmt.Sprintf("gets %s of node %s", devices(c.got.size), a.nodes[c.got.node].id)
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
	r := train.Reason{Code: ReasonKept, Message: "keeps " + devices(c.got.size)}
	_, marginal := a.policy.(Optimus)
	free := min(a.nodes[c.got.node].free(), c.max-c.got.size)
	switch {
	case c.pinned:
		r.Message += "; it has not called the job API yet, so it cannot be asked to leave"
	case !marginal || free <= 0:
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

func (a *account) takers(c *candidate) []*candidate {
	var takers []*candidate
	for _, d := range c.first.devices {
		if o := a.owner[c.first.node][d]; o != nil && o != c && !slices.Contains(takers, o) {
			takers = append(takers, o)
		}
	}
	return takers
}

// leaving names the jobs that held what c gets.
func (a *account) leaving(c *candidate) []string {
	var names []string
	for _, d := range c.got.devices {
		if o := a.former[c.got.node][d]; o != nil && o != c && !slices.Contains(names, string(o.ID)) {
			names = append(names, string(o.ID))
		}
	}
	return names
}

// blockers are all the reasons why a job waits, the dominant one first; ahead is the number of those that would be served before.
func (a *account) blockers(c *candidate, ahead int) []train.Reason {
	if len(a.nodes) == 0 {
		return []train.Reason{{Code: ReasonNoNode, Message: "no node is alive", Hint: "start a node agent"}}
	}
	if !a.possible(c) {
		return []train.Reason{a.tooFew(c)}
	}
	var reasons []train.Reason
	switch takers := a.takers(c); {
	case len(takers) > 0 && takers[0].Priority > c.Priority:
		reasons = append(reasons, train.Reason{Code: ReasonPreemptedByPriority, Message: "its devices go to " + list(takers), Hint: "it goes on from its checkpoint"})
	case c.first.held():
		reasons = append(reasons, train.Reason{Code: ReasonPreemptedByShorter, Message: "its devices go to " + list(takers), Hint: "it goes on from its checkpoint"})
	case c.Planned != nil:
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
	return append(reasons, a.needs(c, ahead))
}

// tooFew is the reason of a job that no present node can hold.
func (a *account) tooFew(c *candidate) train.Reason {
	r := train.Reason{
		Code: ReasonDevicesTooFew, Message: fmt.Sprintf("needs %s on one node, and the largest has %d", devices(c.min), a.widest()),
		Hint: "lower min_devices or add devices",
	}
	if a.widest() >= c.min {
		r.Message = fmt.Sprintf("needs %s of %s each on one node, and no node has them", devices(c.min), c.Spec.EstimatedMemory())
		r.Hint = "lower min_devices or estimated_memory_mib"
	}
	return r
}

// needs is the plain reason: too few devices are free.
func (a *account) needs(c *candidate, ahead int) train.Reason {
	free := 0
	for i := range a.nodes {
		if a.fits(c, &a.nodes[i]) {
			free = max(free, a.nodes[i].free())
		}
	}
	r := train.Reason{
		Code:    ReasonWaitingForDevices,
		Message: fmt.Sprintf("needs %s on one node, %d free, %d more needed", devices(c.min), free, max(c.min-free, 0)),
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
