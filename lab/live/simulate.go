package live

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Terms are the settings of the planner that are times or counts in a time, at the speed of the run: both the services
// and the simulator get them.
type Terms struct {
	RestartSeconds, MinRescaleSeconds, StarvationSeconds float64
	MaxRestartsPerHour                                   int
}

// Terms are those that an operator would choose for the measured cluster, divided by the factor: the published price of
// a restart, and the defaults.
func (p Plan) Terms() Terms {
	const rescaleSeconds, starvationSeconds, restartsPerHour = 10, 4 * 3600, 6
	return Terms{
		RestartSeconds: PublishedStartSeconds / p.Factor, MinRescaleSeconds: rescaleSeconds / p.Factor,
		StarvationSeconds: starvationSeconds / p.Factor, MaxRestartsPerHour: int(restartsPerHour * p.Factor),
	}
}

// tickSeconds is the time between two decisions of the simulator: the services decide at once, so it is short.
const tickSeconds = 0.1

// Simulation is the run of a policy in virtual time, on the nodes that the agents announced; a start costs what it cost
// there.
func (p Plan) Simulation(policy string, nodes []train.Node, startSeconds float64) (sim.Config, error) {
	decides, err := plan.Find(policy)
	if err != nil {
		return sim.Config{}, err
	}
	jobs, err := p.Jobs(policy)
	if err != nil {
		return sim.Config{}, err
	}
	terms := p.Terms()
	c := sim.Config{
		Workload: sim.Workload{Name: policy}, Nodes: nodes, Policy: decides, IntervalSeconds: tickSeconds,
		State: plan.State{Tuning: plan.Tuning{
			RestartSeconds: terms.RestartSeconds, MinRescaleSeconds: terms.MinRescaleSeconds, StarvationSeconds: terms.StarvationSeconds,
			MaxRestartsPerHour: terms.MaxRestartsPerHour, AtEpochs: true,
		}},
	}
	for _, j := range jobs {
		c.Workload.Jobs = append(c.Workload.Jobs, sim.Arrival{
			Name: j.ID, Seconds: j.Seconds, Source: &replayed{j, p.Factor, startSeconds}, Kind: fmt.Sprintf("%s/%d", j.Application.Name, j.Spec.BaseBatch()),
		})
	}
	return c, nil
}

// AssumedNodes are like those that the agents of a run announce, for simulations without one.
func (p Plan) AssumedNodes() []train.Node {
	const gib = 16
	var nodes []train.Node
	for i := range p.Nodes {
		n := train.Node{ID: NodeID(i), Machine: NodeID(0)}
		for d := range DevicesPerNode {
			n.Devices = append(n.Devices, train.Device{
				ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU, Model: "simulated", Memory: gib * unit.GiB, Simulated: true,
			})
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// NodeID is the id of the node of an index.
func NodeID(i int) train.NodeID { return train.NodeID(fmt.Sprintf("n%02d", i+1)) }
