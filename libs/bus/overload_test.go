package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

const (
	// offering is how long each load is offered.
	offering = 5 * time.Second
	// publishers publish beside each other, each the next one as soon as it is due and the last one is acknowledged.
	publishers = 3000
)

// publisher stores one heartbeat.
type publisher func(ctx context.Context, n int) error

// BenchmarkOverload offers heartbeats of jobs to the bus at 0.5, 1, 2 and 4 times its capacity. It reports how many are
// acknowledged a second, also as a share of the capacity just before: what a third of the publishers store that never
// pause. Every tenth comes twice. Bare is a client of the same server that sends one message for each.
func BenchmarkOverload(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(testing.TB) publisher
	}{{"bus", ofBus}, {"bare", bare}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				publish := c.open(b)
				next := &atomic.Int64{}
				for _, times := range []float64{0.5, 1, 2, 4} {
					capacity := offer(b.Context(), publish, next, publishers/3, 0)
					every := time.Duration(publishers / (times * capacity) * float64(time.Second))
					accepted := offer(b.Context(), publish, next, publishers, every)
					b.ReportMetric(accepted, fmt.Sprintf("%gx-accepted/s", times))
					b.ReportMetric(accepted/capacity, fmt.Sprintf("%gx-of-capacity", times))
				}
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// offer has publishers each publish a heartbeat in every interval, and returns how many are acknowledged a second.
func offer(ctx context.Context, publish publisher, next *atomic.Int64, publishers int, every time.Duration) float64 {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(offering))
	defer cancel()
	var acknowledged atomic.Int64
	var side conc.WaitGroup
	for p := range publishers {
		side.Go(func() {
			due := began.Add(every * time.Duration(p) / time.Duration(publishers))
			for tick.Pause(ctx, time.Until(due)) {
				n := int(next.Add(1))
				if n%10 == 0 {
					n--
				}
				if publish(ctx, n) == nil {
					acknowledged.Add(1)
				}
				due = due.Add(every)
			}
		})
	}
	side.Wait()
	return float64(acknowledged.Load()) / offering.Seconds()
}

func heartbeat(n int) event.Fact {
	job := fmt.Sprintf("job-%05d", n%2000)
	return event.Fact{
		Subject: event.Subject{Entity: "sample", ID: job, Fact: event.FactStepped, Version: 1}, Key: fmt.Sprintf("job/%s/attempt/1/step/%d", job, n),
		Body: event.Stepped{Attempt: 1, Step: n, Steps: 10, StepSeconds: 0.1, Samples: 320},
	}
}

func ofBus(t testing.TB) publisher {
	conn := bustest.Connect(t, bustest.Start(t), "x")
	return func(ctx context.Context, n int) error { return conn.Publish(ctx, heartbeat(n)) }
}

func bare(t testing.TB) publisher {
	server := bustest.Start(t)
	bustest.Connect(t, server, "x")
	js := bustest.JetStream(t, server.URL())
	return func(ctx context.Context, n int) error {
		fact := heartbeat(n)
		body, err := fact.Encode()
		if err != nil {
			return err
		}
		_, err = js.Publish(ctx, fact.Subject.String(), body, jetstream.WithMsgID(fact.Key))
		return err
	}
}
