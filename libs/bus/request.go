package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

// Headers of a refused request: the message, and the kind of the error.
const (
	headerError     = "Yard-Error"
	headerErrorKind = "Yard-Error-Kind"
)

// refuse makes reply a refusal.
func refuse(reply *nats.Msg, err error) {
	reply.Header.Set(headerError, err.Error())
	if kind := rpc.KindOf(err); kind != "" {
		reply.Header.Set(headerErrorKind, kind)
	}
}

// Ask sends a request to the service that answers the subject and decodes its reply.
func Ask[Q, A any](ctx context.Context, b *Bus, subject string, question Q) (A, error) {
	var answer A
	data, err := json.Marshal(question)
	if err != nil {
		return answer, fmt.Errorf("encode the request %s: %w", subject, err)
	}
	request := nats.NewMsg(subject)
	request.Data = data
	reply, err := b.request(ctx, request)
	if err != nil {
		return answer, err
	}
	body, err := event.Unpack(reply.Data, reply.Header.Get(event.HeaderEncoding), event.MaxPlanBytes)
	if err != nil {
		return answer, fmt.Errorf("decode the reply of %s: %w", answerer(subject), err)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return answer, fmt.Errorf("decode the reply of %s: %w", answerer(subject), err)
	}
	return answer, nil
}

// request sends a request and returns its reply, unless it is a refusal.
func (b *Bus) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	who := answerer(m.Subject)
	reply, err := b.nc.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, absent(who)
	}
	if unsent(err) {
		err = b.cause(err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", who, err)
	}
	if text := reply.Header.Get(headerError); text != "" {
		return nil, rpc.Refused(who+": "+text, reply.Header.Get(headerErrorKind))
	}
	return reply, nil
}

// absent is the error that a service does not run. It counts as ErrAway: the question may be asked again.
type absent string

func (a absent) Error() string { return string(a) + " is not running" }

// Is makes it an ErrAway.
func (a absent) Is(target error) bool { return target == ErrAway }

// answerer names who answers a subject switchyard.<service>.<node>.<question>, for a person.
func answerer(subject string) string {
	parts := strings.Split(subject, ".")
	switch {
	case len(parts) < 3 || parts[0] != "switchyard":
		return subject
	case len(parts) == 3:
		return "the " + parts[1]
	}
	return fmt.Sprintf("the %s of node %s", parts[1], parts[2])
}

// Answer serves requests on a subject until ctx ends. The caller receives the text of an error, and its kind if it
// is an rpc.Refusal or another fs.ErrNotExist or fs.ErrInvalid.
func Answer[Q, A any](ctx context.Context, b *Bus, subject string, f func(context.Context, Q) (A, error)) error {
	return b.serve(ctx, subject, func(m *nats.Msg) { answerOne(ctx, b, m, f) })
}

// serve calls f with the requests on a subject until ctx ends. If several processes serve it, each request goes to one.
func (b *Bus) serve(ctx context.Context, subject string, f func(*nats.Msg)) error {
	messages := make(chan *nats.Msg, 64)
	sub, err := b.nc.ChanQueueSubscribe(subject, "switchyard", messages)
	if err != nil {
		return fmt.Errorf("serve %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			f(m)
		}
	}
}

func answerOne[Q, A any](ctx context.Context, b *Bus, m *nats.Msg, f func(context.Context, Q) (A, error)) {
	reply := nats.NewMsg(m.Reply)
	var question Q
	err := json.Unmarshal(m.Data, &question)
	if err == nil {
		var answer A
		if answer, err = f(ctx, question); err == nil {
			err = pack(reply, answer)
		}
	}
	if err != nil {
		refuse(reply, err)
	}
	err = m.RespondMsg(reply)
	if errors.Is(err, nats.ErrMaxPayload) { // a bus of the operator may take less than the embedded one
		tooLarge := nats.NewMsg(m.Reply)
		tooLarge.Header.Set(headerError, fmt.Sprintf("the answer has %d bytes, and this bus takes at most %d in a message (its max_payload): ask for less, or raise that limit", reply.Size(), b.nc.MaxPayload()))
		err = m.RespondMsg(tooLarge)
	}
	if err != nil {
		b.log.Debug("reply lost", "subject", m.Subject, "error", err)
	}
}

// pack puts an answer into a reply. A large one is packed as facts are.
func pack(reply *nats.Msg, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	stored, encoding, err := event.Pack(body)
	if err != nil {
		return fmt.Errorf("the answer does not fit into one message: %w", err)
	}
	if reply.Data = stored; encoding != "" {
		reply.Header.Set(event.HeaderEncoding, encoding)
	}
	return nil
}

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

// claim is what a message says about the person who asks for it.
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
