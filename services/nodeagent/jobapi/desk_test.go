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
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
	"github.com/switchyard-dl/switchyard/services/nodeagent/roster"
)

const (
	node       = train.NodeID("n1")
	capability = "job-1"
	token      = "t0k3n"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// desk is a real API before a real bus.
type desk struct {
	t        *testing.T
	bus      *bus.Bus
	attempts *bus.KV[train.Attempt]
	reports  *bus.KV[train.AttemptReport]
	dir      string
	box      *outbox.Box
	api      *API
	web      *httptest.Server
	// wish is the micro-batch that is wanted of the job, in generation 9; nil while none is.
	wish *train.TunedTenant
	// seen is the memory that the driver sees the job use.
	seen unit.Bytes
	// batchesSince is since when the micro-batches of the node stand.
	batchesSince time.Time
}

func newDesk(t *testing.T, s *busserver.Server) *desk {
	t.Helper()
	d := &desk{t: t, bus: bustest.Connect(t, s, "nodeagent"), dir: t.TempDir()}
	var err error
	if d.attempts, err = bus.OpenKV[train.Attempt](within(t), d.bus, event.BucketAttempts); err != nil {
		t.Fatal(err)
	}
	if d.reports, err = bus.OpenKV[train.AttemptReport](within(t), d.bus, event.BucketReports); err != nil {
		t.Fatal(err)
	}
	d.restart()
	t.Cleanup(func() { d.web.Close() })
	return d
}

// restart makes an API that knows nothing but what is stored.
func (d *desk) restart() {
	d.t.Helper()
	if d.web != nil {
		d.web.Close()
	}
	log := slog.New(slog.DiscardHandler)
	var err error
	if d.box, err = outbox.Open(d.dir, 100, log); err != nil {
		d.t.Fatal(err)
	}
	d.api = New(Config{
		Node: node, Bus: d.bus, Reports: d.reports, Roster: roster.New(d.attempts), Outbox: d.box, Tuned: d.tuned, UsesMemory: d.usesMemory, Log: log,
		BatchesSince: func(train.Attempt, time.Time) time.Time { return d.batchesSince },
		Metrics:      prometheus.NewRegistry(),
	})
	d.web = httptest.NewServer(d.api.Handler())
}

// usesMemory has seen what the desk holds of each device.
func (d *desk) usesMemory(_ train.Attempt, told unit.Bytes) unit.Bytes { return max(told, d.seen) }

func (d *desk) tuned(a train.Attempt) (train.TunedTenant, uint64, bool) {
	if d.wish == nil || d.wish.Attempt != a.Number {
		return train.TunedTenant{}, 0, false
	}
	return *d.wish, 9, true
}

// background runs the API's loops until the test ends.
func (d *desk) background() {
	ctx, cancel := context.WithCancel(context.Background())
	var running conc.WaitGroup
	running.Go(func() { _ = d.box.Run(ctx, d.api.DeliverKept) })
	running.Go(func() { _ = d.api.RunHeartbeats(ctx) })
	d.t.Cleanup(func() { cancel(); running.Wait() })
}

func attempt(number int) train.Attempt {
	return train.Attempt{
		Job: "j1", Number: number, Node: node, Generation: 7, Devices: []train.DeviceID{"cpu:0", "cpu:1"}, Phase: train.PhaseRunning,
		CapabilityHash: roster.Hash(capability), TokenHash: roster.Hash(fmt.Sprint(token, number)),
	}
}

// put writes an attempt as the executor does. The API has no watch here: it must look for itself.
func (d *desk) put(a train.Attempt) {
	d.t.Helper()
	e, err := d.attempts.Modify(within(d.t), string(a.Job), func(known *train.Attempt) (bool, error) { *known = a; return true, nil })
	if err != nil {
		d.t.Fatal(err)
	}
	d.api.roster.Put(e, false)
}

func (d *desk) do(method, path, body string) (int, string) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(within(d.t), method, d.web.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	response, err := d.web.Client().Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

func (d *desk) want(method, path, body string, status int, text string) {
	d.t.Helper()
	if s, got := d.do(method, path, body); s != status || got != text {
		d.t.Errorf("%s %s: %d %s, want %d %s", method, path, s, got, status, text)
	}
}

func (d *desk) wantError(method, path, body string, status int, code, words string) {
	d.t.Helper()
	s, got := d.do(method, path, body)
	var said struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.Unmarshal([]byte(got), &said); err != nil {
		d.t.Errorf("%s %s: %d %s: %v", method, path, s, got, err)
	}
	if s != status || said.Error.Code != code || !strings.Contains(said.Error.Message, words) || said.Error.Hint == "" {
		d.t.Errorf("%s %s: %d %s, want %d %s with %q and a hint", method, path, s, got, status, code, words)
	}
}

func (d *desk) report(number int) train.AttemptReport {
	d.t.Helper()
	e, err := d.reports.Get(within(d.t), reportKey("j1", number))
	if err != nil {
		d.t.Fatal(err)
	}
	return e.Value
}

// facts reads the first n facts of a stream.
func facts[T any](d *desk, stream, fact string, n int) []T {
	d.t.Helper()
	ctx, cancel := context.WithCancel(within(d.t))
	defer cancel()
	var all []T
	err := d.bus.Follow(ctx, stream, nil, 1, func(m bus.Message) {
		if m.Parsed.Fact != fact || len(all) == n {
			return
		}
		body, err := event.Decode[T](m.Data)
		if err != nil {
			d.t.Error(err)
		}
		if all = append(all, body); len(all) == n {
			cancel()
		}
	})
	if err != nil || len(all) != n {
		d.t.Fatalf("%d facts, want %d, error %v", len(all), n, err)
	}
	return all
}

func (d *desk) stored(stream string) uint64 {
	d.t.Helper()
	last, err := d.bus.LastSequence(within(d.t), stream)
	if err != nil {
		d.t.Fatal(err)
	}
	return last
}
