package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

// A large answer is packed, and one too large even then comes back as an error in words.
func TestAnswersOfAnySize(t *testing.T) {
	const subject = "switchyard.test.echo"
	s := bustest.Start(t)
	asking, answering := bustest.Connect(t, s, "asking"), bustest.Connect(t, s, "answering")
	ctx, cancel := context.WithCancel(within(t))
	var serving conc.WaitGroup
	defer serving.Wait()
	defer cancel()
	noise := make([]byte, 4<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	ready := make(chan struct{})
	serving.Go(func() {
		close(ready)
		_ = bus.Answer(ctx, answering, subject, func(_ context.Context, bytes int) ([]byte, error) {
			if bytes > 0 {
				return make([]byte, bytes), nil
			}
			return noise, nil
		})
	})
	<-ready
	for _, bytes := range []int{1, 100 << 10, 3 << 20} {
		answer, err := askOnceServed(ctx, asking, subject, bytes)
		if err != nil || len(answer) != bytes {
			t.Errorf("%d bytes: an answer of %d, %v", bytes, len(answer), err)
		}
	}
	if _, err := ask(ctx, asking, subject, 0); err == nil || !strings.Contains(err.Error(), "does not fit into one message") {
		t.Errorf("an answer that is too large: %v", err)
	}
}

// A bus of the operator may take smaller messages than the embedded one: the caller gets an error at once.
func TestAnAnswerTooLargeForThisBusIsAnError(t *testing.T) {
	const subject = "switchyard.test.echo"
	ctx, cancel := context.WithCancel(within(t))
	var serving conc.WaitGroup
	defer serving.Wait()
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: bustest.StartForeign(t, 64<<10), Name: "asking"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	serving.Go(func() {
		_ = bus.Answer(ctx, b, subject, func(_ context.Context, bytes int) ([]byte, error) { return make([]byte, bytes), nil })
	})
	_, err = askOnceServed(ctx, b, subject, 80<<10)
	if err == nil || !strings.Contains(err.Error(), "this bus takes at most 65536") {
		t.Errorf("an answer that is too large for this bus: %v", err)
	}
}

// The asker can tell its own mistake from trouble of the answerer, on the bus and behind the service web.
func TestTheKindOfARefusalReachesTheAsker(t *testing.T) {
	const subject = "switchyard.executor.n1.files"
	s := bustest.Start(t)
	asking, answering := bustest.Connect(t, s, "asking"), bustest.Connect(t, s, "answering")
	ctx, cancel := context.WithCancel(within(t))
	var serving conc.WaitGroup
	defer serving.Wait()
	defer cancel()
	errs := []error{
		rpc.Missing("no files of job %s here", "a"), fmt.Errorf("open the log: %w", fs.ErrNotExist), rpc.Invalid("%q: want a file", "x"), errors.New("the disk is broken"),
	}
	serving.Go(func() {
		_ = bus.Answer(ctx, answering, subject, func(_ context.Context, i int) ([]byte, error) { return nil, errs[i] })
	})
	for i, kind := range []error{fs.ErrNotExist, fs.ErrNotExist, fs.ErrInvalid, nil} {
		_, err := askOnceServed(ctx, asking, subject, i)
		if err == nil || err.Error() != "the executor of node n1: "+errs[i].Error() {
			t.Errorf("the refusal %q arrived as %v", errs[i], err)
		}
		for _, other := range []error{fs.ErrNotExist, fs.ErrInvalid} {
			if errors.Is(err, other) != errors.Is(kind, other) {
				t.Errorf("%v: is it %q: %v", err, other, errors.Is(err, other))
			}
		}
	}
}

// askOnceServed asks again while the answering side is not subscribed yet.
func askOnceServed(ctx context.Context, b *bus.Bus, subject string, bytes int) ([]byte, error) {
	answer, err := ask(ctx, b, subject, bytes)
	for err != nil && strings.Contains(err.Error(), "not running") && ctx.Err() == nil {
		answer, err = ask(ctx, b, subject, bytes)
	}
	return answer, err
}

func ask(ctx context.Context, b *bus.Bus, subject string, bytes int) ([]byte, error) {
	return bus.Ask[int, []byte](ctx, b, subject, bytes)
}
