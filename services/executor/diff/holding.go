package diff

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// NodeDevice is a device of a node.
type NodeDevice struct {
	Node   train.NodeID
	Device train.DeviceID
}

// NodeDevices returns the devices of all places.
func NodeDevices(places []train.Part) []NodeDevice {
	var list []NodeDevice
	for _, p := range places {
		for _, d := range p.Devices {
			list = append(list, NodeDevice{p.Node, d})
		}
	}
	return list
}

// Held counts what attempts hold of a device. Wholes counts those that have it for themselves; it is at most one if
// all executors keep the rules. Parts is the memory of those that share it.
type Held struct {
	Wholes int
	Parts  unit.Bytes
}

// Holding is what attempts hold of each device.
type Holding map[NodeDevice]Held

// Take adds what an attempt holds in all places.
func (h Holding) Take(places []train.Part) { h.count(places, 1) }

// Release undoes a Take.
func (h Holding) Release(places []train.Part) { h.count(places, -1) }

func (h Holding) count(places []train.Part, times int) {
	for _, p := range places {
		for _, d := range p.Devices {
			at := NodeDevice{p.Node, d}
			held := h[at]
			if p.Memory > 0 {
				held.Parts += p.Memory * unit.Bytes(times)
			} else {
				held.Wholes += times
			}
			if h[at] = held; held == (Held{}) {
				delete(h, at)
			}
		}
	}
}

// free reports whether all places can be taken beside what is held and taken; a gang starts as a whole. A place that
// lists a device twice is never free.
func (r Realm) free(places []train.Part, held, taken Holding) bool {
	asked := map[NodeDevice]bool{}
	for _, p := range places {
		for _, d := range p.Devices {
			at := NodeDevice{p.Node, d}
			wholes, parts := held[at].Wholes+taken[at].Wholes, held[at].Parts+taken[at].Parts
			if asked[at] || wholes > 0 || p.Memory == 0 && parts > 0 || p.Memory > 0 && p.Memory > r.memory(at)-parts {
				return false
			}
			asked[at] = true
		}
	}
	return true
}

// memory returns the memory of a device, 0 if the node does not describe it.
func (r Realm) memory(at NodeDevice) unit.Bytes {
	for _, d := range r.Nodes[at.Node].Devices {
		if d.ID == at.Device {
			return d.Memory
		}
	}
	return 0
}
