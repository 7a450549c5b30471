// Package eligible keeps the record of what keeps jobs off a node: the orders of operators. It is a pure fold; the
// planner reads and writes the record.
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
		devices, e.Orders = []train.DeviceID{train.WholeNode}, nil
	}
	for _, d := range devices {
		if r.Fact == event.FactResumeRequested {
			delete(e.Orders, d)
			continue
		}
		if e.Orders == nil {
			e.Orders = map[train.DeviceID]train.NodeOrder{}
		}
		e.Orders[d] = train.NodeOrder{Drain: r.Fact == event.FactDrainRequested, Now: r.Now, By: clip(r.By), Why: clip(r.Reason), At: r.At}
	}
	return true
}

// clip bounds what a stranger writes into a record that every plan repeats.
func clip(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + ".."
	}
	return s
}
