package diff

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// holding is what is taken of devices.
type holding struct {
	nodes map[train.NodeID]train.Node
	// whole are the devices that one attempt has for itself, parts what attempts that share one have of its memory.
	whole map[slot]bool
	parts map[slot]unit.Bytes
}

// slot is a device of one of several nodes.
type slot struct {
	node   train.NodeID
	device train.DeviceID
}

func newHolding(nodes map[train.NodeID]train.Node) holding {
	return holding{nodes: nodes, whole: map[slot]bool{}, parts: map[slot]unit.Bytes{}}
}

func (h holding) take(places []train.Part) {
	for _, p := range places {
		for _, d := range p.Devices {
			at := slot{p.Node, d}
			if p.Memory > 0 {
				h.parts[at] += p.Memory
			} else {
				h.whole[at] = true
			}
		}
	}
}

// free says whether every device of all places can be taken, since a gang starts as a whole; a device that is listed twice cannot.
func (h holding) free(places []train.Part) bool {
	asked := map[slot]bool{}
	for _, p := range places {
		for _, d := range p.Devices {
			at := slot{p.Node, d}
			if asked[at] || h.whole[at] || p.Memory == 0 && h.parts[at] > 0 || p.Memory > 0 && p.Memory > h.left(at) {
				return false
			}
			asked[at] = true
		}
	}
	return true
}

// left is the memory of a device that nobody has; none where the device is not described.
func (h holding) left(at slot) unit.Bytes {
	for _, d := range h.nodes[at.node].Devices {
		if d.ID == at.device {
			return d.Memory - h.parts[at]
		}
	}
	return 0
}
