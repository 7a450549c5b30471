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
	ReasonMemoryOutgrown     = "MemoryOutgrown"
	// ReasonLinkDegraded is of both.
	ReasonLinkDegraded = "LinkDegraded"
	// Waiting.
	ReasonNoNode              = "NoNode"
	ReasonDevicesTooFew       = "DevicesTooFew"
	ReasonDevicesGone         = "DevicesGone"
	ReasonPreemptedByPriority = "PreemptedByPriority"
	ReasonPreemptedByShorter  = "PreemptedByShorter"
	ReasonHeadOfLineBlocked   = "HeadOfLineBlocked"
	ReasonWaitingForDevices   = "WaitingForDevices"
	ReasonDevicesKept         = "DevicesKept"
	ReasonWaitingForMemory    = "WaitingForMemory"
	ReasonSlowTogether        = "SlowTogether"
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
			allocation.RemainingSeconds = c.remaining(c.got.total())/max(b.through(&c.got), leastThrough) + b.waits(c, &c.got)
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
