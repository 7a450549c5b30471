// Package eligible keeps the record of what keeps jobs off a node: the orders of operators, and what is set aside since
// different jobs were lost there again and again. It is a pure fold; the planner reads and writes the record.
package eligible

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Request is a fact about a node with its place in the stream.
type Request struct {
	event.NodeRequest
	Fact     string
	At       time.Time
	Sequence uint64
	// Now is that of a request to drain.
	Now bool
	// Until and Why belong to what the planner sets aside.
	Until time.Time
	Why   string
}

// Follow enters a request. It returns false, and changes nothing, if the record follows it already. The newest request
// about a device wins, and one about the whole node replaces all earlier orders.
func Follow(e *train.Eligibility, r Request) bool {
	if r.Sequence <= e.Sequence {
		return false
	}
	e.Sequence = r.Sequence
	devices := r.Devices
	if len(devices) == 0 || slices.Contains(devices, train.WholeNode) {
		devices = []train.DeviceID{train.WholeNode}
	}
	switch r.Fact {
	case event.FactRemoveRequested: // refused: the record of a node that is removed goes, too
	case event.FactSetAside:
		setAside(e, devices, r)
	case event.FactResumeRequested:
		forget(e.Orders, devices)
		forget(e.Aside, devices)
		e.Losses, e.Resumed = nil, r.At
	default:
		order(e, devices, r)
	}
	return true
}

// forget drops what is recorded of devices; of the whole node it is all.
func forget[V any](m map[train.DeviceID]V, devices []train.DeviceID) {
	if slices.Contains(devices, train.WholeNode) {
		clear(m)
	}
	for _, d := range devices {
		delete(m, d)
	}
}

func order(e *train.Eligibility, devices []train.DeviceID, r Request) {
	if devices[0] == train.WholeNode || e.Orders == nil {
		e.Orders = map[train.DeviceID]train.NodeOrder{}
	}
	for _, d := range devices {
		e.Orders[d] = train.NodeOrder{Drain: r.Fact == event.FactDrainRequested, Now: r.Now, By: clip(r.By), Why: clip(r.Reason), At: r.At}
	}
}

func setAside(e *train.Eligibility, devices []train.DeviceID, r Request) {
	if devices[0] == train.WholeNode || e.Aside == nil {
		e.Aside = map[train.DeviceID]train.Aside{}
	}
	for _, d := range devices {
		e.Aside[d] = train.Aside{Since: r.At, Until: r.Until, Why: clip(r.Why)}
	}
}

// clip bounds what a stranger writes into a record that every plan repeats.
func clip(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + ".."
	}
	return s
}
