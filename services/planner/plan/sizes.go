package plan

import (
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ReasonSizeWanted is that of a job that goes on with another number of devices because its experiment wants that.
const ReasonSizeWanted = "SizeWanted"

// mostGrown is for how many jobs a decision tries whether they may have more devices: each try asks the policy again.
const mostGrown = 8

// decideSizes decides with those jobs at one size each whose experiments choose it (Job.WantsDevices). Policies do not know of that: to them a job that is to
// give devices up has done so, and one that is to have more is a job that needs that many. It gets them if nobody has less for it, be it devices, memory or
// its place, and nobody starves, for whom idle devices are kept, and else goes on as it is: a trial that is being tuned takes from others what its priority
// takes anyway, and nothing for a probe.
func decideSizes(s State, p Policy) train.Plan {
	before := s.Jobs
	s, resizable := s.sized()
	made := handOut(s, p)
	if lesser, found := s.reduced(made, before, resizable); found {
		s, made = lesser, handOut(lesser, p)
	}
	if len(resizable) > 0 && len(starving(s, made)) > 0 {
		resizable = nil
	}
	tries := 0
	for _, i := range resizable {
		job, wanted := s.Jobs[i].ID, s.Jobs[i].WantsDevices
		has, _ := made.Find(job)
		if tries == mostGrown || wanted <= s.Jobs[i].Spec.MinDevices || s.spare(made) < wanted-size(has) {
			continue
		}
		tries++
		grown := s.needing(i, wanted)
		next := handOut(grown, p)
		if got, found := next.Find(job); found && size(got) == wanted && !s.costs(made, next, job) {
			s, made = grown, next
		}
	}
	for i := range before {
		if j := &before[i]; j.WantsDevices > 0 && j.Planned != nil {
			j.explainSize(made)
		}
	}
	return made
}

// sized has each job whose size is chosen hold as many devices as it may keep, and pins it to that, or if it holds none to the least that it needs. resizable
// are the places of those that may have another number, in the order in which they are served.
func (s State) sized() (sized State, resizable []int) {
	chosen := func(j Job) bool { return j.WantsDevices > 0 && j.Request == nil && !j.CancelRequested }
	if !slices.ContainsFunc(s.Jobs, chosen) {
		return s, nil
	}
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		switch {
		case !chosen(*j):
			continue
		case j.Running != nil && !j.Running.Spoke && !j.Running.StopPending: // nobody can ask it to leave
			j.pin(j.Running.size())
			continue
		case j.Planned == nil:
			j.pin(j.least())
		default:
			j.keep(min(j.Planned.size(), j.WantsDevices))
		}
		resizable = append(resizable, i)
	}
	slices.SortFunc(resizable, func(i, k int) int { return inLine(&s.Jobs[i], &s.Jobs[k]) })
	return s, resizable
}

// reduced has jobs that cannot keep what they hold need their least: it is for that that they stand in line.
func (s State) reduced(made train.Plan, before []Job, resizable []int) (reduced State, found bool) {
	for _, i := range resizable {
		least := before[i].least()
		if _, served := made.Find(s.Jobs[i].ID); !served && s.Jobs[i].Spec.MinDevices > least {
			s, found = s.needing(i, least), true
		}
	}
	return s, found
}

// needing is the state with a job that needs so many devices.
func (s State) needing(i, devices int) State {
	s.Jobs = slices.Clone(s.Jobs)
	j := &s.Jobs[i]
	switch {
	case j.Planned != nil && j.Planned.size() >= devices:
		j.keep(devices)
		return s
	case j.Planned != nil && j.Planned.Memory > 0:
		j.Planned = nil // it lodges anew
	}
	j.pin(devices)
	return s
}

// least is with how many devices a job whose size is chosen begins where no more are free.
func (j *Job) least() int { return min(j.WantsDevices, max(j.Spec.MinDevices, 1)) }

// pin has a job need so many devices, no more and no less.
func (j *Job) pin(devices int) { j.Spec.MinDevices, j.Spec.MaxDevices = devices, devices }

// keep has a job hold no more than so many of its devices, and need as many.
func (j *Job) keep(devices int) {
	if j.Planned.size() > devices {
		j.Planned = j.Planned.lesser(devices, j.runsOn())
	}
	j.pin(devices)
}

// size is how many devices a holding has.
func (h Holding) size() int { return len(train.AllDevices(h.places())) }

func size(a train.Allocation) int { return HoldingOf(a).size() }

// lesser is so many devices of a holding, first those that the job runs on.
func (h Holding) lesser(devices int, runs *Holding) *Holding {
	running := func(on train.NodeID, d train.DeviceID) bool {
		return runs != nil && slices.ContainsFunc(runs.places(), func(p train.Part) bool { return p.Node == on && slices.Contains(p.Devices, d) })
	}
	kept := slices.Clone(h.places())
	for i := range kept {
		kept[i].Devices = nil
	}
	for _, first := range []bool{true, false} {
		for i, p := range h.places() {
			for _, d := range p.Devices {
				if devices > 0 && running(p.Node, d) == first {
					kept[i].Devices, devices = append(kept[i].Devices, d), devices-1
				}
			}
		}
	}
	kept = slices.DeleteFunc(kept, func(p train.Part) bool { return len(p.Devices) == 0 })
	if h.Parts = kept; len(kept) == 1 {
		h.Node, h.Devices, h.Memory, h.Parts = kept[0].Node, kept[0].Devices, kept[0].Memory, nil
	}
	return &h
}

// spare is how many devices nobody is given.
func (s State) spare(p train.Plan) int {
	type device struct {
		node train.NodeID
		id   train.DeviceID
	}
	free := map[device]bool{}
	for _, n := range s.Nodes {
		for _, d := range n.Devices {
			free[device{n.ID, d.ID}] = true
		}
	}
	for _, a := range p.Allocations {
		for _, part := range a.Places() {
			for _, d := range part.Devices {
				delete(free, device{part.Node, d})
			}
		}
	}
	return len(free)
}

// costs says whether by the second plan another job has less than by the first: devices, servers, a device for itself, or those that it holds.
func (s State) costs(first, second train.Plan, except train.JobID) bool {
	has := make(map[train.JobID]train.Allocation, len(second.Allocations))
	for _, a := range second.Allocations {
		has[a.Job] = a
	}
	held := make(map[train.JobID]*Holding, len(s.Jobs))
	for _, j := range s.Jobs {
		held[j.ID] = j.Planned
	}
	return slices.ContainsFunc(first.Allocations, func(a train.Allocation) bool {
		b, had := has[a.Job], held[a.Job]
		moved := had != nil && had.same(HoldingOf(a)) && !had.same(HoldingOf(b))
		switch {
		case a.Job == except || size(b) > size(a):
			return false
		case size(b) < size(a) || b.ServerCount() < a.ServerCount():
			return true
		}
		return moved || b.Memory > 0 && a.Memory == 0
	})
}

// explainSize says why a job goes on with another number of devices where its experiment chose that.
func (j *Job) explainSize(made train.Plan) {
	i := slices.IndexFunc(made.Allocations, func(a train.Allocation) bool { return a.Job == j.ID })
	if i < 0 {
		return
	}
	if had, has := j.Planned.size(), size(made.Allocations[i]); has == j.WantsDevices && has != had {
		made.Allocations[i].Reason = train.Reason{
			Code: ReasonSizeWanted, Message: fmt.Sprintf("goes on with %s instead of %d: its experiment wants to know how fast it is there", devices(has), had),
		}
	}
}
