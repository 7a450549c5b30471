package event

import (
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// NodeRequest is what an operator asks for a node.
type NodeRequest struct {
	// Devices are the devices that it is about; empty for the whole node.
	Devices []train.DeviceID `json:"devices,omitempty"`
	By      string           `json:"by,omitempty"`
	Reason  string           `json:"reason,omitempty"`
}

// CordonRequested asks to give no more jobs to a node. Those that run there stay until they end.
type CordonRequested struct{ NodeRequest }

// DrainRequested asks to give no more jobs to a node, and that those which run there leave at their next save. Those
// without a checkpoint stay until they have one.
type DrainRequested struct {
	NodeRequest
	// Now is set if those leave, too, that have saved nothing yet: they begin again.
	Now bool `json:"now,omitempty"`
}

// ResumeRequested asks to give jobs to a node again.
type ResumeRequested struct{ NodeRequest }

// RemoveRequested asks to forget a node whose agent is gone for good. If its agent starts again, the node is back.
type RemoveRequested struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// NodeSetAside says that a node, or some of its devices, gets no more jobs until a time, since different jobs were lost
// there again and again. Those that run there stay until they end. A request to resume ends it before.
type NodeSetAside struct {
	// Devices are the devices that it is about; empty for the whole node.
	Devices []train.DeviceID `json:"devices,omitempty"`
	Until   time.Time        `json:"until"`
	// Jobs are those that were lost, Reason says how, in words.
	Jobs   []train.JobID `json:"jobs"`
	Reason string        `json:"reason"`
}

// NodeSubject returns the subject of a node's fact in its current version.
func NodeSubject(id train.NodeID, fact string) Subject {
	return Subject{Entity: "node", ID: string(id), Fact: fact, Version: 1}
}

// NodeRequestFact returns a request about a node. An operator may repeat one at any time, so its key has the time.
func NodeRequestFact(id train.NodeID, fact string, at time.Time, body any) Fact {
	return Fact{Subject: NodeSubject(id, fact), Key: fmt.Sprintf("node/%s/%s/%d", id, fact, at.UnixNano()), Time: at, Body: body}
}

// The facts of nodes.
const (
	FactCordonRequested = "cordon_requested"
	FactDrainRequested  = "drain_requested"
	FactResumeRequested = "resume_requested"
	FactRemoveRequested = "remove_requested"
)

// nodeKinds returns the facts of nodes.
func nodeKinds() []Kind {
	node := func(fact, publisher, key, doc string, newBody func() any) Kind {
		return Kind{"node", fact, 1, StreamNodes, publisher, key, false, doc, newBody}
	}
	return []Kind{
		node(FactCordonRequested, Operators, "node/<id>/cordon_requested/<time>",
			"A request to give no more jobs to a node, or to some of its devices.", body[CordonRequested]),
		node(FactDrainRequested, Operators, "node/<id>/drain_requested/<time>",
			"The same, and jobs that run there leave at their next save.", body[DrainRequested]),
		node(FactResumeRequested, Operators, "node/<id>/resume_requested/<time>",
			"A request to give jobs to a node again, or to some of its devices.", body[ResumeRequested]),
		node(FactRemoveRequested, Operators, "node/<id>/remove_requested/<time>",
			"A request to forget a node whose agent is gone for good. The planner refuses it if the agent is heard of, or a job has devices there.", body[RemoveRequested]),
		node(FactSetAside, "planner", "node/<id>/set_aside/<job>/<attempt>",
			"Different jobs were lost there again and again: it gets no more jobs for a while.", body[NodeSetAside]),
	}
}
