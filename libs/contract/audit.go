package contract

import "time"

// AuditEntry is a request of a person or a role, and what became of it.
type AuditEntry struct {
	// Time is when it was asked.
	Time time.Time `json:"time"`
	// Who is a person, or a role of the bus if no person is known. Door is how the person came.
	Who  string `json:"who"`
	Door string `json:"door"`
	// Fact is what was asked, or the operation that was refused. Entity and ID are what it is about.
	Fact   string `json:"fact"`
	Entity string `json:"entity"`
	ID     string `json:"id"`
	// Outcome is taken or refused, Why the reason for that.
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}
