package train

import "time"

// MaxStragglers bounds the number of slow workers for which a job is moved in its whole life.
const MaxStragglers = 3

// Straggler is a worker that held up the others of its attempt.
type Straggler struct {
	Attempt int      `json:"attempt"`
	Rank    int      `json:"rank"`
	Node    NodeID   `json:"node"`
	Device  DeviceID `json:"device"`
	// Slowdown is its time for a step, waiting excluded, over the median of the attempt's workers.
	Slowdown float64 `json:"slowdown"`
	// FoundAt is the time when it was found; zero in old records.
	FoundAt time.Time `json:"told_at,omitzero"`
}
