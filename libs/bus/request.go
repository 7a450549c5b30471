package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// headerError carries the sentence of a refused request.
const headerError = "Yard-Error"

// Ask sends a request to whichever service answers the subject and decodes its reply.
func Ask[Q, A any](ctx context.Context, b *Bus, subject string, question Q) (A, error) {
	var answer A
	data, err := json.Marshal(question)
	if err != nil {
		return answer, fmt.Errorf("encode the request %s: %w", subject, err)
	}
	reply, err := b.nc.RequestWithContext(ctx, subject, data)
	if errors.Is(err, nats.ErrNoResponders) {
		return answer, fmt.Errorf("ask %s: %w: the service that answers this is not running", subject, ErrAway)
	}
	if err != nil {
		return answer, fmt.Errorf("ask %s: %w", subject, err)
	}
	if refusal := reply.Header.Get(headerError); refusal != "" {
		return answer, fmt.Errorf("ask %s: %s", subject, refusal)
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return answer, fmt.Errorf("decode the reply of %s: %w", subject, err)
	}
	return answer, nil
}

// Answer serves requests on a subject until ctx ends. An error is told to the asker as a sentence.
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
			reply.Data, err = json.Marshal(answer)
		}
	}
	if err != nil {
		reply.Header.Set(headerError, err.Error())
	}
	if err := m.RespondMsg(reply); err != nil {
		b.log.Debug("reply lost", "subject", m.Subject, "error", err)
	}
}
