package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// addPods adds the pods that belong to no job to a state. A decision treats each as a job that shares one GPU and
// cannot be asked to leave.
func (r Records) addPods(s *state.State, last train.Plan) {
	for _, uid := range slices.Sorted(maps.Keys(r.Placed)) {
		p := r.Placed[uid]
		at := state.Holding{Node: p.Node, Devices: []train.DeviceID{p.Device}, Memory: p.Memory}
		j := podJob(&p.Pod)
		j.Planned, j.Running = &at, &state.Running{Holding: at, Seconds: max(s.Now.Sub(p.PlacedAt).Seconds(), 0)}
		s.Jobs = append(s.Jobs, j)
	}
	for _, uid := range slices.Sorted(maps.Keys(r.Asking)) {
		asked := r.Asking[uid]
		j := podJob(&asked.Pod)
		if a, planned := last.Find(j.ID); planned {
			at := state.HoldingOf(a)
			j.Planned = &at
		}
		s.Jobs = append(s.Jobs, j)
		for i := range s.Nodes {
			if n := &s.Nodes[i]; !slices.Contains(asked.Nodes, n.ID) {
				s.Exclusions = append(s.Exclusions, train.Exclusion{Node: n.ID, Job: j.ID, Reason: train.Reason{
					Code: train.NodeNotOffered, Message: fmt.Sprintf("the scheduler of the cluster would not start the pod on node %s", n.ID),
				}})
			}
		}
	}
}

func podJob(p *train.PlainPod) state.Job {
	return state.Job{ID: p.Job(), Spec: p.Spec(), Priority: train.DefaultPriority, SubmittedAt: p.CreatedAt}
}

// unplaced returns exclusions for the devices of which pods have memory that the planner has not booked.
func (r Records) unplaced(n *train.Node) (all []train.Exclusion) {
	placed := func(name string) bool {
		for _, p := range r.Placed {
			if p.Node == n.ID && p.Pod.FullName() == name {
				return true
			}
		}
		return false
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		if others := slices.DeleteFunc(slices.Clone(d.Pods), placed); len(others) > 0 {
			all = append(all, train.Exclusion{Node: n.ID, Devices: []train.DeviceID{d.ID}, Reason: train.Reason{
				Code: train.DeviceHeld, Message: fmt.Sprintf("%s of node %s is held by pod %s, for which no memory is booked", d.ID, n.ID, strings.Join(others, ", ")),
				Hint: "it comes free when that ends",
			}})
		}
	}
	return all
}
