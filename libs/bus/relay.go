package bus

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/identity"
)

// ErrForeign says that an agent reports about an attempt that does not run on its node.
var ErrForeign = errors.New("not of this node")

const (
	// codeForeign is how a relay refuses such a report, codeLater how it refuses one that may be repeated. The server
	// uses numbers around 10,000.
	codeForeign jetstream.ErrorCode = 31001
	codeLater   jetstream.ErrorCode = 31002
	// relayRoom is how many messages may wait for a relay.
	relayRoom = 4096
	// responsePrefix begins the subjects on which the server takes answers to another account.
	responsePrefix = "_R_."
	// headerImported is what the server says about a message that has crossed from another account.
	headerImported = "Nats-Request-Info"
)

// isForeign reports whether an answer is the refusal of a relay for good.
func isForeign(err error) bool {
	api, refused := errors.AsType[*jetstream.APIError](err)
	return refused && api.ErrorCode == codeForeign
}

// Relay takes what the agents of other machines report about jobs, until ctx ends. allow says whether a message of a
// node's agent may be stored. If so it goes on to the server as it is, whose answer goes back as it is: batches, keys
// and comparisons work as without a relay. ErrForeign is final for the agent; it tries again after any other error.
func (b *Bus) Relay(ctx context.Context, allow func(ctx context.Context, node string, m Message) error) error {
	arrived, answers := make(chan *nats.Msg, relayRoom), make(chan *nats.Msg, relayRoom)
	inbox := b.nc.NewInbox()
	back, err := b.nc.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return fmt.Errorf("relay answers to agents: %w", err)
	}
	defer func() { _ = back.Unsubscribe() }()
	in, err := b.nc.ChanQueueSubscribe(identity.ReportPrefix+">", "switchyard", arrived)
	if err != nil {
		return fmt.Errorf("relay the reports of agents: %w", err)
	}
	defer func() { _ = in.Unsubscribe() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-answers:
			to, err := hex.DecodeString(strings.TrimPrefix(m.Subject, inbox+"."))
			if err == nil {
				err = b.nc.PublishMsg(&nats.Msg{Subject: string(to), Header: m.Header, Data: m.Data})
			}
			b.relayed(m, err)
		case m := <-arrived:
			b.relayed(m, b.relay(ctx, m, inbox, allow))
		}
	}
}

func (b *Bus) relayed(m *nats.Msg, err error) {
	if err != nil {
		b.log.Debug("a report of an agent was not relayed", "subject", m.Subject, "error", err)
	}
}

// relay passes a message on, or refuses it.
func (b *Bus) relay(ctx context.Context, m *nats.Msg, inbox string, allow func(context.Context, string, Message) error) error {
	node, subject, _ := strings.Cut(strings.TrimPrefix(m.Subject, identity.ReportPrefix), ".")
	on := &nats.Msg{Subject: subject, Data: m.Data, Header: maps.Clone(m.Header)}
	on.Header.Del(headerImported)
	answered := strings.HasPrefix(m.Reply, responsePrefix)
	if err := allow(ctx, node, b.newMessage(subject, m.Header, m.Data, 0, time.Now())); err != nil {
		if !answered {
			return err
		}
		return errors.Join(err, b.nc.Publish(m.Reply, refusedReport(err)))
	}
	if answered {
		on.Reply = inbox + "." + hex.EncodeToString([]byte(m.Reply))
	}
	return b.nc.PublishMsg(on)
}

// refusedReport is a refusal in the form of the server's answers.
func refusedReport(err error) []byte {
	refusal := jetstream.APIError{Code: http.StatusServiceUnavailable, ErrorCode: codeLater, Description: err.Error()}
	if errors.Is(err, ErrForeign) {
		refusal.Code, refusal.ErrorCode = http.StatusForbidden, codeForeign
	}
	data, _ := json.Marshal(map[string]any{"error": refusal}) //nolint:errchkjson // numbers and a text
	return data
}
