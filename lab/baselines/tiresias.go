package baselines

import (
	"encoding/json"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
)

// Tiresias is least attained service in two queues (Gu et al., NSDI'19), in the form in which it was published as a
// baseline of Pollux (OSDI'21). Each job gets the devices that its user asked for or nothing. A job that has used up
// its quantum of device time goes to the second queue and never comes back. The queues are walked in the order in
// which jobs entered them; every job that fits runs, on its old devices if it can. It knows nothing of a job but the
// request.
type Tiresias struct{ requested }

// tiresiasQuantum is the device time in the first queue, in device-seconds.
const tiresiasQuantum = 16 * 3600

// Name is tiresias.
func (Tiresias) Name() string { return "tiresias" }

// Decide walks the queues.
func (Tiresias) Decide(r *policy.Round) {
	queues := recallQueues(r)
	runRequested(r, slices.Concat(queues[0], queues[1]))
}

// recallQueues restores the order in which jobs entered the queues from the last plan, and moves on the jobs that
// have used up the quantum.
func recallQueues(r *policy.Round) [2][]*cluster.Gang {
	var remembered struct {
		Queues [2][]train.JobID `json:"queues"`
	}
	if r.Memory != "" && json.Unmarshal([]byte(r.Memory), &remembered) != nil {
		remembered.Queues = [2][]train.JobID{} // another policy's
	}
	line := bySubmission(r)
	alive := make(map[train.JobID]*cluster.Gang, len(line))
	for _, g := range line {
		alive[g.ID] = g
	}
	var queues [2][]*cluster.Gang
	take := func(queue int, id train.JobID) {
		if g, ok := alive[id]; ok {
			queues[queue] = append(queues[queue], g)
			delete(alive, id)
		}
	}
	for _, id := range remembered.Queues[1] {
		take(1, id)
	}
	for _, id := range remembered.Queues[0] {
		take(0, id)
	}
	for _, g := range line {
		take(0, g.ID)
	}
	first := queues[0][:0:0]
	for _, g := range queues[0] {
		if g.DeviceSeconds >= tiresiasQuantum {
			queues[1] = append(queues[1], g)
		} else {
			first = append(first, g)
		}
	}
	queues[0] = first
	for i, q := range queues {
		remembered.Queues[i] = remembered.Queues[i][:0:0]
		for _, g := range q {
			remembered.Queues[i] = append(remembered.Queues[i], g.ID)
		}
	}
	if memory, err := json.Marshal(remembered); err == nil {
		r.Memory = string(memory)
	}
	return queues
}
