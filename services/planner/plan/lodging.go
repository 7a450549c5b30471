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
// policy as soon as it has not. Quotas and the power budget thus count a shared device once. Who rides on several devices has them all beside one host, and
// of two jobs that meet one has all devices of the other: so there is one to stand for all of them also when the host has gone.
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
	// starving are the jobs that have waited for too long for a device, in the order in which they are served. What the keeper keeps for them none comes to
	// before they do.
	starving []*Job
	keeper   *keeper
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
	held, at spots
	// silent: it runs and cannot be asked to leave.
	silent bool
	// displaced: in an earlier round it lost the device that it shared.
	displaced bool
	// outgrown is where it uses more than its part, until it has left; nowhere for all others.
	outgrown spots
	// leaves: it does not stay beside those with whom it lodged, at left. moves: it stands before the policy although it may stay.
	leaves, moves bool
	left          spots
	// promised is why it was given what it held since.
	promised *train.Reason
	// part is what it has of each device at which it lodges; 0 is the whole. host is the job that stands for it, nil where it does so itself.
	part unit.Bytes
	host *lodger
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
			candidate: c, memory: c.deviceMemory(), held: l.find(c.Planned),
			silent: c.Running != nil && !c.Running.Spoke && !c.Running.StopPending,
		}
		if on := l.find(c.runsOn()); one.silent && on.somewhere() {
			one.held = on
		}
		l.lodgers, l.byID[c.ID] = append(l.lodgers, one), one
	}
	l.seeOutgrown()
	l.keeper = newKeeper(s)
	l.starving = starving(s, train.Plan{})
	l.part()
	return l
}

// deviceMemory is what a job is given of a device that it shares: what its user estimates until it is measured, for the batch that was submitted; a larger one is
// taken to need as much more. What jobs like it needed with one other batch is no measurement of this one; with several, their slope is. One that has outgrown its part
// asks for what it was seen to use.
func (j *Job) deviceMemory() unit.Bytes {
	asked, batch := j.Spec.SharedMemory(), j.localBatch()
	if batch > j.Spec.BatchSize && !j.Outgrown {
		asked = unit.Bytes(float64(asked) * float64(batch) / float64(j.Spec.BatchSize))
	}
	if j.Model == nil || j.Model.Memory == nil {
		return asked
	}
	m := j.Model.Memory
	measured := m.Reserved(batch)
	if j.Outgrown || m.Points < 2 && j.EpochsDone == 0 {
		return max(asked, measured)
	}
	return measured
}

// localBatch is how many samples a job has on each device: more than were submitted where its experiment has the same step on fewer devices (see sized). On more it
// is planned with as many as were submitted.
func (j *Job) localBatch() int {
	meant := train.Setting{BatchDevices: j.BatchDevices}
	return max(meant.BatchOn(j.Spec.MinDevices, j.Spec.BatchSize), j.Spec.BatchSize)
}

// find gives the devices of a holding; none where any is not there any more, or they are of several nodes: those are never shared.
func (l *lodgings) find(h *Holding) spots {
	if h == nil {
		return nil
	}
	p, ok := l.board.locate(*h)
	if !ok {
		return nil
	}
	found := make(spots, p.size)
	for i, d := range p.devices {
		found[i] = spot{p.node, d}
	}
	return found
}

