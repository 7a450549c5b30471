package train

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// ProbeSlot is the time over which probes are counted together. A probe carries the time it was sent, so both ends
// count it in the same slot.
const ProbeSlot = 10 * time.Second

// ProbeTimeout is how long an answer may take before its probe counts as unanswered.
const ProbeTimeout = 100 * time.Millisecond

// Flow is one stream of probes in one direction: with the same addresses, ports and class they all take the same path.
type Flow struct {
	From NodeID `json:"from"`
	To   NodeID `json:"to"`
	// Source and Target are host:port.
	Source string `json:"source"`
	Target string `json:"target"`
	DSCP   int    `json:"dscp,omitempty"`
	// Links are the links that its packets cross, if known.
	Links []string `json:"links,omitempty"`
}

// ID returns the number that the flow's probes carry. It follows from the flow's fields, so it stays the same when the
// lists change.
func (f Flow) ID() uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s %d", f.Source, f.Target, f.DSCP)
	return h.Sum32()
}

// Pinglist is the probing work of one agent.
type Pinglist struct {
	// Key authenticates probes; all agents of an installation have the same.
	Key []byte `json:"key"`
	// Probes are the flows to probe in turn, Trace the flows whose paths to find.
	Probes []Flow `json:"probes"`
	Trace  []Flow `json:"trace,omitempty"`
}

// SentProbes holds a pinger's counts for one of its flows in a slot.
type SentProbes struct {
	// Flow is the flow's number: a hash of its addresses, ports and class.
	Flow uint32 `json:"flow"`
	// Sent is the number of probes that left the node, Acked the number of them that were answered. The extra ones of a
	// node that lost a probe ask for no answer.
	Sent  int `json:"sent"`
	Acked int `json:"acked"`
	// RTTSeconds is the median round-trip time, RTTHighSeconds the ninth decile.
	RTTSeconds     float64 `json:"rtt_seconds,omitempty"`
	RTTHighSeconds float64 `json:"rtt_high_seconds,omitempty"`
}

// ReceivedProbes holds a responder's counts for one flow in a slot.
type ReceivedProbes struct {
	// Flow is the flow's number.
	Flow uint32 `json:"flow"`
	// Count is the number of its probes that arrived.
	Count int `json:"count"`
	// DelaySeconds is the median one-way delay by the clocks of both ends: only its changes say something about the
	// network.
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
}

// LateProbes reports a flow whose probes a responder cannot count, because they arrived after their slot had been
// reported or carry a time more than a minute off: the clocks of both ends differ.
type LateProbes struct {
	// Flow is the flow's number.
	Flow uint32 `json:"flow"`
	// BehindSeconds is the delay of one of its probes by the clocks of both ends; below 0 if the sender's clock is
	// ahead.
	BehindSeconds float64 `json:"behind_seconds"`
}

// Path is the path found for a flow: the addresses that answered, hop by hop; empty for a silent hop.
type Path struct {
	Flow Flow     `json:"flow"`
	Hops []string `json:"hops"`
	// Complete reports that the target itself answered, after the last of the hops.
	Complete bool `json:"complete"`
}

// Closed reports that the flow could not be sent at all: its source port is in use at the node.
func (p Path) Closed() bool { return !p.Complete && len(p.Hops) == 0 }

// Same reports whether two paths belong to one flow and cross the same hops.
func (p Path) Same(q Path) bool {
	return p.Flow.ID() == q.Flow.ID() && p.Complete == q.Complete && slices.Equal(p.Hops, q.Hops)
}

// Paths are the paths an agent found.
type Paths struct {
	Node  NodeID    `json:"node"`
	Paths []Path    `json:"paths"`
	At    time.Time `json:"at"`
}

