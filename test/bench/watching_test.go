package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// watchersVariable makes this program play the agents of many nodes that watch what they watch, and do nothing else.
const watchersVariable = "SWITCHYARD_BENCH_WATCHERS"

// watchersOptions is the value of watchersVariable.
type watchersOptions struct {
	URL, Keys string
	Nodes     int
}

// What the process that plays watchers says: all have their lists, and all have seen a change.
const (
	sayListed = "listed"
	saySeen   = "seen"
)

// playWatchers works until it is killed.
func playWatchers(text string) int {
	var o watchersOptions
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = watchAll(context.Background(), o)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// watchers are the agents, each with a connection and the key of its own.
type watchers struct {
	watchersOptions
	listed sync.WaitGroup
	seen   atomic.Int64
}

// watchAll plays the agents.
func watchAll(ctx context.Context, o watchersOptions) error {
	w := &watchers{watchersOptions: o}
	loops := make([][]func(context.Context) error, o.Nodes)
	starting := pool.New().WithErrors().WithMaxGoroutines(writers)
	for i := range loops {
		starting.Go(func() (err error) {
			loops[i], err = w.open(ctx, string(machine(i).ID))
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	for _, loop := range slices.Concat(loops...) {
		w.listed.Add(1)
		work.Go(loop)
	}
	w.listed.Wait()
	fmt.Println(sayListed)
	return work.Wait()
}

// open returns the watches of an agent.
func (w *watchers) open(ctx context.Context, node string) ([]func(context.Context) error, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: w.URL, Keys: filepath.Join(w.Keys, "nodes", node), Name: identity.Agent})
	if err != nil {
		return nil, err
	}
	last := 0
	onAttempt := func(e bus.Entry[train.Attempt], _ bool) {
		if e.Value.Number == last {
			return // the bucket was listed again
		}
		if last = e.Value.Number; w.seen.Add(1) == int64(w.Nodes)*int64(last) {
			fmt.Println(saySeen)
		}
	}
	var loops []func(context.Context) error
	err = errors.Join(
		watch(ctx, w, b, contract.Attempts, &loops, onAttempt), watch(ctx, w, b, contract.Tunings, &loops, nil), watch(ctx, w, b, contract.Settings, &loops, nil),
		watch(ctx, w, b, contract.PlacedPods, &loops, nil), watch(ctx, w, b, contract.PowerLimits, &loops, nil),
		watch(ctx, w, b, contract.Nodes, &loops, nil), watch(ctx, w, b, contract.Probes, &loops, nil, node),
	)
	return loops, err
}

// watch adds a loop that watches a bucket.
func watch[T any](ctx context.Context, w *watchers, b *bus.Bus, bucket contract.Bucket[T], loops *[]func(context.Context) error, f func(bus.Entry[T], bool), patterns ...string) error {
	kv, err := bus.OpenKV(ctx, b, bucket)
	if f == nil {
		f = func(bus.Entry[T], bool) {}
	}
	*loops = append(*loops, func(ctx context.Context) error { return kv.Watch(ctx, f, sync.OnceFunc(w.listed.Done), patterns...) })
	return err
}

// BenchmarkWatchingAgents is what the agents of SCALE_NODES nodes (1,000) of Kubernetes cost the bus while nothing
// changes, each with the key of its node and seven watches: requests a second and processor time of the server in
// WATCH_SECONDS (30) each, and how long a change of an attempt takes until all agents have it. The agents are a process
// of their own.
func BenchmarkWatchingAgents(b *testing.B) {
	nodes, window := number(b, "SCALE_NODES", "1000"), time.Duration(number(b, "WATCH_SECONDS", "30"))*time.Second
	for b.Loop() {
		names := make([]string, nodes)
		for i := range names {
			names[i] = string(machine(i).ID)
		}
		server, keys := bustest.StartGuarded(b, names...)
		operator := bustest.ConnectWith(b, bus.Config{URL: server.URL(), Keys: string(keys), Name: "cli"})
		said := startWatchers(b, watchersOptions{server.URL(), string(keys), nodes})
		said.await(sayListed)
		tick.Pause(b.Context(), window) // what follows a start is over
		before, at := seconds(b, os.Getpid()), time.Now()
		tick.Pause(b.Context(), window)
		b.ReportMetric((seconds(b, os.Getpid())-before)/time.Since(at).Seconds(), "server-cores")
		b.ReportMetric(requests(b, server.URL(), keys, window), "requests/s")
		attempts, err := bus.OpenKV(b.Context(), operator, contract.Attempts)
		if err != nil {
			b.Fatal(err)
		}
		const changes = 10
		at = time.Now()
		for i := range changes {
			if err := attempts.Put(b.Context(), "job-1", train.Attempt{Job: "job-1", Number: i + 1}); err != nil {
				b.Fatal(err)
			}
			said.await(saySeen)
		}
		b.ReportMetric(time.Since(at).Seconds()/changes*1000, "change-ms")
		b.ReportMetric(0, "ns/op")
	}
}

// requests counts the requests to JetStream a second, which the operator sees too.
func requests(b *testing.B, url string, keys identity.Keys, window time.Duration) float64 {
	b.Helper()
	key, err := nats.NkeyOptionFromSeed(keys.File(identity.Operator))
	if err != nil {
		b.Fatal(err)
	}
	nc, err := nats.Connect(url, key)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	var n atomic.Int64
	if _, err := nc.Subscribe("$JS.API.>", func(*nats.Msg) { n.Add(1) }); err != nil {
		b.Fatal(err)
	}
	tick.Pause(b.Context(), window)
	return float64(n.Load()) / window.Seconds()
}

// words are the lines that a process says.
type words struct {
	b     *testing.B
	lines *bufio.Scanner
}

func (w words) await(word string) {
	w.b.Helper()
	for w.lines.Scan() {
		if w.lines.Text() == word {
			return
		}
	}
	w.b.Fatalf("the process ended before it said %q: %v", word, w.lines.Err())
}

// startWatchers starts the process that plays the agents.
func startWatchers(b *testing.B, o watchersOptions) words {
	b.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), self)
	cmd.Env, cmd.Stderr = append(os.Environ(), watchersVariable+"="+string(text)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return words{b, bufio.NewScanner(out)}
}
