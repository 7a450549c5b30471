package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
)

func publishSteps(t *testing.T, b *bus.Bus, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		err := b.Publish(within(t), event.Fact{
			Subject: event.Subject{Entity: "sample", ID: "j1", Fact: event.FactStepped, Version: 1},
			Key:     fmt.Sprintf("step/%d", n), Body: event.Stepped{Job: "j1", Step: n},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// reading runs a batch consumer until stop is called.
func reading(b *bus.Bus, handle func([]bus.Message) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running conc.WaitGroup
	running.Go(func() {
		_ = b.ConsumeBatches(ctx, bus.BatchConsumer{
			Name: "batches", Stream: event.StreamSamples, Filters: []string{"yard.sample.>"}, Size: 4, Wait: 50 * time.Millisecond,
			Handle: func(_ context.Context, batch []bus.Message) error { return handle(batch) },
		})
	})
	return func() { cancel(); running.Wait() }
}

func TestBatchesComeInOrderUntilTheyAreTaken(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "energy")
	publishSteps(t, b, 1, 10)
	seen, tries, refused := make(chan uint64, 100), 0, errors.New("not yet")
	stop := reading(b, func(batch []bus.Message) error {
		if tries++; tries%2 == 1 {
			return refused
		}
		for _, m := range batch {
			seen <- m.Sequence
		}
		return nil
	})
	defer stop()
	expect(t, seen, 1, 10)
}

func expect(t *testing.T, seen <-chan uint64, from, to uint64) {
	t.Helper()
	ctx := within(t)
	for want := from; want <= to; want++ {
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("message %d, want %d", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("message %d never came", want)
		}
	}
}

func TestWhatADeadReaderHadComesAgainFirst(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "energy")
	publishSteps(t, b, 1, 6)
	first, held := make(chan []uint64, 1), errors.New("held until the end")
	stop := reading(b, func(batch []bus.Message) error {
		var had []uint64
		for _, m := range batch {
			had = append(had, m.Sequence)
		}
		select {
		case first <- had:
		default:
		}
		return held
	})
	had := <-first
	stop()
	if !slices.Equal(had, []uint64{1, 2, 3, 4}) {
		t.Fatalf("first batch %v, want 1 to 4", had)
	}
	publishSteps(t, b, 7, 8)
	seen := make(chan uint64, 100)
	stop = reading(b, func(batch []bus.Message) error {
		for _, m := range batch {
			seen <- m.Sequence
		}
		return nil
	})
	expect(t, seen, 1, 8)
	stop()
	// Acknowledged messages do not come again.
	publishSteps(t, b, 9, 9)
	stop = reading(b, func(batch []bus.Message) error {
		for _, m := range batch {
			seen <- m.Sequence
		}
		return nil
	})
	defer stop()
	expect(t, seen, 9, 9)
}

// TestAnUnusableMessageLeavesItsBatch: the messages that no repetition makes good are set aside, one by a panic; all
// others are handled, in order.
func TestAnUnusableMessageLeavesItsBatch(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "energy")
	publishSteps(t, b, 1, 8)
	seen := make(chan uint64, 100)
	stop := reading(b, func(batch []bus.Message) error {
		for _, m := range batch {
			switch m.Sequence {
			case 3:
				panic("cannot be")
			case 6:
				return fmt.Errorf("%w: no number", bus.ErrPoison)
			}
		}
		for _, m := range batch {
			seen <- m.Sequence
		}
		return nil
	})
	defer stop()
	for _, part := range [][2]uint64{{1, 2}, {4, 5}, {7, 8}} {
		expect(t, seen, part[0], part[1])
	}
	var aside []uint64
	err := b.Stored(within(t), event.StreamPoison, nil, time.Time{}, func(m bus.Message) {
		body, err := event.Decode[event.Poisoned](m.Data)
		if err != nil || body.Consumer != "batches" {
			t.Errorf("%+v, error %v", body, err)
		}
		aside = append(aside, body.Sequence)
	})
	if err != nil || !slices.Equal(aside, []uint64{3, 6}) {
		t.Errorf("set aside %v, error %v; want 3 and 6", aside, err)
	}
}
