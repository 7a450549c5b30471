package train

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// ProbeSlot is the time over which probes are counted together. A probe says itself when it was sent, so both ends count it in the same slot.
const ProbeSlot = 10 * time.Second

// ProbeTimeout is how long an answer may take before its probe counts as unanswered.
const ProbeTimeout = 100 * time.Millisecond

// Flow is one stream of probes, one way: with the same addresses, ports and class all of them take the same path.
type Flow struct {
	From NodeID `json:"from"`
	To   NodeID `json:"to"`
	// Source and Target are host:port.
	Source string `json:"source"`
	Target string `json:"target"`
	DSCP   int    `json:"dscp,omitempty"`
	// Links are those that its packets cross, where they are known.
	Links []string `json:"links,omitempty"`
}

// ID is the number that the flow's probes carry. It follows from the flow, so that it outlives changes of the lists.
func (f Flow) ID() uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s %d", f.Source, f.Target, f.DSCP)
	return h.Sum32()
}

// Pinglist is what one agent shall do on the network.
type Pinglist struct {
	// Key authenticates probes; all agents of an installation have the same.
	Key []byte `json:"key"`
	// Probes are sent to in turn, Trace are the flows whose paths shall be found.
	Probes []Flow `json:"probes"`
	Trace  []Flow `json:"trace,omitempty"`
}

// SentProbes is what a pinger counted of one of its flows in a slot.
type SentProbes struct {
	// Flow is the flow's number: a hash of its addresses, ports and class.
	Flow uint32 `json:"flow"`
	// Sent is how many left the node, Acked how many of them were answered.
	Sent  int `json:"sent"`
	Acked int `json:"acked"`
	// RTTSeconds is what half of the replies took at most, RTTHighSeconds what nine tenths did.
	RTTSeconds     float64 `json:"rtt_seconds,omitempty"`
	RTTHighSeconds float64 `json:"rtt_high_seconds,omitempty"`
}

// ReceivedProbes is what a responder counted of one flow in a slot.
type ReceivedProbes struct {
	// Flow is the flow's number.
	Flow uint32 `json:"flow"`
	// Count is how many of its probes arrived.
	Count int `json:"count"`
	// DelaySeconds is how long half of them took at most, one way, by the clocks of both ends: only how it changes says anything of the network.
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
}

// LateProbes is what a responder says of a flow whose probes it cannot count, because they arrived after their slot had been reported or bear a time that is
// more than a minute off: the clocks of both ends differ.
type LateProbes struct {
	// Flow is the flow's number.
	Flow uint32 `json:"flow"`
	// BehindSeconds is how long after it was sent, by the clocks of both ends, one of its probes came; below 0 where the clock of the sender is ahead.
	BehindSeconds float64 `json:"behind_seconds"`
}

// Path is what was found of a flow's way: the addresses that answered, hop by hop; empty where one was silent.
type Path struct {
	Flow Flow     `json:"flow"`
	Hops []string `json:"hops"`
	// Complete says that the target itself has answered, after the last of the hops.
	Complete bool `json:"complete"`
}

// Closed says that the flow could not be sent at all: its source port is in use at the node.
func (p Path) Closed() bool { return !p.Complete && len(p.Hops) == 0 }

// Same says whether two paths are of one flow and cross the same hops.
func (p Path) Same(q Path) bool {
	return p.Flow.ID() == q.Flow.ID() && p.Complete == q.Complete && slices.Equal(p.Hops, q.Hops)
}

// Paths is what an agent found.
type Paths struct {
	Node  NodeID    `json:"node"`
	Paths []Path    `json:"paths"`
	At    time.Time `json:"at"`
}

// KeepWhole puts paths that were found before in place of what was found of them now, where that is less: a link that loses packets is silent, too, and just then
// it matters who crosses it. That does not hold for a flow that cannot be probed, since its port is in use: another one over the same links has to take its place.
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

// LinkTrouble is what is wrong with a link.
type LinkTrouble string

// The troubles. A link that has both is said to lose packets, which is worse.
const (
	LinkLoses  LinkTrouble = "loss"
	LinkIsSlow LinkTrouble = "slow"
	LinkIsWell LinkTrouble = "well"
)

// Link is the state of one direction of a link between two switches, or a switch and a node.
type Link struct {
	// ID names the link by where it leads to: the address at which packets enter, or a node or rack where switches are silent.
	ID string `json:"id"`
	// Alike are other links on exactly the same probed paths: it may be one of them instead.
	Alike []string `json:"alike,omitempty"`
	// Kind is what is wrong with it: "loss" or "slow".
	Kind LinkTrouble `json:"kind"`
	// Loss is the part of the packets that it loses, DelaySeconds how much longer than usual they take where it is slow. Confidence is how sure it is, from 0 to 1, that
	// it is this link.
	Loss         float64 `json:"loss_ratio"`
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
	Confidence   float64 `json:"confidence_ratio"`
	// Degraded is false of a link that has recovered. Since is when it came to be so.
	Degraded bool      `json:"degraded"`
	Since    time.Time `json:"since"`
	// Probes is on how many probes of the last window that rests.
	Probes int `json:"probes"`
}

// Trouble says in words what is wrong with the link.
func (l Link) Trouble() string {
	if l.Kind == LinkIsSlow {
		return fmt.Sprintf("takes %.3g ms longer than usual", 1e3*l.DelaySeconds)
	}
	return fmt.Sprintf("loses %.3g %% of the packets", 100*l.Loss)
}

// Ailment is what a node suffers from.
type Ailment string

// The ailments.
const (
	// NodeIsSilent is one that does not tell any more what it sent or what it received: its agent has ended, or does not reach the bus.
	NodeIsSilent Ailment = "Silent"
	// NodeIsStalled is one whose agent does not get to run.
	NodeIsStalled Ailment = "Stalled"
	// NodeHasClockSkew is one whose clock differs from that of most others.
	NodeHasClockSkew Ailment = "ClockSkew"
)

// AilingNode is a node that is to blame itself: what is sent to it or from it says nothing of the links between.
type AilingNode struct {
	Node NodeID `json:"node"`
	// Why is "Silent", "Stalled" or "ClockSkew".
	Why Ailment `json:"why"`
	// BehindSeconds is how far its clock is behind those of the others; below 0: ahead.
	BehindSeconds float64 `json:"behind_seconds,omitempty"`
}

// LinkWindow is what the probes of one window showed of a link.
type LinkWindow struct {
	// ID is that of the Link.
	ID string `json:"id"`
	// State is what is known to be wrong with it: "loss", "slow", or "well".
	State LinkTrouble `json:"state"`
	// Sent are the probes on the paths over the link, Lost those of them that did not arrive, wherever on these paths they were lost.
	Sent int `json:"sent"`
	Lost int `json:"lost"`
	// Loss and DelaySeconds are the link's own; 0 where it is well.
	Loss         float64 `json:"loss_ratio"`
	DelaySeconds float64 `json:"delay_seconds"`
	// RTTSeconds is the median over these paths of their median, RTTHighSeconds the largest of their ninth deciles; 0 where nothing was answered.
	RTTSeconds     float64 `json:"rtt_seconds"`
	RTTHighSeconds float64 `json:"rtt_high_seconds"`
}
