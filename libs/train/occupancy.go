package train

import "github.com/switchyard-dl/switchyard/libs/unit"

// NodeDevice is a device of a node.
type NodeDevice struct {
	Node   NodeID
	Device DeviceID
}

// NodeDevices returns the devices of all places.
func NodeDevices(places []Part) []NodeDevice {
	var list []NodeDevice
	for _, p := range places {
		for _, d := range p.Devices {
			list = append(list, NodeDevice{p.Node, d})
		}
	}
	return list
}

// Occupied counts who is on a device. Wholes counts those that have it for themselves, Sharers those that have parts of
// its memory, and Parts is that memory.
type Occupied struct {
	Wholes, Sharers int
	Parts           unit.Bytes
}

// Occupancy is what attempts, and pods of no job, hold of each device. A plan says who is to have a device; this says
// who has it now.
type Occupancy map[NodeDevice]Occupied

// Take adds what an attempt holds in all places.
func (o Occupancy) Take(places []Part) { o.count(places, 1) }

// Release undoes a Take.
func (o Occupancy) Release(places []Part) { o.count(places, -1) }

func (o Occupancy) count(places []Part, times int) {
	for _, p := range places {
		for _, d := range p.Devices {
			at := NodeDevice{p.Node, d}
			of := o[at]
			if p.Memory > 0 {
				of.Sharers, of.Parts = of.Sharers+times, of.Parts+p.Memory*unit.Bytes(times)
			} else {
				of.Wholes += times
			}
			if o[at] = of; of == (Occupied{}) {
				delete(o, at)
			}
		}
	}
}

// Leaves says whether a device with the given memory has room for a part of it. A part of 0 is the whole device.
func (o Occupied) Leaves(part, memory unit.Bytes) bool {
	if part == 0 {
		return o == Occupied{}
	}
	return o.Wholes == 0 && part <= memory-o.Parts
}

// Plus adds up what two occupancies say of a device.
func (o Occupied) Plus(other Occupied) Occupied {
	return Occupied{o.Wholes + other.Wholes, o.Sharers + other.Sharers, o.Parts + other.Parts}
}
