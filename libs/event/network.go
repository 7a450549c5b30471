package event

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ProbesCounted is what one agent counted of probes in a slot: of its own flows what it sent, of those of others what has arrived. A flow that is not
// listed as received in a slot was not received at all.
type ProbesCounted struct {
	// Slot is the number of the slot since 1970.
	Slot int64 `json:"slot"`
	// Sent are the node's own flows.
	Sent []train.SentProbes `json:"sent"`
	// Received are the flows of others that lead to the node.
	Received []train.ReceivedProbes `json:"received"`
	// Late are flows of others of which probes came that belong to no slot that could still be told.
	Late []train.LateProbes `json:"late,omitempty"`
	// Stalled says that the agent did not get to run for a while of the slot, and counted nothing.
	Stalled bool `json:"stalled,omitempty"`
}

// LinksJudged is what the probes of a window showed of links. Those of a large network come in parts.
type LinksJudged struct {
	// Slot is the number of the window's last slot since 1970.
	Slot int64 `json:"slot"`
	// Links are all that are probed, or a part of them.
	Links []train.LinkWindow `json:"links"`
	// Ailing are the nodes whose probes say nothing of links, all of them in the first part.
	Ailing []train.AilingNode `json:"ailing,omitempty"`
}

// JudgedSubject is where the parts of LinksJudged go, numbered from 0.
func JudgedSubject(part int) Subject {
	return Subject{Entity: "probe", ID: fmt.Sprintf("links-%d", part), Fact: FactJudged, Version: 1}
}

// LinkDegraded says that a link has come to lose packets, or to delay them.
type LinkDegraded struct {
	// Link is its state now.
	Link train.Link `json:"link"`
}

// LinkRecovered says that a link does so no more.
type LinkRecovered struct {
	// Link is its state now; loss and delay are the last that were seen.
	Link train.Link `json:"link"`
}
