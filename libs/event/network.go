package event

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ProbesCounted holds one agent's counts of probes in a slot: what it sent of its own flows, and what arrived of flows
// of others. A flow not listed as received in a slot was not received at all.
type ProbesCounted struct {
	// Slot is the number of the slot since 1970.
	Slot int64 `json:"slot"`
	// Sent are the node's own flows.
	Sent []train.SentProbes `json:"sent"`
	// Received are the flows of others that lead to the node.
	Received []train.ReceivedProbes `json:"received"`
	// Late are flows of others whose probes came too late for any slot that could still be reported.
	Late []train.LateProbes `json:"late,omitempty"`
	// Stalled says that the agent did not get to run for a part of the slot, and counted nothing.
	Stalled bool `json:"stalled,omitempty"`
}

// LinksJudged holds the results of one window of probes for each link. Those of a large network come in parts.
type LinksJudged struct {
	// Slot is the number of the window's last slot since 1970.
	Slot int64 `json:"slot"`
	// Links are all probed links, or a part of them.
	Links []train.LinkWindow `json:"links"`
	// Ailing are the nodes whose probes say nothing about links, all of them in the first part.
	Ailing []train.UnhealthyNode `json:"ailing,omitempty"`
}

// JudgedSubject returns the subject of a part of LinksJudged, numbered from 0.
func JudgedSubject(part int) Subject {
	return Subject{Entity: "probe", ID: fmt.Sprintf("links-%d", part), Fact: FactJudged, Version: 1}
}

// LinkDegraded says that a link has begun to lose packets, or to delay them.
type LinkDegraded struct {
	// Link is its state now.
	Link train.Link `json:"link"`
}

// LinkRecovered says that a link no longer loses or delays packets.
type LinkRecovered struct {
	// Link is its state now; loss and delay are the last that were measured.
	Link train.Link `json:"link"`
}
