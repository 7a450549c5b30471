package cluster

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Part is what a gang has of one node: a number of devices, by place once they are named, and parameter servers.
type Part struct {
	Node, Count int
	Devices     []int
	Servers     int
}

// Placement is where a gang is, in the order of its ranks. Memory is its part of each device in bytes; 0 is the whole
// device.
type Placement struct {
	Parts  []Part
	Memory unit.Bytes
}

// Spot is one device.
type Spot struct{ Node, Device int }

// CompareSpots orders devices by node, then by place.
func CompareSpots(x, y Spot) int {
	return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Device, y.Device))
}

// On returns a placement on some devices, as much of each.
func On(at []Spot, part unit.Bytes) Placement {
	p := Placement{Memory: part}
	for _, d := range at {
		last := len(p.Parts) - 1
		if last < 0 || p.Parts[last].Node != d.Node {
			p.Parts = append(p.Parts, Part{Node: d.Node})
			last++
		}
		p.Parts[last].Devices, p.Parts[last].Count = append(p.Parts[last].Devices, d.Device), p.Parts[last].Count+1
	}
	return p
}

// Empty says whether there is nothing in it.
func (p Placement) Empty() bool { return len(p.Parts) == 0 }

// Size is the number of devices.
func (p Placement) Size() int {
	n := 0
	for i := range p.Parts {
		n += p.Parts[i].Count
	}
	return n
}

// Servers is the number of parameter servers.
func (p Placement) Servers() int {
	n := 0
	for i := range p.Parts {
		n += p.Parts[i].Servers
	}
	return n
}

// CountOn is the number of devices on a node.
func (p Placement) CountOn(node int) int {
	n := 0
	for i := range p.Parts {
		if p.Parts[i].Node == node {
			n += p.Parts[i].Count
		}
	}
	return n
}

// DevicesOn are the named devices on a node.
func (p Placement) DevicesOn(node int) []int {
	for i := range p.Parts {
		if p.Parts[i].Node == node {
			return p.Parts[i].Devices
		}
	}
	return nil
}

// On says whether any of it is on a node.
func (p Placement) On(node int) bool {
	return slices.ContainsFunc(p.Parts, func(part Part) bool { return part.Node == node })
}

// Spots are the named devices.
func (p Placement) Spots() []Spot {
	var all []Spot
	for i := range p.Parts {
		for _, d := range p.Parts[i].Devices {
			all = append(all, Spot{p.Parts[i].Node, d})
		}
	}
	return all
}

// SameShape says whether two placements have as much of the same nodes, in the same order.
func (p Placement) SameShape(q Placement) bool {
	return slices.EqualFunc(p.Parts, q.Parts, func(x, y Part) bool { return x.Node == y.Node && x.Count == y.Count && x.Servers == y.Servers })
}

// SameDevices says whether two named placements are the same devices.
func (p Placement) SameDevices(q Placement) bool {
	return slices.EqualFunc(p.Parts, q.Parts, func(x, y Part) bool { return x.Node == y.Node && slices.Equal(x.Devices, y.Devices) })
}

// Lesser is a part of a placement: its first workers, and the given number of servers beside them.
func (p Placement) Lesser(workers, servers int) Placement {
	less := Placement{Memory: p.Memory}
	servers = min(servers, p.Servers())
	for _, part := range p.Parts {
		if part.Count = min(part.Count, workers); part.Count == 0 {
			break
		}
		if part.Devices != nil {
			part.Devices = part.Devices[:min(len(part.Devices), part.Count)]
		}
		part.Servers = min(part.Servers, servers)
		workers, servers = workers-part.Count, servers-part.Servers
		less.Parts = append(less.Parts, part)
	}
	if servers > 0 && len(less.Parts) > 0 { // those of nodes that it leaves
		less.Parts[0].Servers += servers
	}
	return less
}

// Copy copies a placement, so that its devices can be named again.
func (p Placement) Copy() Placement {
	p.Parts = slices.Clone(p.Parts)
	for i := range p.Parts {
		p.Parts[i].Devices = slices.Clone(p.Parts[i].Devices)
	}
	return p
}

// Within says whether all of some devices are among others.
func Within(some, others []Spot) bool {
	return !slices.ContainsFunc(some, func(d Spot) bool { return !slices.Contains(others, d) })
}

// Meet says whether any of some devices is among others.
func Meet(some, others []Spot) bool {
	return slices.ContainsFunc(some, func(d Spot) bool { return slices.Contains(others, d) })
}
