package bus

import "github.com/switchyard-dl/switchyard/libs/identity"

// Proof returns the proof of a message.
func (m Message) Proof() string { return m.claim.proof }

// AskerBy is Asker with other public keys.
func (m Message) AskerBy(r *identity.Roster) (Asker, error) {
	m.claim.roster = r
	return m.Asker()
}