// spread says whether a job has devices of several nodes, all of them for itself.
func (one *lodger) spread() bool {
	has := cmp.Or(one.Planned, one.runsOn())
	return has != nil && len(has.Parts) > 1
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

// decide asks the policy, at first without these riders, and again as long as the riders are not those that it was asked without: whoever found no lodging stands before it next time, and whoever
// found one does not. What is published is therefore decided again alike.
func (l *lodgings) decide(p Policy, riders map[train.JobID]bool) train.Plan {
	kept := map[spot]bool{}
	var made train.Plan
	for round := range maxRounds {
		made = decideKeeping(l.without(riders), p)
		hosts, served := map[*lodger]spots{}, map[*lodger]bool{}
		for _, a := range made.Allocations {
			if one := l.byID[a.Job]; one != nil {
				hosts[one], served[one] = l.find(&Holding{Node: a.Node, Devices: a.Devices}), true
			}
		}
		l.starving = starving(l.state, made)
		next := map[train.JobID]bool{}
		for _, one := range l.stayers(made, riders) {
			made.Allocations = append(made.Allocations, l.stays(one))
			hosts[one], served[one], next[one.ID] = one.held, true, true
		}
		l.settle(hosts)
		for _, one := range l.bySize() {
			switch lost := riders[one.ID] && one.held.somewhere() && !one.at.somewhere(); {
			case lost && one.silent && kept[one.held[0]]:
				next[one.ID] = true // it cannot leave, nor can the one that has the device from now on
			case lost && !one.displaced:
				// Whoever loses the device that it shared stands before the policy before it goes elsewhere.
				one.displaced, served[one] = true, true
				for _, at := range one.held {
					kept[at] = kept[at] || one.silent
				}
			}
		}
		l.lodgeAll(served)
		maps.Copy(next, l.riders())
		if maps.Equal(next, riders) {
			break
		}
		if riders = next; round >= maxRounds/2 {
			l.promise(made)
		}
	}
	return l.explain(made)
}

// promise has jobs hold what the policy has just given them, as after the plan, where others came to lodge with them. Who stands before it with devices that it
// shared, or without, may change what it answers to others, and so to and fro.
func (l *lodgings) promise(made train.Plan) {
	for _, a := range made.Allocations {
		one := l.byID[a.Job]
		if one == nil || slices.Equal(one.held, one.at) || !slices.ContainsFunc(l.lodgers, func(o *lodger) bool { return o.host == one }) {
			continue
		}
		one.held, one.promised = one.at, &a.Reason
		l.replan(one, &Holding{Node: a.Node, Devices: a.Devices, Memory: one.part})
	}
}

// bySize are all that may share, those that held the most devices first: they stand for those that have some of the same.
func (l *lodgings) bySize() []*lodger {
	sorted := slices.Clone(l.lodgers)
	slices.SortStableFunc(sorted, func(x, y *lodger) int { return cmp.Compare(len(y.held), len(x.held)) })
	return sorted
}

// without is the state as the policy sees it. A host is as young as the youngest of those beside it: it is not moved for the sake of speed before each of them
// has finished an epoch there.
func (l *lodgings) without(riders map[train.JobID]bool) State {
	s := l.state
	s.Jobs = slices.Clone(s.Jobs)
	young := map[train.JobID]bool{}
	for _, one := range l.lodgers {
		if riders[one.ID] && one.host != nil && one.held.somewhere() && (one.Running == nil || one.Running.Epochs < 1) {
			young[one.host.ID] = true
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Rides = riders[j.ID]
		if young[j.ID] && j.Running != nil {
			running := *j.Running
			running.Epochs = 0
			j.Running = &running
		}
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
		if one.at.somewhere() || one.spread() {
			continue
		}
		if idle < one.min {
			l.lodge(one)
		}
		if !one.at.somewhere() && l.keeper.possible(&one.Job) { // what is idle is for nobody behind it, also where it is too little for it alone
			idle = max(idle-one.min, 0)
		}
	}
	l.moveOut(idle)
	return l.riders()
}

// firstHosts are the jobs that stood for their devices before. Where that one is gone, it is the one with the most of them, of several a job that cannot
// leave, else the one that is served first.
func (l *lodgings) firstHosts() map[*lodger]spots {
	sorted := slices.Clone(l.lodgers)
	slices.SortStableFunc(sorted, func(x, y *lodger) int {
		return cmp.Or(last(x.rode(), y.rode()), cmp.Compare(len(y.held), len(x.held)), last(!x.silent, !y.silent))
	})
	taken, hosts := map[spot]bool{}, map[*lodger]spots{}
	for _, one := range sorted {
		if slices.ContainsFunc(one.held, func(at spot) bool { return taken[at] }) {
			continue
		}
		hosts[one] = one.held
		for _, at := range one.held {
			taken[at] = true
		}
	}
	return hosts
}

// last orders those of which something is true behind the others.
func last(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// rode says whether the job came to its device as to another's.
func (one *lodger) rode() bool { return one.Planned != nil && one.Planned.Beside != "" }

// idle is how many devices nobody holds, as far as the power budget leaves something for them, less what the jobs need that wait, could run and do not share.
func (l *lodgings) idle() int {
	waiting := 0
	for i := range l.state.Jobs {
		j := &l.state.Jobs[i]
		if !j.CancelRequested && j.Planned == nil && !mayShare(*j) && l.keeper.possible(j) {
			waiting += max(j.Spec.MinDevices, 1)
		}
	}
	return min(l.board.total-len(l.keeper.load), l.powered()) - waiting
}

// powered is for how many devices the power budget leaves enough beside those that are held.
func (l *lodgings) powered() int {
	left, least := l.keeper.left.watts, math.Inf(1)
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
