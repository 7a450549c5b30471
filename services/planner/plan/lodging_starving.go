package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// starving are the jobs that have waited longer than may be and get no device by the policy's answer either, in the order in which they are served.
func (b *board) starving(s State, answer train.Plan) []*Job {
	served := map[train.JobID]bool{}
	for _, a := range answer.Allocations {
		served[a.Job] = true
	}
	var all []*Job
	for i := range s.Jobs {
		j := &s.Jobs[i]
		waited := s.Now.Sub(j.SubmittedAt).Seconds() - j.RunSeconds
		if !j.CancelRequested && !served[j.ID] && j.Planned == nil && j.Running == nil && waited > b.tuning.StarvationSeconds {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, inLine)
	return all
}

func inLine(x, y *Job) int {
	return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.SubmittedAt.Compare(y.SubmittedAt), cmp.Compare(x.ID, y.ID))
}

// keep sets devices aside for jobs that starve and find no place beside others, so that those whom they wait for are not followed by others for ever. It
// takes the devices with the fewest jobs, all of one node.
func (l *lodgings) keep() {
	finds := map[likeness]bool{}
	for _, j := range l.starving {
		if len(l.kept) == len(l.shared) {
			return
		}
		if one := l.byID[j.ID]; one != nil {
			alike := l.likeness(one)
			if _, asked := finds[alike]; !asked {
				finds[alike] = l.choose(one) != nil
			}
			if one.at.somewhere() || finds[alike] {
				continue
			}
		}
		free := slices.DeleteFunc(slices.Clone(l.shared), func(here *lodging) bool { return l.kept[here.spot] != nil || !l.couldHave(j, here) })
		slices.SortStableFunc(free, func(x, y *lodging) int { return cmp.Compare(len(x.jobs), len(y.jobs)) })
		need := j.Spec.MinDevices
		for _, here := range free {
			if here.node == free[0].node && (here == free[0] || need > 0) {
				l.kept[here.spot] = j
				need--
			}
		}
	}
}

// couldHave says whether a device would do for a job that wants it for itself.
func (l *lodgings) couldHave(j *Job, here *lodging) bool {
	id := l.board.nodes[here.node].id
	at := slices.IndexFunc(l.state.Nodes, func(n train.Node) bool { return n.ID == id })
	return l.devicesFor(j, &l.state.Nodes[at]) >= max(j.Spec.MinDevices, 1)
}

// possible says whether there is a place for a job at all, were nobody else there.
func (l *lodgings) possible(j *Job) bool {
	devices := 0
	for i := range l.state.Nodes {
		if l.state.Tuning.OneNode {
			devices = 0
		}
		devices += l.devicesFor(j, &l.state.Nodes[i])
		if devices >= max(j.Spec.MinDevices, 1) {
			return true
		}
	}
	return false
}

// devicesFor is how many devices of a node would do for a job and may be its tenant's.
func (l *lodgings) devicesFor(j *Job, n *train.Node) int {
	at, found := l.board.findNode(n.ID)
	if !found || !n.Has(j.Spec.NodeLabels) || int64(j.Spec.EstimatedMemory()) > cmp.Or(l.board.nodes[at].memory, math.MaxInt64) {
		return 0
	}
	devices := len(l.board.nodes[at].devices)
	if quota, bounded := l.state.Quotas[j.Spec.Tenant]; bounded {
		devices = min(devices, quota)
	}
	return devices
}

// reserved says whether any of some devices is set aside for a job that is served before this one.
func (l *lodgings) reserved(one *lodger, at spots) bool {
	return slices.ContainsFunc(at, func(d spot) bool {
		j := l.kept[d]
		return j != nil && !one.held.has(d) && inLine(j, &one.Job) < 0
	})
}
