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
func (r Records) addPods(s *state.State, planned map[train.JobID]*train.Allocation) {
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
		j.Planned = holding(planned[j.ID])
		j.OnlyNodes = asked.Nodes
		s.Jobs = append(s.Jobs, j)
	}
}

func podJob(p *train.PlainPod) state.Job {
	return state.Job{ID: p.Job(), Spec: p.Spec(), Priority: train.DefaultPriority, SubmittedAt: p.CreatedAt}
}

// booked are the pods for which memory is booked on a node.
func (r Records) booked() map[podOn]bool {
	booked := make(map[podOn]bool, len(r.Placed))
	for _, p := range r.Placed {
		booked[podOn{p.Node, p.Pod.FullName()}] = true
	}
	return booked
}

// podOn is a pod of a node, by its name in the cluster.
type podOn struct {
	node train.NodeID
	name string
}

// unplaced returns exclusions for the devices of which pods have memory that the planner has not booked.
func unplaced(n *train.Node, booked map[podOn]bool) (all []train.Exclusion) {
	placed := func(name string) bool { return booked[podOn{n.ID, name}] }
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
