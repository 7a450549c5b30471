package bus_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestUsage(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "admission")
	if err := b.Publish(ctx, event.OnceFact("j1", event.FactAdmitted, "admitted", event.Admitted{Position: 1})); err != nil {
		t.Fatal(err)
	}
	all, err := b.Usage(ctx)
	if err != nil || len(all) != len(event.Streams())+len(contract.Buckets()) {
		t.Fatalf("%+v, error %v", all, err)
	}
	for _, u := range all {
		switch u.Name {
		case event.StreamJobs:
			if u.Bytes == 0 || u.MaxBytes != 4<<30 || !u.Refuses || u.AlmostFull() {
				t.Errorf("%+v", u)
			}
		case event.StreamSamples:
			if u.Refuses {
				t.Errorf("%+v", u)
			}
		case string(contract.Jobs):
			if u.MaxBytes != 1<<30 || !u.Refuses {
				t.Errorf("%+v", u)
			}
		}
	}
	if !(bus.Usage{Bytes: 8, MaxBytes: 10, Refuses: true}).AlmostFull() || (bus.Usage{Bytes: 9, MaxBytes: 10}).AlmostFull() || (bus.Usage{Bytes: 9}).Share() != 0 {
		t.Error("fullness is reported wrongly")
	}
}

// A counter that begins with what it counts first does not grow by that, and alerts watch growth.
func TestAConsumerCountsFromZero(t *testing.T) {
	var mu sync.Mutex
	var counted []string
	meter := &bus.Meter{SetAside: func(consumer string, messages int) {
		mu.Lock()
		defer mu.Unlock()
		if messages == 0 {
			counted = append(counted, consumer)
		}
	}}
	b := bustest.ConnectWith(t, bus.Config{URL: bustest.Start(t).URL(), Name: "admission", Meter: meter})
	records, err := bus.OpenKV(within(t), b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	var reading conc.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() {
		_ = b.Consume(ctx, bus.Consumer{Name: "one", Stream: event.StreamJobs, Handle: func(context.Context, bus.Message) ([]event.Fact, error) { return nil, nil }})
	})
	reading.Go(func() { _ = records.Watch(ctx, func(bus.Entry[train.Job], bool) {}, nil) })
	for range tick.Every(ctx, 20*time.Millisecond) {
		mu.Lock()
		done := slices.Contains(counted, "one") && slices.Contains(counted, "bucket jobs")
		mu.Unlock()
		if done {
			return
		}
	}
	t.Errorf("counted from 0: %v", counted)
}
