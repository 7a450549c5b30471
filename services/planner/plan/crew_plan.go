package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// decideCrews is Optimus where jobs may have parameter servers and span nodes. As on one node, a change must pay for the restarts that it causes, and the
// policy is asked again with its own answer applied until it leaves it as it is.
func decideCrews(s State) train.Plan {
	d := newCrews(s)
	for range maxRounds {
		d.settleSizes()
		if d.explore() {
			d.place()
		}
		stable := true
		for _, c := range d.all {
			if c.got != c.base || !sameBerths(c.held, c.placed) {
				stable, c.rescalable = false, false
				c.base, c.held = c.got, c.placed
			}
		}
		if stable && !d.reconsider() {
			break
		}
	}
	d.name()
	return d.plan()
}

// reconsider lets crews be changed again that are back to what they had: the next decision will see them so. It says whether there are any.
func (d *crews) reconsider() bool {
	found := false
	for _, c := range d.all {
		if c.movable && !c.rescalable && sameBerths(c.initial, c.held) {
			c.rescalable, found = true, true
		}
	}
	return found
}

func sameBerths(x, y []berth) bool {
	return slices.EqualFunc(x, y, func(x, y berth) bool { return x.node == y.node && x.roles == y.roles })
}

func newCrews(s State) *crews {
	d := &crews{board: newBoard(s, true)}
	byID := make(map[train.NodeID]train.Node, len(s.Nodes))
	for _, n := range s.Nodes {
		byID[n.ID] = n
	}
	for i := range d.nodes {
		r := newRoom(&d.nodes[i], byID[d.nodes[i].id])
		d.rooms = append(d.rooms, r)
		d.total.devices, d.total.cores, d.total.memory = d.total.devices+r.devices, d.total.cores+r.cores, d.total.memory+r.memory
		d.largest = max(d.largest, r.devices)
	}
	d.total.slots = !slices.ContainsFunc(d.rooms, func(r room) bool { return !r.slots })
	taken := d.unmarked()
	for _, pinned := range []bool{true, false} {
		for _, c := range d.jobs {
			silent := c.Running != nil && !c.Running.Spoke && !c.Running.StopPending
			if silent == pinned {
				d.all = append(d.all, d.newCrew(c, silent, taken))
			}
		}
	}
	shelves := racks(d.rooms)
	for _, c := range d.all {
		c.misfit = c.base.none() && d.spread(c, c.floor(), shelves, d.rooms) == nil
	}
	slices.SortFunc(d.all, func(x, y *crew) int {
		return cmp.Or(compareTrue(x.pinned, y.pinned), cmp.Compare(x.rank, y.rank))
	})
	return d
}

// unmarked has a mark for each device, by node.
func (d *crews) unmarked() [][]bool {
	marks := make([][]bool, len(d.nodes))
	for i := range marks {
		marks[i] = make([]bool, len(d.nodes[i].devices))
	}
	return marks
}

