package jobapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/attemptindex"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
)

const (
	node       = train.NodeID("n1")
	capability = "job-1"
	token      = "t0k3n"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// bench is a real API with a real bus.
type bench struct {
	t        *testing.T
	bus      *bus.Bus
	attempts *bus.KV[train.Attempt]
	reports  *bus.KV[train.AttemptReport]
	dir      string
	box      *outbox.Box
	api      *API
	web      *httptest.Server
	// wanted is the micro-batch that is wanted of the job, in generation 9; nil if none is.
	wanted *train.TunedJob
	// seen is the memory that the driver sees the job use.
	seen unit.Bytes
	// batchesSince is the time of the last change of a micro-batch on the node.
	batchesSince time.Time
}

func newBench(t *testing.T, s *busserver.Server) *bench {
	t.Helper()
	b := &bench{t: t, bus: bustest.Connect(t, s, "nodeagent"), dir: t.TempDir()}
	var err error
	if b.attempts, err = bus.OpenKV[train.Attempt](within(t), b.bus, contract.Attempts); err != nil {
		t.Fatal(err)
	}
	if b.reports, err = bus.OpenKV[train.AttemptReport](within(t), b.bus, contract.Reports); err != nil {
		t.Fatal(err)
	}
	b.restart()
	t.Cleanup(func() { b.web.Close() })
	return b
}

// restart makes an API that knows nothing but what is stored.
func (b *bench) restart() {
	b.t.Helper()
	if b.web != nil {
		b.web.Close()
	}
	log := slog.New(slog.DiscardHandler)
	var err error
	if b.box, err = outbox.Open(b.dir, 100, log); err != nil {
		b.t.Fatal(err)
	}
	b.api = New(Config{
		Node: node, Bus: b.bus, Reports: b.reports, Attempts: attemptindex.New(b.attempts), Outbox: b.box, Tuned: b.tuned, UsesMemory: b.usesMemory, Log: log,
		BatchesSince: func(train.Attempt, time.Time) time.Time { return b.batchesSince },
		Metrics:      prometheus.NewRegistry(),
	})
	b.web = httptest.NewServer(b.api.Handler())
}

// usesMemory returns the larger of the reported and the seen memory.
func (b *bench) usesMemory(_ train.Attempt, reported unit.Bytes) unit.Bytes {
	return max(reported, b.seen)
}

func (b *bench) tuned(a train.Attempt) (train.TunedJob, uint64, bool) {
	if b.wanted == nil || b.wanted.Attempt != a.Number {
		return train.TunedJob{}, 0, false
	}
	return *b.wanted, 9, true
}

// background runs the API's loops until the test ends.
func (b *bench) background() {
	ctx, cancel := context.WithCancel(context.Background())
	var running conc.WaitGroup
	running.Go(func() { _ = b.box.Run(ctx, b.api.DeliverKept) })
	running.Go(func() { _ = b.api.RunHeartbeats(ctx) })
	b.t.Cleanup(func() { cancel(); running.Wait() })
}

func attempt(number int) train.Attempt {
	return train.Attempt{
		Job: "j1", Number: number, Node: node, Generation: 7, Devices: []train.DeviceID{"cpu:0", "cpu:1"}, Phase: train.PhaseRunning,
		CapabilityHash: train.Hash(capability), TokenHash: train.Hash(fmt.Sprint(token, number)),
	}
}

// put writes an attempt as the executor does. The API has no watch here, so it must read the bucket.
func (b *bench) put(a train.Attempt) {
	b.t.Helper()
	e, err := b.attempts.Modify(within(b.t), string(a.Job), func(known *train.Attempt) (bool, error) { *known = a; return true, nil })
	if err != nil {
		b.t.Fatal(err)
	}
	b.api.callers.attempts.Put(e, false)
}

func (b *bench) do(method, path, body string) (int, string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(within(b.t), method, b.web.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.web.Client().Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

func (b *bench) want(method, path, body string, status int, text string) {
	b.t.Helper()
	if s, got := b.do(method, path, body); s != status || got != text {
		b.t.Errorf("%s %s: %d %s, want %d %s", method, path, s, got, status, text)
	}
}

func (b *bench) wantError(method, path, body string, status int, code, words string) {
	b.t.Helper()
	s, got := b.do(method, path, body)
	var given struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.Unmarshal([]byte(got), &given); err != nil {
		b.t.Errorf("%s %s: %d %s: %v", method, path, s, got, err)
	}
	if s != status || given.Error.Code != code || !strings.Contains(given.Error.Message, words) || given.Error.Hint == "" {
		b.t.Errorf("%s %s: %d %s, want %d %s with %q and a hint", method, path, s, got, status, code, words)
	}
}

func (b *bench) report(number int) train.AttemptReport {
	b.t.Helper()
	e, err := b.reports.Get(within(b.t), contract.ReportKey("j1", number))
	if err != nil {
		b.t.Fatal(err)
	}
	return e.Value
}

// facts reads the first n facts of a stream.
func facts[T any](b *bench, stream, fact string, n int) []T {
	b.t.Helper()
	ctx, cancel := context.WithCancel(within(b.t))
	defer cancel()
	var all []T
	err := b.bus.Follow(ctx, stream, nil, 1, func(m bus.Message) {
		if m.Parsed.Fact != fact || len(all) == n {
			return
		}
		body, err := event.Decode[T](m.Data)
		if err != nil {
			b.t.Error(err)
		}
		if all = append(all, body); len(all) == n {
			cancel()
		}
	})
	if err != nil || len(all) != n {
		b.t.Fatalf("%d facts, want %d, error %v", len(all), n, err)
	}
	return all
}

func (b *bench) stored(stream string) uint64 {
	b.t.Helper()
	last, err := b.bus.LastSequence(within(b.t), stream)
	if err != nil {
		b.t.Fatal(err)
	}
	return last
}
