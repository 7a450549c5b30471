package diff

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// free reports whether all places can be taken beside what is held and taken; a gang starts as a whole. A place that
// lists a device twice is never free.
func (r Realm) free(places []train.Part, held, taken train.Occupancy) bool {
	asked := map[train.NodeDevice]bool{}
	for _, p := range places {
		for _, d := range p.Devices {
			at := train.NodeDevice{Node: p.Node, Device: d}
			if asked[at] || !held[at].Plus(taken[at]).Leaves(p.Memory, r.memory(at)) {
				return false
			}
			asked[at] = true
		}
	}
	return true
}

// memory returns the memory of a device, 0 if the node does not describe it.
func (r Realm) memory(at train.NodeDevice) unit.Bytes {
	for _, d := range r.Nodes[at.Node].Devices {
		if d.ID == at.Device {
			return d.Memory
		}
	}
	return 0
}
