package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// starving are the jobs that have waited longer than may be and get no device by a policy's answer either, in the order in which they are served. One that the
// policy could never give what it needs is not among them. Where the size is the user's own request, the policy knows best.
func starving(s State, answer train.Plan) []*Job {
	bound := s.Tuning.withDefaults().StarvationSeconds
	var line []*Job
	for i := range s.Jobs {
		j := &s.Jobs[i]
		silent := j.Running != nil && !j.Running.Spoke && !j.Running.StopPending // else it waits already while its attempt leaves
		waits := !j.CancelRequested && !j.Rides && j.Request == nil && j.Planned == nil && !silent
		if waits && s.Now.Sub(j.SubmittedAt).Seconds()-j.RunSeconds > bound {
			line = append(line, j)
		}
	}
	if len(line) == 0 {
		return nil
	}
	out := map[train.JobID]bool{}
	for _, a := range answer.Allocations {
		out[a.Job] = true
	}
	for _, w := range answer.Waiting {
		if len(w.Blockers) > 0 && slices.Contains([]string{ReasonNoNode, ReasonDevicesTooFew, ReasonLinkDegraded}, w.Blockers[0].Code) {
			out[w.Job] = true
		}
	}
	line = slices.DeleteFunc(line, func(j *Job) bool { return out[j.ID] })
	slices.SortFunc(line, inLine)
	return line
}

func inLine(x, y *Job) int {
	return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.SubmittedAt.Compare(y.SubmittedAt), cmp.Compare(x.ID, y.ID))
}

// decideKeeping asks a policy, and again where it hands to others what is kept for jobs that starve: these then hold that, like any job that was given devices
// and has not begun. One that holds less than it needs goes on waiting.
func decideKeeping(s State, p Policy) train.Plan {
	made := p.decide(s)
	line := starving(s, made)
	if len(line) == 0 {
		return made
	}
	k, robbed := newKeeper(s), map[*Job]bool{}
	if !k.handsOut(made) {
		return made
	}
	for range maxRounds {
		k.setAsideAll(line)
		if !k.seeRobbed(robbed, line, made) {
			break
		}
		if len(robbed) == 0 { // the devices went to those who are served before: for them the policy need not be asked again
			continue
		}
		k.setAsideAll(line)
		holders := k.holders(line, robbed)
		made = p.decide(s.withJobs(holders))
		for _, j := range slices.Backward(line) {
			if held := holders[j.ID]; held != nil {
				k.handBack(&made, j, held)
			}
		}
		for _, j := range starving(s, made) {
			if at, found := slices.BinarySearchFunc(line, j, inLine); !found {
				line = slices.Insert(line, at, j)
			}
		}
	}
	return made
}

// seeRobbed adds those of a line to the robbed of whose devices a plan hands some to others that are served later; where a quota or the power budget may be what
// they wait for, any devices. What it hands to those that are served before counts as held. It says whether there is anything new.
func (k *keeper) seeRobbed(robbed map[*Job]bool, line []*Job, made train.Plan) bool {
	before, news := len(robbed), false
	see := func(j, taker *Job) {
		if inLine(j, taker) < 0 && j.Spec.Strategy != train.StrategyParameterServer { // servers have no devices to be kept
			robbed[j] = true
		}
	}
	for _, a := range made.Allocations {
		taker, taken := k.jobs[a.Job], k.idle(k.find(a.Places()))
		ahead := false
		for _, d := range taken {
			if j := k.kept[d]; j != nil && j != taker {
				see(j, taker)
				ahead = ahead || inLine(taker, j) < 0
			}
		}
		if ahead {
			for _, d := range taken { // all, else what it needs would be kept for those behind
				k.hold(taker, d)
			}
			news = true
		}
		for _, j := range line {
			if len(taken) > 0 && k.left.rival(j.Spec.Tenant, taker.Spec.Tenant) {
				see(j, taker)
			}
		}
	}
	return news || len(robbed) > before
}

// holders are the robbed as jobs that hold what is idle of that which is kept for them.
func (k *keeper) holders(line []*Job, robbed map[*Job]bool) map[train.JobID]*Job {
	holders := map[train.JobID]*Job{}
	for _, j := range line {
		if !robbed[j] {
			continue
		}
		var parts []train.Part
		devices := 0
		for at := range k.board.nodes {
			n := &k.board.nodes[at]
			part := train.Part{Node: n.id}
			for d := range n.devices {
				if here := (spot{at, d}); k.kept[here] == j && k.load[here] == 0 {
					part.Devices = append(part.Devices, n.devices[d].ID)
				}
			}
			if len(part.Devices) > 0 {
				parts, devices = append(parts, part), devices+len(part.Devices)
			}
		}
		if devices == 0 {
			continue
		}
		holder := *j
		if holder.Planned = &(Holding{Node: parts[0].Node, Devices: parts[0].Devices}); len(parts) > 1 {
			holder.Planned = &Holding{Parts: parts}
		}
		if devices < j.Spec.MinDevices {
			holder.Spec.MinDevices, holder.Spec.MaxDevices = devices, devices
		}
		holders[j.ID] = &holder
	}
	return holders
}

// withJobs is the state with some jobs as others would have them.
func (s State) withJobs(others map[train.JobID]*Job) State {
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		if other := others[s.Jobs[i].ID]; other != nil {
			s.Jobs[i] = *other
		}
	}
	return s
}

// handBack settles what a plan says of a job that held what was kept for it: where that is all that it needs it is placed, else it goes on waiting.
func (k *keeper) handBack(made *train.Plan, j, held *Job) {
	at := slices.IndexFunc(made.Allocations, func(a train.Allocation) bool { return a.Job == j.ID })
	if held.Spec.MinDevices == j.Spec.MinDevices {
		if at >= 0 {
			a := &made.Allocations[at]
			a.Reason = train.Reason{Code: ReasonPlaced, Message: fmt.Sprintf("gets %s, kept for it since it has waited for too long", devices(len(k.find(a.Places()))))}
		}
		return
	}
	waits := train.Waiting{Job: j.ID, Blockers: []train.Reason{{Code: ReasonWaitingForDevices, Message: "needs " + devices(j.Spec.MinDevices)}}}
	if at >= 0 {
		made.Allocations = slices.Delete(made.Allocations, at, at+1)
		waits.Blockers[0] = train.Reason{
			Code: ReasonDevicesKept, Message: fmt.Sprintf("needs %s; %s kept for it since it has waited for too long", devices(j.Spec.MinDevices), devices(held.Spec.MinDevices)),
		}
	}
	made.Waiting = slices.DeleteFunc(made.Waiting, func(w train.Waiting) bool { return w.Job == j.ID })
	behind := slices.IndexFunc(made.Waiting, func(w train.Waiting) bool { return k.jobs[w.Job].Priority <= j.Priority })
	if behind < 0 {
		behind = len(made.Waiting)
	}
	made.Waiting = slices.Insert(made.Waiting, behind, waits)
}
