package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// headerError carries the message of a refused request.
const headerError = "Yard-Error"

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
	if refusal := reply.Header.Get(headerError); refusal != "" {
		return nil, fmt.Errorf("%s: %s", who, refusal)
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

// Answer serves requests on a subject until ctx ends. The caller receives an error as its text.
func Answer[Q, A any](ctx context.Context, b *Bus, subject string, f func(context.Context, Q) (A, error)) error {
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
			answerOne(ctx, b, m, f)
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
		reply.Header.Set(headerError, err.Error())
	}
	err = m.RespondMsg(reply)
	if errors.Is(err, nats.ErrMaxPayload) { // a bus of the operator may take less than the embedded one
		refusal := nats.NewMsg(m.Reply)
		refusal.Header.Set(headerError, fmt.Sprintf("the answer has %d bytes, and this bus takes at most %d in a message (its max_payload): ask for less, or raise that limit", reply.Size(), b.nc.MaxPayload()))
		err = m.RespondMsg(refusal)
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
