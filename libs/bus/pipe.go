package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Pipe is one end of a two-way sequence of packets between a client and a service. Send returns once the other end has
// taken the packet, so a slow reader slows the writer down. One goroutine at a time may call Receive.
type Pipe struct {
	nc   *nats.Conn
	sub  *nats.Subscription
	peer string
}

// ErrCut means that the other end of a pipe is gone, and has not closed it.
var ErrCut = errors.New("the connection is lost")

const (
	// headerPipe has the subject of the sender's end, headerClosed marks the last packet.
	headerPipe   = "Yard-Pipe"
	headerClosed = "Yard-Closed"
	// pipePatience is how long the other end may take for a packet; pipeBeat is the time between two empty packets, by
	// which each end notices that the other is gone.
	pipePatience = 30 * time.Second
	pipeBeat     = 3 * time.Second
)

func newPipe(nc *nats.Conn, peer string) (*Pipe, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	return &Pipe{nc: nc, sub: sub, peer: peer}, nil
}

// Dial opens a pipe to the service that answers the subject.
func Dial[Q any](ctx context.Context, b *Bus, subject string, question Q) (*Pipe, error) {
	data, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("encode the request %s: %w", subject, err)
	}
	p, err := newPipe(b.nc, "")
	if err != nil {
		return nil, err
	}
	request := nats.NewMsg(subject)
	request.Data = data
	request.Header.Set(headerPipe, p.sub.Subject)
	reply, err := b.request(ctx, request)
	if err != nil {
		_ = p.sub.Unsubscribe()
		return nil, err
	}
	p.peer = reply.Header.Get(headerPipe)
	return p, nil
}

// AnswerPipes opens pipes to the clients that ask on a subject, until ctx ends. accept returns what works with a pipe,
// which is then closed, or an error, which the client receives as its text.
func AnswerPipes[Q any](ctx context.Context, b *Bus, subject string, accept func(context.Context, Q) (func(context.Context, *Pipe), error)) error {
	var open conc.WaitGroup
	defer open.Wait()
	return b.serve(ctx, subject, func(m *nats.Msg) {
		open.Go(func() { answerPipe(ctx, b, m, accept) })
	})
}

func answerPipe[Q any](ctx context.Context, b *Bus, m *nats.Msg, accept func(context.Context, Q) (func(context.Context, *Pipe), error)) {
	reply := nats.NewMsg(m.Reply)
	var question Q
	var work func(context.Context, *Pipe)
	p, err := newPipe(b.nc, m.Header.Get(headerPipe))
	if err == nil {
		defer p.Close()
		reply.Header.Set(headerPipe, p.sub.Subject)
		err = json.Unmarshal(m.Data, &question)
	}
	if err == nil {
		work, err = accept(ctx, question)
	}
	if err != nil {
		refuse(reply, err)
	}
	if lost := m.RespondMsg(reply); lost != nil {
		b.log.Debug("reply lost", "subject", m.Subject, "error", lost)
	}
	if err == nil {
		work(ctx, p)
	}
}

// Send gives a packet to the other end, and waits until it was taken.
func (p *Pipe) Send(ctx context.Context, packet []byte) error {
	ctx, cancel := context.WithTimeout(ctx, pipePatience)
	defer cancel()
	if _, err := p.nc.RequestWithContext(ctx, p.peer, packet); err != nil {
		return fmt.Errorf("%w: %w", ErrCut, err)
	}
	return nil
}

// Receive returns the next packet, or io.EOF if the other end was closed.
func (p *Pipe) Receive(ctx context.Context) ([]byte, error) {
	for {
		m, err := p.sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCut, err)
		}
		if m.Header.Get(headerClosed) != "" {
			return nil, io.EOF
		}
		_ = m.Respond(nil)
		if len(m.Data) > 0 {
			return m.Data, nil
		}
	}
}

// Watch returns once the other end does not answer any more, or ctx has ended.
func (p *Pipe) Watch(ctx context.Context) {
	for range tick.Every(ctx, pipeBeat) {
		if p.Send(ctx, nil) != nil {
			return
		}
	}
}

// Close tells the other end that nothing follows.
func (p *Pipe) Close() {
	last := nats.NewMsg(p.peer)
	last.Header.Set(headerClosed, "1")
	_ = p.nc.PublishMsg(last)
	_ = p.nc.Flush()
	_ = p.sub.Unsubscribe()
}