// KeepWhole replaces a path by an earlier one of the same flow if that shows more: a link that loses packets also drops
// the answers of its hops, and just then it matters which flows cross it. Flows that cannot be probed because their
// port is in use keep nothing: another flow over the same links must replace them.
func (p *Paths) KeepWhole(before []Path) {
	whole := map[uint32]Path{}
	for _, old := range before {
		if old.Complete {
			whole[old.Flow.ID()] = old
		}
	}
	for i, found := range p.Paths {
		if old, known := whole[found.Flow.ID()]; known && !found.Closed() && (!found.Complete || slices.Contains(found.Hops, "")) {
			p.Paths[i] = old
		}
	}
}

// LinkTrouble is the kind of fault of a link.
type LinkTrouble string

// The faults of links. A link with both counts as losing packets, which is worse.
const (
	LinkLoses  LinkTrouble = "loss"
	LinkIsSlow LinkTrouble = "slow"
	LinkIsWell LinkTrouble = "well"
)

// Link is the state of one direction of a link between two switches, or a switch and a node.
type Link struct {
	// ID names the link by its far end: the address at which packets enter, or a node or rack if switches are silent.
	ID string `json:"id"`
	// Alike are other links on exactly the same probed paths: the fault may be in one of them instead.
	Alike []string `json:"alike,omitempty"`
	// Kind is the fault: "loss" or "slow".
	Kind LinkTrouble `json:"kind"`
	// Loss is the fraction of packets that the link loses, DelaySeconds the extra delay of a slow link. Confidence is
	// the probability, from 0 to 1, that this link is the cause.
	Loss         float64 `json:"loss_ratio"`
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
	Confidence   float64 `json:"confidence_ratio"`
	// Degraded is false for a link that has recovered. Since is the time of the change.
	Degraded bool      `json:"degraded"`
	Since    time.Time `json:"since"`
	// Probes is the number of probes of the last window on which this rests.
	Probes int `json:"probes"`
}

// Trouble describes the fault of the link in words.
func (l Link) Trouble() string {
	if l.Kind == LinkIsSlow {
		return fmt.Sprintf("takes %.3g ms longer than usual", 1e3*l.DelaySeconds)
	}
	return fmt.Sprintf("loses %.3g %% of the packets", 100*l.Loss)
}

// NodeTrouble is the kind of fault of a node.
type NodeTrouble string

// The faults of nodes.
const (
	// NodeIsSilent: the node no longer reports what it sent or received; its agent has ended, or does not reach the
	// bus.
	NodeIsSilent NodeTrouble = "Silent"
	// NodeIsStalled: the node's agent does not get to run.
	NodeIsStalled NodeTrouble = "Stalled"
	// NodeHasClockSkew: the node's clock differs from that of most others.
	NodeHasClockSkew NodeTrouble = "ClockSkew"
)

// UnhealthyNode is a node that is itself at fault: probes to it or from it say nothing about the links between.
type UnhealthyNode struct {
	Node NodeID `json:"node"`
	// Why is "Silent", "Stalled" or "ClockSkew".
	Why NodeTrouble `json:"why"`
	// BehindSeconds is how far its clock is behind those of the others; below 0: ahead.
	BehindSeconds float64 `json:"behind_seconds,omitempty"`
}

// LinkWindow holds the results of one window of probes over a link.
type LinkWindow struct {
	// ID is that of the Link.
	ID string `json:"id"`
	// State is the known state of the link: "loss", "slow", or "well".
	State LinkTrouble `json:"state"`
	// Sent counts the probes on the paths over the link, Lost those of them that did not arrive, wherever on these
	// paths they were lost.
	Sent int `json:"sent"`
	Lost int `json:"lost"`
	// Loss and DelaySeconds are the link's own; 0 for a healthy link.
	Loss         float64 `json:"loss_ratio"`
	DelaySeconds float64 `json:"delay_seconds"`
	// RTTSeconds is the median over these paths of their median, RTTHighSeconds the largest of their ninth deciles; 0
	// if nothing was answered.
	RTTSeconds     float64 `json:"rtt_seconds"`
	RTTHighSeconds float64 `json:"rtt_high_seconds"`
}
