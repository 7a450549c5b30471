package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Policies hand out whole devices, and none of them knows that jobs may share. One job of each shared device, its host, stands before the policy as the job
// of that device. The others ride: they lodge beside a host of their tenant as long as the device has memory for them, and have their turn before the
// policy as soon as it has not. Quotas and the power budget thus count a shared device once.
type lodgings struct {
	state State
	// board is that of the jobs that may share: their order, labels and predictions.
	board *board
	// open are the nodes whose devices may be shared.
	open []bool
	// lodgers are these jobs in the order in which they are served.
	lodgers []*lodger
	byID    map[train.JobID]*lodger
	// shared are the devices that hosts have in this round, in the order of the board.
	shared []*lodging
	// owed is what jobs that have outgrown their parts use beyond what the plan counts as theirs.
	owed map[spot]unit.Bytes
	// starving are the jobs that have waited for too long for a device, in the order in which they are served; kept are the devices that none comes to
	// before they do.
	starving []*Job
	kept     map[spot]*Job
	// known is what is known of devices of each model and driver.
	known map[device]*curve.Interference
	// refused are the jobs for which there is no place beside others in this round.
	refused map[likeness]bool
	// reasons are why they wait nevertheless where there is room.
	reasons map[likeness]train.Reason
}

// device is what one device has in common with others that run jobs alike.
type device struct{ model, driver string }

// lodger is a job that may share its device.
type lodger struct {
	*candidate
	kind *curve.Kind
	// memory is what it needs of a device.
	memory unit.Bytes
	// held is where it lodged when the decision began, at where it lodges now.
	held, at spot
	// silent: it runs and cannot be asked to leave.
	silent bool
	// displaced: in an earlier round it lost the device that it shared.
	displaced bool
	// outgrown is where it uses more than its part, until it has left; nowhere for all others.
	outgrown spot
	// leaves: it does not stay beside those with whom it lodged, at left. moves: it stands before the policy although it may stay.
	leaves, moves bool
	left          spot
	// part is what it has of the device at which it lodges; 0 is the whole. host is the job that stands for it, nil where it does so itself.
	part unit.Bytes
	host *lodger
}

// spot is a device by its numbers on the board.
type spot struct{ node, device int }

func (s spot) somewhere() bool { return s.node != nowhere }

func compareSpots(x, y spot) int {
	return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.device, y.device))
}

// lodging is a device that jobs share.
type lodging struct {
	spot
	// host stands for it before the policy; jobs are all that are on it, the host first.
	host *lodger
	jobs []*lodger
	left unit.Bytes
}

// mayShare says whether a job may have its device together with others. Where the size is the user's own request, the policy knows best.
func mayShare(j Job) bool {
	return !j.CancelRequested && j.Request == nil && j.Spec.SharedMemory() > 0
}

func newLodgings(s State) *lodgings {
	own := s
	own.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(j Job) bool { return !mayShare(j) })
	l := &lodgings{state: s, board: newBoard(own, false), byID: map[train.JobID]*lodger{}, known: map[device]*curve.Interference{}, reasons: map[likeness]train.Reason{}}
	l.open = l.board.openNodes(s.Nodes)
	for _, c := range l.board.jobs {
		one := &lodger{
			candidate: c, memory: c.deviceMemory(), held: l.find(c.Planned), outgrown: spot{node: nowhere},
			silent: c.Running != nil && !c.Running.Spoke && !c.Running.StopPending,
		}
		if on := l.find(c.runsOn()); one.silent && on.somewhere() {
			one.held = on
		}
		l.lodgers, l.byID[c.ID] = append(l.lodgers, one), one
	}
	l.seeOutgrown()
	l.starving = l.board.starving(s, train.Plan{})
	l.part()
	return l
}

// deviceMemory is what a job is given of a device that it shares: what its user estimates until it is measured. What jobs like it needed with one other
// batch is no measurement of this one; with several, their slope is. One that has outgrown its part asks for what it was seen to use.
func (j *Job) deviceMemory() unit.Bytes {
	asked := j.Spec.SharedMemory()
	if j.Model == nil || j.Model.Memory == nil {
		return asked
	}
	m := j.Model.Memory
	measured := m.Reserved(j.Spec.BatchSize)
	if j.Outgrown || m.Points < 2 && j.EpochsDone == 0 {
		return max(asked, measured)
	}
	return measured
}

