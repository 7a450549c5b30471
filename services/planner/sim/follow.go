package sim

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// live says whether the cluster is one of recorded jobs.
func (w *world) live() bool { return len(w.Nodes) > 0 }

// heldDevice is a device that a job may hold.
type heldDevice struct {
	node   train.NodeID
	device train.DeviceID
}

// follow carries out a plan as executors do: a job leaves what it does not keep at its epoch's end, and one starts when all that it was given is free.
func (w *world) follow(p train.Plan) {
	held := map[heldDevice]bool{}
	for _, j := range w.jobs {
		j.planned = nil
		for _, part := range j.parts {
			for _, d := range part.Devices {
				held[heldDevice{part.Node, d}] = true
			}
		}
	}
	for _, a := range p.Allocations {
		j := w.byID[a.Job]
		if j == nil || j.done {
			continue
		}
		places := a.Places()
		h := holding(places)
		j.planned = &h
		switch {
		case len(j.parts) > 0:
			j.leaving = j.leaving || !sameParts(j.parts, places)
		case w.take(held, places):
			j.place(a, w.models[places[0].Node], true, w.tune)
		}
	}
	for _, j := range w.jobs {
		if j.planned == nil && len(j.parts) > 0 {
			j.leaving = true
		}
	}
}

// take marks devices as held if all of them are free.
func (w *world) take(held map[heldDevice]bool, places []train.Part) bool {
	for _, part := range places {
		for _, d := range part.Devices {
			if held[heldDevice{part.Node, d}] {
				return false
			}
		}
	}
	for _, part := range places {
		for _, d := range part.Devices {
			held[heldDevice{part.Node, d}] = true
		}
	}
	return true
}

func sameParts(x, y []train.Part) bool {
	return slices.EqualFunc(x, y, func(a, b train.Part) bool { return a.Node == b.Node && train.SameDevices(a.Devices, b.Devices) })
}
