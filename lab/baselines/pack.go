package baselines

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// group is the nodes over which one gang may be spread: those of one model of device on one island.
type group struct {
	model   string
	nodes   []int
	devices int
}

// groups are in the order of their first nodes.
func groups(r *policy.Round) []*group {
	byKind := map[[2]string]*group{}
	var all []*group
	for i := range r.Nodes {
		n := &r.Nodes[i]
		key := [2]string{n.Model, n.Island}
		if byKind[key] == nil {
			byKind[key] = &group{model: n.Model}
			all = append(all, byKind[key])
		}
		of := byKind[key]
		of.nodes, of.devices = append(of.nodes, i), of.devices+len(n.Devices)
	}
	return all
}

// free is the number of devices that nobody was given.
func (of *group) free(r *policy.Round) int {
	sum := 0
	for _, i := range of.nodes {
		sum += r.Ledger.Free(i)
	}
	return sum
}

// largestGroup is the most devices that one gang can ever have.
func largestGroup(r *policy.Round) int {
	most := 0
	for _, of := range groups(r) {
		most = max(most, of.devices)
	}
	return most
}

// pack gives a gang the given number of devices, or nothing, of the group that has the most free ones: the placer that
// the published simulators share.
func pack(r *policy.Round, g *cluster.Gang, devices int) bool {
	var best *group
	most := 0
	for _, of := range groups(r) {
		if free := of.free(r); free >= devices && free > most {
			best, most = of, free
		}
	}
	return best != nil && best.pack(r, g, devices)
}

// pack takes devices each time from the emptiest node, the first of equals.
func (of *group) pack(r *policy.Round, g *cluster.Gang, devices int) bool {
	if devices < 1 {
		return false
	}
	nodes := slices.Clone(of.nodes)
	slices.SortStableFunc(nodes, func(x, y int) int { return r.Ledger.UnclaimedByAll(y) - r.Ledger.UnclaimedByAll(x) })
	p := cluster.Placement{}
	for _, i := range nodes {
		if take := min(devices, r.Ledger.UnclaimedByAll(i)); take > 0 {
			p.Parts = append(p.Parts, cluster.Part{Node: i, Count: take})
			devices -= take
		}
	}
	return devices == 0 && r.Ledger.Take(g, p)
}

// bySubmission are the candidates in order of submission. Jobs that were submitted in one instant keep the order in
// which the state lists them, if that is in order at all.
func bySubmission(r *policy.Round) []*cluster.Gang {
	line := slices.Clone(r.Candidates)
	jobs := r.State.Jobs
	at := make(map[*state.Job]int, len(jobs))
	for i := range jobs {
		at[&jobs[i]] = i
	}
	listed := slices.SortedFunc(slices.Values(line), func(x, y *cluster.Gang) int { return at[x.Job] - at[y.Job] })
	submitted := func(x, y *cluster.Gang) int { return x.SubmittedAt.Compare(y.SubmittedAt) }
	if slices.IsSortedFunc(listed, submitted) {
		return listed
	}
	slices.SortFunc(line, cluster.InQueue)
	slices.SortStableFunc(line, submitted)
	return line
}
