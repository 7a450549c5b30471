package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// persevere repeats what may fail while a stream has no leader.
func persevere(ctx context.Context, t *testing.T, what string, f func() error) {
	t.Helper()
	for {
		err := f()
		if err == nil || errors.Is(err, bus.ErrConflict) { // an answer that was lost
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestALostServerOfThreeLosesNothing: with three replicas facts and records survive the loss of a server, and work goes
// on.
func TestALostServerOfThreeLosesNothing(t *testing.T) {
	t.Parallel()
	servers := bustest.StartCluster(t, 3, "")
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: strings.Join(urls, ","), Name: "admission", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	jobs, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	store := func(id train.JobID) {
		t.Helper()
		fact := event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: string(id)}})
		persevere(ctx, t, "publish", func() error { return b.Publish(ctx, fact) })
		persevere(ctx, t, "write", func() error {
			_, err := jobs.Swap(ctx, string(id), train.Job{ID: id}, 0)
			return err
		})
	}
	store("before")
	servers[0].Stop()
	store("after")
	for _, id := range []train.JobID{"before", "after"} {
		persevere(ctx, t, "read", func() error {
			_, err := b.Last(ctx, event.StreamJobs, event.JobSubject(id, event.FactSubmitted))
			return err
		})
		persevere(ctx, t, "read", func() error {
			_, err := jobs.Get(ctx, string(id))
			return err
		})
	}
}

// Three servers keep the streams, and each node's agent has an account of its own. The leader of the attempts goes
// away: the agent that was connected to it, and the one that was not, hear of later changes, and store their own facts.
func TestAgentsWorkOnWhenALeaderGoes(t *testing.T) {
	t.Parallel()
	keys, accounts := bustest.Accounts(t, "n1", "n2")
	servers := map[string]*busserver.Server{}
	var urls []string
	for i, s := range bustest.StartCluster(t, 3, accounts) {
		servers[fmt.Sprintf("bus-%d", i)] = s
		urls = append(urls, s.URL())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	connect := func(name, folder string, first string) *bus.Bus {
		t.Helper()
		order := slices.Insert(slices.Clone(urls), 0, first)
		b, err := bus.Connect(ctx, bus.Config{URL: strings.Join(order, ","), Name: name, Keys: folder, Replicas: 3, Options: []nats.Option{nats.DontRandomize()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	operator := connect("operator", string(keys), urls[0])
	if err := operator.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	attempts, err := bus.OpenKV(ctx, operator, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	leader := leaderOf(ctx, t, urls, keys, "KV_"+string(contract.Attempts))
	elsewhere := urls[slices.IndexFunc(urls, func(u string) bool { return u != servers[leader].URL() })]
	agents := map[string]*bus.Bus{
		"n1": connect(identity.Agent, string(keys)+"/nodes/n1", servers[leader].URL()), "n2": connect(identity.Agent, string(keys)+"/nodes/n2", elsewhere),
	}
	read := map[string]*bus.KV[train.Attempt]{}
	seen := map[string]chan int{}
	watching, stop := context.WithCancel(ctx)
	var listening conc.WaitGroup
	defer listening.Wait()
	defer stop()
	admission := connect("admission", string(keys), strings.Join(urls, ","))
	listening.Go(func() { _ = admission.Relay(watching, anyReport) })
	for node, agent := range agents {
		seen[node] = make(chan int, 100)
		theirs, err := bus.OpenKV(ctx, agent, contract.Attempts)
		if err != nil {
			t.Fatal(err)
		}
		read[node] = theirs
		listening.Go(func() {
			_ = theirs.Watch(watching, func(e bus.Entry[train.Attempt], _ bool) { seen[node] <- e.Value.Number }, nil)
		})
	}
	change := func(number int) {
		t.Helper()
		persevere(ctx, t, "write", func() error { return attempts.Put(ctx, "job", train.Attempt{Job: "job", Number: number}) })
		for node, numbers := range seen {
			for got := 0; got < number; {
				select {
				case got = <-numbers:
				case <-ctx.Done():
					t.Fatalf("the agent of %s has not heard of attempt %d", node, number)
				}
			}
		}
		for node, theirs := range read {
			persevere(ctx, t, "read", func() error {
				e, err := theirs.Get(ctx, "job")
				if err == nil && e.Value.Number != number {
					t.Errorf("the agent of %s reads attempt %d, want %d", node, e.Value.Number, number)
				}
				return err
			})
		}
		for node, agent := range agents {
			persevere(ctx, t, "publish", func() error {
				return agent.Publish(ctx, event.Fact{
					Subject: event.Subject{Entity: "energy", ID: node, Fact: event.FactMeasured, Version: 1}, Key: fmt.Sprintf("node/%s/b/%d", node, number), Body: event.Measured{},
				})
			})
		}
	}
	change(1)
	servers[leader].Stop()
	for number := range 3 {
		change(number + 2)
	}
	if now := leaderOf(ctx, t, urls, keys, "KV_"+string(contract.Attempts)); now == leader {
		t.Errorf("%s leads, which was stopped", now)
	}
}

// leaderOf returns the name of the server that leads a stream.
func leaderOf(ctx context.Context, t *testing.T, urls []string, keys identity.Keys, stream string) (name string) {
	t.Helper()
	js := bustest.JetStream(t, strings.Join(urls, ","), bustest.Key(t, keys, identity.Operator))
	persevere(ctx, t, "look at the stream", func() error {
		s, err := js.Stream(ctx, stream)
		if err == nil {
			name = s.CachedInfo().Cluster.Leader
		}
		return err
	})
	return name
}
