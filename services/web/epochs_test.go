package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// A person who asks for a lot at once reads two at a time, and leaves room for others.
func TestAPersonReadsSoManyAtOnce(t *testing.T) {
	r := newReading()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running conc.WaitGroup
	defer running.Wait()
	var now, most atomic.Int64
	began, hold := make(chan struct{}, 60), make(chan struct{})
	for range 60 {
		running.Go(func() {
			_ = r.do(ctx, "bob", func() error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				began <- struct{}{}
				<-hold
				return nil
			})
		})
	}
	<-began
	<-began
	if err := r.do(t.Context(), "ann", func() error { return nil }); err != nil {
		t.Errorf("another person: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := r.do(ended, "bob", func() error { return nil }); asProblem(err).Status != http.StatusTooManyRequests {
		t.Errorf("one that waits too long: %v", err)
	}
	close(hold)
	running.Wait()
	if most.Load() > readsOfPerson || len(r.people) != 0 {
		t.Errorf("%d at once, %d people are remembered", most.Load(), len(r.people))
	}
}

func TestEpochsAreServedInPages(t *testing.T) {
	b := newBench(t)
	b.serve()
	agent := bustest.Connect(t, b.server, "nodeagent")
	const epochs = 300
	submitted := event.OnceFact("long", event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: "long"}})
	if err := b.bus.Publish(b.ctx, submitted); err != nil {
		t.Fatal(err)
	}
	var all []event.Fact
	for i := range epochs {
		e := event.EpochEnded{Attempt: 1, EpochsDone: i + 1, Metrics: map[string]float64{}}
		for m := range 60 {
			e.Metrics[strings.Repeat("m", 120)+fmt.Sprint(m)] = 1
		}
		all = append(all, event.JobFact("long", event.FactEpochEnded, fmt.Sprintf("attempt/1/epoch/%d", i+1), e))
	}
	if err := agent.PublishTogether(b.ctx, all...); err != nil {
		t.Fatal(err)
	}
	if status, some := ask[view.Epochs](b, "GET", "/api/v1/jobs/long/epochs"); status != http.StatusOK || !some.Thinned || some.Epochs[len(some.Epochs)-1].EpochsDone != epochs {
		t.Errorf("%d, %d epochs", status, len(some.Epochs))
	}
	seen := 0
	for after, more := 0, true; more; more = after > 0 {
		status, page := ask[view.Epochs](b, "GET", fmt.Sprintf("/api/v1/jobs/long/epochs?after=%d", after))
		if status != http.StatusOK || len(page.Epochs) == 0 {
			t.Fatalf("%d, %d epochs", status, len(page.Epochs))
		}
		seen += len(page.Epochs)
		after = page.Next
	}
	if seen != epochs {
		t.Errorf("%d epochs in all pages, want %d", seen, epochs)
	}
	if status, p := ask[api.Problem](b, "GET", "/api/v1/jobs/long/epochs?after=x"); status != http.StatusBadRequest {
		t.Errorf("%d %+v", status, p)
	}
}
