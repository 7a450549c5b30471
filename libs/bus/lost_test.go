package bus_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// breaking dials connections. Once armed, the next that gets a message with the words breaks and loses it.
type breaking struct {
	words []byte
	armed atomic.Bool
}

func (b *breaking) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address) //nolint:noctx // the interface has none
	return &breakingConn{Conn: c, by: b}, err
}

type breakingConn struct {
	net.Conn
	by *breaking
}

func (c *breakingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], c.by.words) && c.by.armed.CompareAndSwap(true, false) {
		return 0, io.EOF
	}
	return n, err
}

// A message that was lost on its way to a reader, whose connection broke and is back at once, comes again at once,
// although no later one shows that it is missing.
func TestAMessageThatIsLostOnItsWayComesAgain(t *testing.T) {
	readers := map[string]func(ctx context.Context, b *bus.Bus, seen chan<- uint64){
		"one by one": func(ctx context.Context, b *bus.Bus, seen chan<- uint64) {
			_ = b.Consume(ctx, bus.Consumer{Name: "x", Stream: event.StreamSamples, Handle: func(_ context.Context, m bus.Message) ([]event.Fact, error) {
				seen <- m.Sequence
				return nil, nil
			}})
		},
		"in batches": func(ctx context.Context, b *bus.Bus, seen chan<- uint64) {
			_ = b.ConsumeBatches(ctx, bus.BatchConsumer{Name: "y", Stream: event.StreamSamples, Size: 4, Wait: 500 * time.Millisecond, Handle: func(_ context.Context, batch []bus.Message) error {
				for _, m := range batch {
					seen <- m.Sequence
				}
				return nil
			}})
		},
	}
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := bustest.Start(t)
			publisher := bustest.Connect(t, server, "publisher")
			wire := &breaking{words: []byte(`"step":5`)}
			reader, err := bus.Connect(within(t), bus.Config{URL: server.URL(), Name: "x", Options: []nats.Option{nats.SetCustomDialer(wire), nats.ReconnectWait(time.Millisecond)}})
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			seen := make(chan uint64, 100)
			ctx, cancel := context.WithCancel(t.Context())
			var running conc.WaitGroup
			running.Go(func() { read(ctx, reader, seen) })
			defer func() { cancel(); running.Wait() }()
			publishSteps(t, publisher, 1, 4)
			expect(t, seen, 1, 4)
			wire.armed.Store(true)
			publishSteps(t, publisher, 5, 5)
			expectRepeats(t, seen, 5, 5)
			publishSteps(t, publisher, 6, 9)
			expectRepeats(t, seen, 6, 9)
		})
	}
}

// expectRepeats waits for messages in order, as expect does, but allows that earlier ones come again.
func expectRepeats(t *testing.T, seen <-chan uint64, from, to uint64) {
	t.Helper()
	ctx := within(t)
	for want := from; want <= to; {
		select {
		case got := <-seen:
			if got > want {
				t.Fatalf("message %d, want %d", got, want)
			}
			if got == want {
				want++
			}
		case <-ctx.Done():
			t.Fatalf("message %d never came", want)
		}
	}
}
