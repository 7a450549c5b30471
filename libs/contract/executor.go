package contract

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ExecutorOwner says whose executor acts for a machine.
type ExecutorOwner struct {
	// Machine is the name of the node on which the executor works.
	Machine train.NodeID `json:"machine"`
	// Owner is the data folder whose executor acts for the machine.
	Owner train.Owner `json:"owner"`
	// SeenAt is refreshed by the executor every few seconds: an old time means that it is gone.
	SeenAt time.Time `json:"seen_at"`
}
