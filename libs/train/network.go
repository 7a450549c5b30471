package train

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// ProbeSlot is the time over which probes are counted together. A probe says itself when it was sent, so both ends count it in the same slot.
const ProbeSlot = 10 * time.Second

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
	// RTTSeconds is that of the fastest reply: a queue that is always there delays every one.
	RTTSeconds float64 `json:"rtt_seconds,omitempty"`
}

// ReceivedProbes is what a responder counted of one flow in a slot.
type ReceivedProbes struct {
	// Flow is the flow's number.
	Flow uint32 `json:"flow"`
	// Count is how many of its probes arrived.
	Count int `json:"count"`
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

// Link is the state of one direction of a link between two switches, or a switch and a node.
type Link struct {
	// ID names the link by where it leads to: the address at which packets enter, or a node or rack where switches are silent.
	ID string `json:"id"`
	// Loss is the part of the packets that it loses, Confidence how sure it is, from 0 to 1, that it is this link that loses them.
	Loss       float64 `json:"loss_ratio"`
	Confidence float64 `json:"confidence_ratio"`
	// Degraded is false of a link that has recovered. Since is when it came to be so.
	Degraded bool      `json:"degraded"`
	Since    time.Time `json:"since"`
	// Probes is on how many probes of the last window that rests.
	Probes int `json:"probes"`
}
