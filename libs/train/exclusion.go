package train

import (
	"slices"
	"time"
)

// Exclusion keeps jobs off a node, or off some of its devices, until it ends.
type Exclusion struct {
	Node NodeID `json:"node"`
	// Devices are the devices that it is about; empty for the whole node.
	Devices []DeviceID `json:"devices,omitempty"`
	// Job is set if it keeps only this job off; it is about the whole node then.
	Job JobID `json:"job,omitempty"`
	// Reason says why, as a sentence, with what ends it as the hint.
	Reason Reason `json:"reason"`
	// Leave is set if jobs that run there leave at their next save; otherwise they stay as they are.
	Leave bool `json:"leave,omitempty"`
	// Now is set if those leave, too, that would lose all their work.
	Now bool `json:"now,omitempty"`
	// Until is when time ends it; zero if only an event does.
	Until time.Time `json:"until,omitzero"`
}

// Covers reports whether the exclusion is about a device of its node.
func (e *Exclusion) Covers(d DeviceID) bool {
	return len(e.Devices) == 0 || slices.Contains(e.Devices, d)
}

// Concerns reports whether the exclusion keeps a job off.
func (e *Exclusion) Concerns(job JobID) bool { return e.Job == "" || e.Job == job }

// The codes of the reasons of exclusions.
const (
	NodeSilent   = "NodeSilent"
	NodeCordoned = "NodeCordoned"
	NodeDraining = "NodeDraining"
	NodeTainted  = "NodeTainted"
	NodeNotReady = "NodeNotReady"
	NodeSetAside = "NodeSetAside"
	DeviceHeld   = "DeviceHeld"
	StartFailed  = "StartFailed"
	// NodeNotOffered: the scheduler of the cluster would not start the pod there.
	NodeNotOffered = "NodeNotOffered"
)
