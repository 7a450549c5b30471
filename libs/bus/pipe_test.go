package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
)

// TestAPipeKeepsOrderAndEnds: packets of both directions arrive whole and in order, however many there are; the end of
// one side reaches the other, and a refusal is an error with its words.
func TestAPipeKeepsOrderAndEnds(t *testing.T) {
	b, ctx := bustest.Connect(t, bustest.Start(t), "both"), within(t)
	ctx, stop := context.WithCancel(ctx)
	var serving conc.WaitGroup
	defer serving.Wait()
	defer stop()
	serving.Go(func() {
		_ = bus.AnswerPipes(ctx, b, "switchyard.test.n.echo", func(_ context.Context, who string) (func(context.Context, *bus.Pipe), error) {
			if who != "me" {
				return nil, fmt.Errorf("%s may not", who)
			}
			return func(ctx context.Context, p *bus.Pipe) {
				for {
					packet, err := p.Receive(ctx)
					if err != nil || p.Send(ctx, append([]byte("echo "), packet...)) != nil || bytes.Equal(packet, []byte("last")) {
						return
					}
				}
			}, nil
		})
	})
	p := dial(ctx, t, b, "me")
	for i := range 300 {
		packet := []byte(fmt.Sprint("packet ", i))
		if err := p.Send(ctx, packet); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Receive(ctx); err != nil || string(got) != "echo "+string(packet) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := p.Send(ctx, []byte("last")); err != nil {
		t.Fatal(err)
	}
	_, _ = p.Receive(ctx)
	if _, err := p.Receive(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	if err := p.Send(ctx, []byte("x")); !errors.Is(err, bus.ErrCut) {
		t.Errorf("sent to nobody: %v", err)
	}
	if _, err := bus.Dial(ctx, b, "switchyard.test.n.echo", "you"); err == nil || err.Error() != "the test of node n: you may not" {
		t.Errorf("refused: %v", err)
	}
	if _, err := bus.Dial(ctx, b, "switchyard.nobody.n.echo", "me"); !errors.Is(err, bus.ErrAway) {
		t.Errorf("nobody answers: %v", err)
	}
}

// dial waits until the service answers.
func dial(ctx context.Context, t *testing.T, b *bus.Bus, who string) *bus.Pipe {
	t.Helper()
	for {
		p, err := bus.Dial(ctx, b, "switchyard.test.n.echo", who)
		if err == nil {
			return p
		}
		if !errors.Is(err, bus.ErrAway) {
			t.Fatal(err)
		}
	}
}
