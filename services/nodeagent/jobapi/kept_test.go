package jobapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
)

// gate is admission: it takes no fact until facts of all jobs have come, which an agent that delivers one after another
// never sends. It also refuses one epoch in the middle once.
type gate struct {
	mu      sync.Mutex
	missing map[string]bool
	refused bool
}

func (g *gate) allow(_ context.Context, _ string, m bus.Message) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.Parsed.Fact != event.FactEpochEnded {
		return nil // the record of an attempt
	}
	if delete(g.missing, m.Parsed.ID); len(g.missing) > 0 {
		return errors.New("not all jobs have come")
	}
	if !g.refused && strings.HasSuffix(m.Key, "job/j3/attempt/1/epoch/2") {
		g.refused = true
		return errors.New("not now")
	}
	return nil
}

// Behind a busy relay each message takes a tenth of a second. Attempts do not wait for each other, and the facts of
// each are stored in order.
func TestTheOutboxDeliversForAllAttemptsAtOnce(t *testing.T) {
	const jobs, epochs = 8, 5
	server, keys := bustest.StartGuarded(t, "n1")
	admission := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "admission", Keys: string(keys)})
	agent := bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: identity.Agent, Keys: filepath.Join(string(keys), "nodes", "n1")})
	reports, err := bus.OpenKV(within(t), agent, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	box, err := outbox.Open(dir, 1000, log)
	if err != nil {
		t.Fatal(err)
	}
	g, want := &gate{missing: map[string]bool{}}, map[string][]int{}
	for epoch := range epochs {
		for i := range jobs {
			job := train.JobID(fmt.Sprint("j", i))
			g.missing[string(job)], want[string(job)] = true, append(want[string(job)], epoch+1)
			f := event.JobFact(job, event.FactEpochEnded, fmt.Sprintf("attempt/1/epoch/%d", epoch+1), event.EpochEnded{Attempt: 1, EpochsDone: epoch + 1})
			d, err := newEffect(&f, time.Now(), train.AttemptReport{Job: job, Attempt: 1, EpochsDone: epoch + 1})
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(d)
			if err = errors.Join(err, box.Put(d.key(), data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var running conc.WaitGroup
	r := &recorder{bus: agent, reports: reports.Own(), box: box, log: log}
	running.Go(func() { _ = admission.Relay(ctx, g.allow) })
	running.Go(func() { _ = box.Run(ctx, r.DeliverKept) })
	got, all := map[string][]int{}, jobs*epochs
	running.Go(func() {
		_ = admission.Follow(ctx, event.StreamJobs, nil, 1, func(m bus.Message) {
			ended, err := event.Decode[event.EpochEnded](m.Data)
			if err != nil {
				t.Error(err)
			}
			got[m.Parsed.ID] = append(got[m.Parsed.ID], ended.EpochsDone)
			all--
			for all == 0 && box.Len() > 0 && ctx.Err() == nil {
				tick.Pause(ctx, time.Millisecond)
			}
			if all == 0 {
				cancel()
			}
		})
	})
	running.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("epochs in the order in which they were stored (-want +got):\n%s", diff)
	}
	for job := range want {
		if e, err := reports.Get(within(t), contract.ReportKey(train.JobID(job), 1)); err != nil || e.Value.EpochsDone != epochs {
			t.Errorf("%s: %+v, %v", job, e.Value, err)
		}
	}
	if !g.refused {
		t.Error("no epoch was refused")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("%q are left", files)
	}
}
