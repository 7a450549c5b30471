package contract

import "time"

// Lease names the process that does a task which one process at a time may do.
type Lease struct {
	// Holder is the process that holds the lease, Since the time it took it.
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
	// Build is the program of that process.
	Build *Build `json:"build,omitempty"`
}

// Version is that of the records. It grows when a key of a record goes or changes its meaning; keys that are added do
// not count.
const Version = 1

// Build says which program a process runs, and which versions of facts and records it speaks.
type Build struct {
	// Version is the version of the program, or devel if it was built without version control.
	Version string `json:"version"`
	// Commit and CommittedAt name the source; Modified says that files differed from it.
	Commit      string `json:"commit,omitempty"`
	CommittedAt string `json:"committed_at,omitempty"`
	Modified    bool   `json:"modified,omitempty"`
	// Go is the version of the compiler, Platform the system and the processor that it built for.
	Go       string `json:"go,omitempty"`
	Platform string `json:"platform,omitempty"`
	// Events is the newest version of any fact, Records that of the records.
	Events  int `json:"events"`
	Records int `json:"records"`
}
