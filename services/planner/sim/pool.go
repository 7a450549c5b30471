package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Pool is nodes of one kind.
type Pool struct {
	Nodes, Devices int
	// Model is the kind of device; the traces have step times by it.
	Model  string
	Memory unit.Bytes
}

// Nodes makes the nodes of all pools. A gang may be spread over them.
func Nodes(pools []Pool) []train.Node {
	var nodes []train.Node
	for _, p := range pools {
		for range p.Nodes {
			n := train.Node{ID: train.NodeID(fmt.Sprintf("n%05d", len(nodes))), Backend: train.BackendKubernetes}
			for d := range p.Devices {
				n.Devices = append(n.Devices, train.Device{
					ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU, Model: p.Model, Memory: p.Memory,
				})
			}
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// MostDevices bounds a simulated pool: more would not fit into the memory of many machines.
const MostDevices = 1_000_000

// ParsePool reads nodes=16,gpus=4,type=aws.
func ParsePool(text string) (Pool, error) {
	p := Pool{}
	wrong := fmt.Errorf("%q: want nodes=N,gpus=M[,type=T], N and M at least 1", text)
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		number, err := strconv.Atoi(value)
		whole := err == nil && number >= 1 && number <= math.MaxInt32
		switch {
		case key == "nodes" && whole:
			p.Nodes = number
		case key == "gpus" && whole:
			p.Devices = number
		case key == "type" && value != "":
			p.Model = value
		default:
			return p, wrong
		}
	}
	if p.Nodes == 0 || p.Devices == 0 {
		return p, wrong
	}
	if p.Nodes > MostDevices || p.Devices > MostDevices || p.Nodes*p.Devices > MostDevices {
		return p, fmt.Errorf("%q: want at most %d GPUs", text, MostDevices)
	}
	return p, nil
}
