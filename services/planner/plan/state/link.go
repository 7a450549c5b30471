package state

import "github.com/switchyard-dl/switchyard/libs/train"

// Link is one direction of a link of the network that loses or delays packets.
type Link struct {
	ID   string  `json:"id"`
	Loss float64 `json:"loss_ratio"`
	// DelaySeconds is how much longer than usual packets take.
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
	// Packets from any node of From to any of To may cross it.
	From []train.NodeID `json:"from"`
	To   []train.NodeID `json:"to"`
}