// find gives the device of a holding; nowhere where there is none, or not any more.
func (l *lodgings) find(h *Holding) spot {
	if h != nil {
		if p, ok := l.board.locate(*h); ok && p.size == 1 {
			return spot{p.node, p.devices[0]}
		}
	}
	return spot{node: nowhere}
}

// openNodes are the nodes whose devices may be shared: those that say so by their label, or all where none does.
func (b *board) openNodes(nodes []train.Node) []bool {
	sharing := map[string]string{train.SharingLabel: "true"}
	chosen := slices.ContainsFunc(nodes, func(n train.Node) bool { return n.Has(sharing) })
	open := make([]bool, len(b.nodes))
	for i := range nodes {
		if at, found := b.findNode(nodes[i].ID); found {
			open[at] = !chosen || nodes[i].Has(sharing)
		}
	}
	return open
}

// decide asks the policy again as long as the riders are not those that it was asked without: whoever found no lodging stands before it next time, and whoever
// found one does not. What is published is therefore decided again alike.
func (l *lodgings) decide(p Policy) train.Plan {
	riders, kept := l.firstRiders(), map[spot]bool{}
	var made train.Plan
	for range maxRounds {
		made = p.decide(l.without(riders))
		hosts := map[*lodger]spot{}
		for _, a := range made.Allocations {
			if one := l.byID[a.Job]; one != nil {
				hosts[one] = l.find(&Holding{Node: a.Node, Devices: a.Devices})
			}
		}
		l.starving = l.board.starving(l.state, made)
		l.settle(hosts)
		next := map[train.JobID]bool{}
		for _, one := range l.lodgers {
			lost := riders[one.ID] && one.held.somewhere() && !one.at.somewhere()
			switch {
			case lost && one.silent && kept[one.held]:
				next[one.ID] = true // it cannot leave, nor can the one that has the device from now on
			case lost && !one.displaced:
				// Whoever loses the device that it shared stands before the policy before it goes elsewhere.
				one.displaced, kept[one.held] = true, kept[one.held] || one.silent
			default:
				l.lodge(one)
			}
		}
		maps.Copy(next, l.riders())
		if maps.Equal(next, riders) {
			break
		}
		riders = next
	}
	return l.explain(made)
}

// without is the state as the policy sees it.
func (l *lodgings) without(riders map[train.JobID]bool) State {
	s := l.state
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Rides = riders[j.ID]
		if one := l.byID[j.ID]; one != nil && (one.leaves || one.moves) && !j.Rides {
			j.Planned = nil // that device is another's
		}
	}
	return s
}

// riders are the jobs that lodge beside another.
func (l *lodgings) riders() map[train.JobID]bool {
	riders := map[train.JobID]bool{}
	for _, one := range l.lodgers {
		if one.host != nil {
			riders[one.ID] = true
		}
	}
	return riders
}

// firstRiders are the jobs that shared a device before and, where fewer devices are idle than jobs wait, those that fit beside others: while one is
// idle nobody need share.
func (l *lodgings) firstRiders() map[train.JobID]bool {
	l.settle(l.firstHosts())
	idle := l.idle()
	for _, one := range l.lodgers {
		switch {
		case one.at.somewhere():
		case idle > 0:
			idle--
		default:
			l.lodge(one)
		}
	}
	l.moveOut(idle)
	return l.riders()
}

// firstHosts are the jobs that stood for their devices before. Where that one is gone, it is a job that cannot leave, else the one that is served first.
func (l *lodgings) firstHosts() map[*lodger]spot {
	first := map[spot]*lodger{}
	better := func(x, y *lodger) bool {
		if x.rode() != y.rode() {
			return y.rode()
		}
		return x.silent && !y.silent
	}
	for _, one := range l.lodgers {
		if known := first[one.held]; one.held.somewhere() && (known == nil || better(one, known)) {
			first[one.held] = one
		}
	}
	hosts := map[*lodger]spot{}
	for at, one := range first {
		hosts[one] = at
	}
	return hosts
}

// rode says whether the job came to its device as to another's.
func (one *lodger) rode() bool { return one.Planned != nil && one.Planned.Beside != "" }

