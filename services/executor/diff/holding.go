package diff

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Slot is a device of one of several nodes.
type Slot struct {
	Node   train.NodeID
	Device train.DeviceID
}

// Slots are the devices of all places.
func Slots(places []train.Part) []Slot {
	var list []Slot
	for _, p := range places {
		for _, d := range p.Devices {
			list = append(list, Slot{p.Node, d})
		}
	}
	return list
}

// Held is what attempts hold of a device: Wholes counts those that have it for themselves, never more than one where all executors keep the rules; Parts is
// the memory of those that share it.
type Held struct {
	Wholes int
	Parts  unit.Bytes
}

// Holding is what is held of each device.
type Holding map[Slot]Held

// Take counts what an attempt has of the devices of all places as held once more.
func (h Holding) Take(places []train.Part) { h.count(places, 1) }

// Release undoes a Take.
func (h Holding) Release(places []train.Part) { h.count(places, -1) }

func (h Holding) count(places []train.Part, times int) {
	for _, p := range places {
		for _, d := range p.Devices {
			at := Slot{p.Node, d}
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

// free says whether all places can be taken beside what is held and taken, since a gang starts as a whole; a device that is listed twice cannot.
func (r Realm) free(places []train.Part, held, taken Holding) bool {
	asked := map[Slot]bool{}
	for _, p := range places {
		for _, d := range p.Devices {
			at := Slot{p.Node, d}
			wholes, parts := held[at].Wholes+taken[at].Wholes, held[at].Parts+taken[at].Parts
			if asked[at] || wholes > 0 || p.Memory == 0 && parts > 0 || p.Memory > 0 && p.Memory > r.memory(at)-parts {
				return false
			}
			asked[at] = true
		}
	}
	return true
}

// memory is that of a device; none where it is not described.
func (r Realm) memory(at Slot) unit.Bytes {
	for _, d := range r.Nodes[at.Node].Devices {
		if d.ID == at.Device {
			return d.Memory
		}
	}
	return 0
}