// compareTrue puts what is true first.
func compareTrue(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

func (d *crews) newCrew(candidate *candidate, silent bool, taken [][]bool) *crew {
	c := &crew{candidate: candidate}
	if candidate.Spec.Strategy == train.StrategyParameterServer {
		c.servers = candidate.Spec.WithDefaults().ParameterServers
	}
	if c.Model != nil {
		c.epochsLeft = c.Model.EpochsLeft(float64(c.EpochsDone), c.Spec.StopRule()).Expected
	}
	c.pinned, c.rescalable, c.movable = false, false, false
	h, holds := c.holding(silent)
	if !holds || !d.hold(c, h, taken) {
		return c
	}
	r := c.Running
	c.pinned = silent
	c.rescalable = !silent && r != nil && r.Spoke && !r.StopPending && sameParts(r.places(), h.places()) && r.Epochs >= 1 &&
		r.Seconds >= d.tuning.MinRescaleSeconds && c.RecentRestarts < d.tuning.MaxRestartsPerHour
	c.movable = c.rescalable
	return c
}

// holding is what a crew holds: what it runs on where it cannot be asked to leave, else what the last plan gave. Attempts know nothing of servers.
func (c *crew) holding(silent bool) (Holding, bool) {
	if c.Planned == nil {
		if silent {
			return c.Running.Holding, true
		}
		return Holding{}, false
	}
	h := *c.Planned
	if silent {
		h = c.Running.Holding
		h.Servers = c.Planned.Servers
	}
	return h, true
}

func sameParts(x, y []train.Part) bool {
	return slices.EqualFunc(x, y, train.Part.Same)
}

// hold enters what a crew holds; false where any of it is gone or another's, or it is not of a size for the job.
func (d *crews) hold(c *crew, h Holding, taken [][]bool) bool {
	var held []berth
	size := roles{}
	for _, part := range h.places() {
		p, ok := d.locate(Holding{Node: part.Node, Devices: part.Devices})
		if !ok || slices.ContainsFunc(p.devices, func(i int) bool { return taken[p.node][i] }) {
			return false
		}
		b := berth{node: p.node, roles: roles{workers: p.size}, devices: p.devices}
		for _, s := range h.Servers {
			if s.Node == part.Node {
				b.servers = s.Count
			}
		}
		held, size = append(held, b), size.plus(b.roles)
	}
	if floor := c.floor(); size.workers < floor.workers || size.servers < floor.servers || size.workers > c.max {
		return false
	}
	for _, b := range held {
		for _, i := range b.devices {
			taken[b.node][i] = true
		}
	}
	c.base, c.initial, c.held = size, held, held
	return true
}

// settleSizes gives each crew a size and a place. Sizes follow from the totals of the cluster, which may promise a crew what no node has for it: it may then
// have the places of lower priorities, and where these are not enough either it is left out of this round, so that nobody makes room for it in vain.
func (d *crews) settleSizes() {
	for _, c := range d.all {
		c.homeless = 0
	}
	for range mostAttempts {
		d.choose()
		if d.place() {
			return
		}
	}
}

// mostAttempts bounds how often sizes are chosen in a round. Each time some crew is left out, and what was promised to it is promised to others.
const mostAttempts = 64

// choose settles the size of each crew: by marginal gain, if that pays for its restarts against leaving all where they are.
func (d *crews) choose() {
	for _, c := range d.all {
		c.settled = true
	}
	d.solve()
	still := d.sizes()
	for _, c := range d.all {
		c.settled = !c.rescalable || c.changeable()*d.remaining(c, c.base) <= d.tuning.RestartSeconds
	}
	for again := true; again; {
		d.solve()
		again = d.settleSmallGains()
	}
	moved := d.sizes()
	choices := make([]choice, len(d.all))
	for i, c := range d.all {
		x := choice{priority: c.Priority, share: 1, restarts: !c.base.none() && moved[i] != c.base && still[i] == c.base}
		if !c.base.none() {
			x.share = c.changeable()
		}
		for k, r := range []roles{still[i], moved[i]} {
			if x.held[k] = !r.none(); x.held[k] {
				x.seconds[k] = d.remaining(c, r)
			}
		}
		choices[i] = x
	}
	slices.SortStableFunc(choices, func(x, y choice) int { return cmp.Compare(y.priority, x.priority) })
	if !d.tuning.pays(choices) {
		for i, c := range d.all {
			c.got = still[i]
		}
	}
}

func (d *crews) sizes() []roles {
	sizes := make([]roles, len(d.all))
	for i, c := range d.all {
		sizes[i] = c.got
	}
	return sizes
}

// settleSmallGains marks crews that would change for less than their restart is worth; false where there are none.
func (d *crews) settleSmallGains() bool {
	found := false
	for _, c := range d.all {
		if c.settled || c.base.none() || c.got.none() || c.got == c.base {
			continue
		}
		before := d.remaining(c, c.base)
		saved := c.changeable() * (before - d.remaining(c, c.got))
		if saved >= 0 && saved <= d.tuning.Hysteresis*before+d.tuning.RestartSeconds {
			c.settled, found = true, true
		}
	}
	return found
}

// explore is that of one node, for crews: while all that teaches most is free and nobody waits. It says whether any crew has another size now.
func (d *crews) explore() bool {
	left := d.total
	for _, c := range d.all {
		if c.got.none() {
			return false
		}
		left.take(c.needs(c.got, d.total.slots))
	}
	found := false
	for _, c := range d.all {
		if !c.rescalable || c.got != c.base {
			continue
		}
		bounds := curve.SampleBounds{MinWorkers: c.min, MaxWorkers: min(c.max, c.got.workers+left.devices)}
		if c.servers != nil {
			bounds.MaxServers = c.servers.Max
		}
		here := train.Config{Workers: c.got.workers, Servers: c.got.servers, Nodes: max(len(c.held), 1), LocalBatch: c.Spec.BatchSize}
		next, ok := d.nextSample(c.candidate, c.Spec.SpeedKind(), here, bounds)
		if !ok {
			continue
		}
		to := roles{next.Workers, next.Servers}
		room := left
		room.give(c.needs(c.got, d.total.slots))
		if need := c.needs(to, d.total.slots); room.has(need) {
			room.take(need)
			left, c.got, c.sampled, found = room, to, true, true
		}
	}
	return found
}

func (r *room) give(back room) {
	r.devices, r.cores, r.memory = r.devices+back.devices, r.cores+back.cores, r.memory+back.memory
}

// plan says who gets what, and why.
func (d *crews) plan() train.Plan {
	made := train.Plan{Policy: Optimus{}.Name(), Allocations: []train.Allocation{}}
	for _, c := range d.all {
		if c.got.none() {
			continue
		}
		a := train.Allocation{Job: c.ID, Reason: d.reason(c)}
		for _, b := range c.placed {
			part := train.Part{Node: d.nodes[b.node].id, Devices: d.ids(b.node, b.devices)}
			a.Parts = append(a.Parts, part)
			if b.servers > 0 {
				a.Servers = append(a.Servers, train.ServerPart{Node: part.Node, Count: b.servers})
			}
		}
		if len(a.Parts) == 1 {
			a.Node, a.Devices, a.Parts = a.Parts[0].Node, a.Parts[0].Devices, nil
		}
		if c.predicted.source != fromNothing {
			a.RemainingSeconds = d.remaining(c, c.got)
		}
		made.Allocations = append(made.Allocations, a)
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
	slices.SortFunc(d.all, func(x, y *crew) int { return cmp.Compare(x.rank, y.rank) })
	for _, c := range d.all {
		if c.got.none() {
			made.Waiting = append(made.Waiting, train.Waiting{Job: c.ID, Blockers: []train.Reason{d.blocker(c)}})
		}
	}
	return made
}

func (r roles) words() string {
	words := fmt.Sprintf("%d workers", r.workers)
	if r.workers == 1 {
		words = "1 worker"
	}
	switch r.servers {
	case 0:
		return words
	case 1:
		return words + " and 1 parameter server"
	}
	return fmt.Sprintf("%s and %d parameter servers", words, r.servers)
}

func (d *crews) reason(c *crew) train.Reason {
	had := d.formerRoles(c)
	where := fmt.Sprintf("%s on %d nodes", c.got.words(), len(c.placed))
	if len(c.placed) == 1 {
		where = fmt.Sprintf("%s on node %s", c.got.words(), d.nodes[c.placed[0].node].id)
	}
	floor := c.floor()
	switch {
	case had.none() && c.got != floor:
		least, left := d.remaining(c, floor), d.remaining(c, c.got)
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("gets %s, which save %.0f s of %.0f s against %s", where, least-left, least, floor.words())}
	case had.none():
		return train.Reason{Code: ReasonPlaced, Message: "gets " + where}
	case c.sampled && had != c.got:
		return train.Reason{Code: ReasonSampling, Message: fmt.Sprintf("runs with %s instead of %s for an epoch: how fast it is so is not known, and nobody waits", where, had.words())}
	case had == c.got && len(c.replaced) > 0:
		return c.replacedSlow()
	case had == c.got:
		return train.Reason{Code: ReasonKept, Message: "has " + where}
	}
	before, after := d.remaining(c, had), d.remaining(c, c.got)
	if after < before {
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("%s instead of %s save %.0f s of %.0f s; the restart costs %.0f s", where, had.words(), before-after, before, d.tuning.RestartSeconds)}
	}
	return train.Reason{Code: ReasonShrunkForOthers, Message: fmt.Sprintf("%s instead of %s: others gain more by the rest", where, had.words())}
}

// formerRoles is what the job held when the decision began.
func (d *crews) formerRoles(c *crew) roles {
	sum := roles{}
	for _, devices := range d.former(c) {
		sum.workers += len(devices)
	}
	if h, holds := c.holding(c.pinned); holds && sum.workers > 0 {
		for _, s := range h.Servers {
			sum.servers += s.Count
		}
	}
	return sum
}

// blocker says why a crew waits.
func (d *crews) blocker(c *crew) train.Reason {
	floor := c.floor()
	if len(d.nodes) == 0 {
		return train.Reason{Code: ReasonNoNode, Message: "no node is alive", Hint: "start a node agent"}
	}
	if none, unsuited := d.unsuited(c.candidate); unsuited {
		return none
	}
	if c.misfit {
		return train.Reason{Code: ReasonDevicesTooFew, Message: fmt.Sprintf("needs %s, more than all nodes have room for", floor.words()), Hint: "lower min_devices or what a parameter server needs"}
	}
	return train.Reason{Code: ReasonWaitingForDevices, Message: fmt.Sprintf("needs %s, and there is no room for them", floor.words())}
}