// idle is how many devices nobody holds, as far as the power budget leaves something for them, less what the jobs need that wait, could run and do not share.
func (l *lodgings) idle() int {
	held, waiting := map[spot]bool{}, 0
	for i := range l.state.Jobs {
		j := &l.state.Jobs[i]
		if j.CancelRequested {
			continue
		}
		for _, h := range []*Holding{j.Planned, j.runsOn()} {
			if h == nil {
				continue
			}
			for _, part := range h.places() {
				p, _ := l.board.locatePart(part)
				for _, d := range p.devices {
					held[spot{p.node, d}] = true
				}
			}
		}
		if j.Planned == nil && j.Running == nil && !mayShare(*j) && l.possible(j) {
			waiting += max(j.Spec.MinDevices, 1)
		}
	}
	return min(l.board.total-len(held), l.powered(held)) - waiting
}

// powered is for how many devices the power budget leaves enough beside those that are held.
func (l *lodgings) powered(held map[spot]bool) int {
	left, least := l.board.granted.watts, math.Inf(1)
	for at := range held {
		left -= l.board.nodes[at.node].watts
	}
	for i := range l.board.nodes {
		least = min(least, l.board.nodes[i].watts)
	}
	if math.IsInf(left, 1) || !(least > 0) {
		return l.board.total
	}
	return max(int((left+slackWatts)/least), 0)
}

// runsOn is what a job has now; nil where that is nothing.
func (j *Job) runsOn() *Holding {
	if j.Running == nil {
		return nil
	}
	return &j.Running.Holding
}

// settle begins a round: hosts have their devices, and whoever lodged with one of them before stays as long as there is memory.
func (l *lodgings) settle(hosts map[*lodger]spot) {
	l.shared, l.refused, l.kept = nil, map[likeness]bool{}, map[spot]*Job{}
	for _, one := range l.lodgers {
		one.at, one.host, one.part = spot{node: nowhere}, nil, 0
		if at, has := hosts[one]; has {
			one.at, one.part = at, l.partAt(one, at)
			here := &lodging{spot: at, host: one, jobs: []*lodger{one}}
			if one.part > 0 {
				here.left = l.device(at).Memory - one.part
			}
			l.shared = append(l.shared, here)
		}
	}
	slices.SortFunc(l.shared, func(x, y *lodging) int { return compareSpots(x.spot, y.spot) })
	for _, one := range l.lodgers {
		if here := l.lodgingAt(one.held); here != nil && !one.at.somewhere() && l.fits(one, here) && l.getOn(one, here) {
			here.take(one, l.riderPart(one, one.held))
		}
	}
	l.keep()
}

// lodgingAt gives a device as it is shared in this round; nil where no job that may share stands for it.
func (l *lodgings) lodgingAt(at spot) *lodging {
	i, found := slices.BinarySearchFunc(l.shared, at, func(x *lodging, at spot) int { return compareSpots(x.spot, at) })
	if !found {
		return nil
	}
	return l.shared[i]
}

// fits says whether a job may lodge beside the host of a device: a fault of one may reach the other, so they are of one tenant.
func (l *lodgings) fits(one *lodger, here *lodging) bool {
	if one.Spec.Tenant != here.host.Spec.Tenant {
		return false
	}
	part := l.riderPart(one, here.spot)
	return part > 0 && part <= l.leftFor(one, here) && (one.held == here.spot || l.board.nodes[here.node].traits.grant(one.wish))
}

func (here *lodging) take(one *lodger, part unit.Bytes) {
	one.at, one.part, one.host = here.spot, part, here.host
	here.jobs, here.left = append(here.jobs, one), here.left-part
}

// release is the reverse of take.
func (here *lodging) release(one *lodger) {
	here.jobs, here.left = slices.DeleteFunc(here.jobs, func(o *lodger) bool { return o == one }), here.left+one.part
	one.at, one.part, one.host = spot{node: nowhere}, 0, nil
}

// partAt is how much of a device a job has there: what it runs with, else what it needs; 0 where it has the device as a whole.
func (l *lodgings) partAt(one *lodger, at spot) unit.Bytes {
	if r := one.Running; r != nil && !r.StopPending && l.find(&r.Holding) == at && (one.outgrown != at || one.silent) {
		return r.Memory
	}
	if !l.open[at.node] {
		return 0
	}
	return l.device(at).Share(one.memory)
}

// riderPart is how much of a device a job has beside another: it does not go on with the whole of it.
func (l *lodgings) riderPart(one *lodger, at spot) unit.Bytes {
	if part := l.partAt(one, at); part > 0 || !l.open[at.node] {
		return part
	}
	return l.device(at).Share(one.memory)
}

func (l *lodgings) device(at spot) *train.Device { return &l.board.nodes[at.node].devices[at.device] }
