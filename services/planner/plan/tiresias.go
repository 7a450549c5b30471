package plan

import (
	"encoding/json"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Tiresias is least attained service in two queues (Gu et al., NSDI'19), in the form in which it was published as a baseline of Pollux (OSDI'21): each
// job gets the devices that its user asked for or nothing; one that has used up its quantum of device time goes to the second queue and never
// comes back. The queues are walked in the order in which jobs entered them; whoever fits runs, on its old devices where it can. It knows nothing of a
// job but the request.
type Tiresias struct{}

// tiresiasQuantum is the device time in the first queue, in device-seconds.
const tiresiasQuantum = 16 * 3600

// Name is tiresias.
func (Tiresias) Name() string { return "tiresias" }

func (p Tiresias) decide(s State) train.Plan { return allot(s, p) }

func (Tiresias) grant(f *fleet) {
	queues := recallQueues(f)
	f.runRequested(slices.Concat(queues[0], queues[1]))
}

// recallQueues restores the order in which jobs entered the queues from the last plan, and moves on who has used up the quantum.
func recallQueues(f *fleet) [2][]*gang {
	var remembered struct {
		Queues [2][]train.JobID `json:"queues"`
	}
	if f.state.Memory != "" && json.Unmarshal([]byte(f.state.Memory), &remembered) != nil {
		remembered.Queues = [2][]train.JobID{} // another policy's
	}
	alive := make(map[train.JobID]*gang, len(f.gangs))
	for _, g := range f.gangs {
		alive[g.ID] = g
	}
	var queues [2][]*gang
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
	for _, g := range f.gangs {
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
		f.memory = string(memory)
	}
	return queues
}
