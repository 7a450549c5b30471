package bus_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// relayed is a server with a relay, and the agents of its nodes.
type relayed struct {
	t      *testing.T
	agents map[string]*bus.Bus
	bus    *bus.Bus
}

func newRelayed(t *testing.T, allow func(ctx context.Context, node string, m bus.Message) error, nodes ...string) *relayed {
	t.Helper()
	return relayedBy(t, func(ctx context.Context, b *bus.Bus) error { return b.Relay(ctx, allow) }, nodes...)
}

func relayedBy(t *testing.T, run func(context.Context, *bus.Bus) error, nodes ...string) *relayed {
	t.Helper()
	server, keys := bustest.StartGuarded(t, nodes...)
	r := &relayed{t, map[string]*bus.Bus{}, bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: "admission", Keys: string(keys)})}
	ctx, stop := context.WithCancel(t.Context())
	var relay conc.WaitGroup
	t.Cleanup(func() { stop(); relay.Wait() })
	relay.Go(func() {
		if err := run(ctx, r.bus); err != nil {
			t.Error(err)
		}
	})
	for _, node := range nodes {
		folder := filepath.Join(string(keys), "nodes", node)
		r.agents[node] = bustest.ConnectWith(t, bus.Config{URL: server.URL(), Name: identity.Agent, Keys: folder})
	}
	return r
}

func anyReport(context.Context, string, bus.Message) error { return nil }

func measured(node string, n int) event.Fact {
	return event.Fact{
		Subject: event.Subject{Entity: "energy", ID: node, Fact: event.FactMeasured, Version: 1}, Key: fmt.Sprintf("node/%s/boot/%d", node, n), Body: event.Measured{Node: train.NodeID(node)},
	}
}

// If the disk takes less than agents report, a relay refuses what it has no room for. Agents try again.
func TestARelayWithoutRoomRefusesReports(t *testing.T) {
	t.Parallel()
	r := relayedBy(t, func(ctx context.Context, b *bus.Bus) error { return bus.RelayOne(ctx, b, anyReport) }, "n1", "n2")
	waiting, release := bus.HoldRelayed(r.bus, event.StreamSamples)
	publishing := pool.New().WithErrors()
	publishing.Go(func() error { return r.agents["n1"].Publish(t.Context(), measured("n1", 0)) })
	for range tick.Every(within(t), time.Millisecond) {
		if callers, _ := waiting(); callers == 1 {
			break
		}
	}
	refused := func(err error) bool { return err != nil && strings.Contains(err.Error(), "too many reports wait") }
	var err error
	for range tick.Every(within(t), time.Millisecond) { // on a busy machine, the refusal may come late
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		err = r.agents["n2"].Publish(short, measured("n2", 0))
		cancel()
		if err == nil || refused(err) {
			break
		}
	}
	if !refused(err) {
		t.Errorf("a second report: %v", err)
	}
	if callers, _ := waiting(); callers != 1 {
		t.Errorf("%d reports wait", callers)
	}
	publishing.Go(func() error { return r.agents["n2"].Publish(t.Context(), measured("n2", 0)) })
	release()
	if err := publishing.Wait(); err != nil {
		t.Error(err)
	}
}

// Many agents publish facts at the same time, each fact twice. Each is stored once, and those of one agent in order.
func TestManyAgentsReportThroughARelay(t *testing.T) {
	t.Parallel()
	const many, each = 30, 10
	nodes := make([]string, many)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("n%d", i)
	}
	r := newRelayed(t, anyReport, nodes...)
	stating := pool.New().WithErrors()
	for _, node := range nodes {
		stating.Go(func() error {
			for n := range each {
				if err := r.agents[node].Publish(t.Context(), measured(node, n), measured(node, max(n-1, 0))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := stating.Wait(); err != nil {
		t.Fatal(err)
	}
	stored := map[string]int{}
	err := r.bus.Stored(t.Context(), event.StreamSamples, nil, time.Time{}, func(m bus.Message) {
		if want := measured(m.Parsed.ID, stored[m.Parsed.ID]).Key; m.Key != want {
			t.Errorf("%s is stored, want %s", m.Key, want)
		}
		stored[m.Parsed.ID]++
	})
	if err != nil || len(stored) != many {
		t.Errorf("facts of %d nodes: %v", len(stored), err)
	}
	for node, n := range stored {
		if n != each {
			t.Errorf("%d facts of %s", n, node)
		}
	}
}

// An agent gets the same answers to conflicts, repetitions and refusals as without a relay, for one message and for
// many at once.
func TestARelayAnswersAsTheServerDoes(t *testing.T) {
	t.Parallel()
	for _, together := range []int{1, 20} {
		t.Run(fmt.Sprint(together, " at once"), func(t *testing.T) {
			t.Parallel()
			r := newRelayed(t, func(_ context.Context, node string, m bus.Message) error {
				if m.Parsed.ID == "foreign" {
					return fmt.Errorf("%w: not on %s", bus.ErrForeign, node)
				}
				return nil
			}, "n1")
			agent := r.agents["n1"]
			reports, err := bus.OpenKV(t.Context(), agent, contract.Reports)
			if err != nil {
				t.Fatal(err)
			}
			asking := pool.New().WithErrors()
			for i := range together {
				asking.Go(func() error { return r.changeTwice(agent, reports, train.JobID(fmt.Sprintf("j%d", i))) })
			}
			if err := asking.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (r *relayed) changeTwice(agent *bus.Bus, reports *bus.KV[train.AttemptReport], job train.JobID) error {
	key, ctx := contract.ReportKey(job, 1), r.t.Context()
	first, err := reports.Swap(ctx, key, train.AttemptReport{Job: job, Attempt: 1}, 0)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := reports.Swap(ctx, key, train.AttemptReport{Job: job, Attempt: 1, Spoke: true}, first); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if _, err := reports.Swap(ctx, key, train.AttemptReport{Job: job, Attempt: 1}, first); !errors.Is(err, bus.ErrConflict) {
		return fmt.Errorf("a second update of revision %d: %w", first, err)
	}
	fact := event.JobFact(job, event.FactEpochEnded, "attempt/1/epoch/1", event.EpochEnded{Attempt: 1, EpochsDone: 1})
	if err := agent.Publish(ctx, fact, fact); err != nil {
		return fmt.Errorf("repeat: %w", err)
	}
	if err := agent.Publish(ctx, event.JobFact("foreign", event.FactEpochEnded, string(job), event.EpochEnded{Attempt: 1})); !errors.Is(err, bus.ErrForeign) {
		return fmt.Errorf("about a job elsewhere: %w", err)
	}
	stored := 0
	err = r.bus.Stored(ctx, event.StreamJobs, []string{fact.Subject.String()}, time.Time{}, func(bus.Message) { stored++ })
	if err != nil || stored != 1 {
		return fmt.Errorf("%d facts of %s: %w", stored, job, err)
	}
	return nil
}
