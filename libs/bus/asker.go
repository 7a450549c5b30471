package bus

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// Asker is who asks for something.
type Asker struct {
	// Role has published the request: identity.User if nobody has signed it. It is empty on a bus without accounts.
	Role string
	// Person is who has asked the role to. It is empty if the role itself asks, as web does for the installation's owner.
	Person string
	// Door is how the person came to the service web.
	Door string
}

// Stranger stands for a user of the bus, whose word about his name is not believed.
const Stranger = identity.User + ".nk"

// Name returns how records name who asks; empty if the body of the request may say it.
func (a Asker) Name() string {
	if a.Role == identity.User {
		return Stranger
	}
	return a.Person
}

// claim is what a message says of who asks for it.
type claim struct {
	person, door, proof string
	// roster checks the proof. Without one everybody on the bus is believed.
	roster *identity.Roster
}

// Asker returns who asks for a request, or identity.ErrUnproven if the message names a person without a proof.
func (m Message) Asker() (Asker, error) {
	c := m.claim
	if c.roster == nil || m.Stored.Before(c.roster.Since) {
		return Asker{Person: c.person, Door: c.door}, nil
	}
	if c.person == "" && c.proof == "" {
		return Asker{Role: identity.User}, nil
	}
	request := identity.Request{Person: c.person, Door: c.door, Subject: m.Subject, Key: m.Key, Body: m.Data}
	role, err := c.roster.Check(request, c.proof, m.Stored)
	return Asker{role, c.person, c.door}, err
}

// Asked returns who asks for a request, and writes that into the body as far as it is known. A message that names a
// person without a proof is poison.
func Asked(m Message, body any) (Asker, error) {
	who, err := m.Asker()
	if err != nil {
		return who, fmt.Errorf("%w: UnprovenAsker: %w", ErrPoison, err)
	}
	event.Attribute(body, who.Name())
	return who, nil
}

// vouch signs a request as one of this connection's role.
func (b *Bus) vouch(msg *nats.Msg, f event.Fact) error {
	kind, known := event.Find(f.Subject)
	if !known || !kind.Asked() {
		return nil
	}
	if f.By != "" {
		msg.Header.Set(event.HeaderBy, f.By)
	}
	if f.Door != "" {
		msg.Header.Set(event.HeaderDoor, f.Door)
	}
	request := identity.Request{Person: f.By, Door: f.Door, Subject: msg.Subject, Key: msg.Header.Get(jetstream.MsgIDHeader), Body: msg.Data}
	proof, err := b.voucher.Sign(request, time.Now())
	if proof != "" {
		msg.Header.Set(event.HeaderProof, proof)
	}
	return err
}
