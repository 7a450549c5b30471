package contract

import "time"

// Lease names the process that does a task which one process at a time may do.
type Lease struct {
	// Holder is the process that holds the lease, Since the time it took it.
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
}
