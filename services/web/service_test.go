package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// bench is a bus and the service on it.
type bench struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // the deadline of one test
	server *busserver.Server
	bus    *bus.Bus
	dir    string
	client *http.Client
	config settings.Web
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	server := bustest.Start(t)
	// A data folder may lie deeper than the address of a socket is long.
	b := &bench{t: t, ctx: ctx, server: server, bus: bustest.Connect(t, server, "test"), dir: filepath.Join(t.TempDir(), strings.Repeat("deep", 30))}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return installation.DialUnix(ctx, b.socket())
	}
	b.client = &http.Client{Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *bench) socket() string { return filepath.Join(b.dir, api.SocketName) }

// serve runs the service until the returned function is called, and waits until it is ready.
func (b *bench) serve() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	common := run.Common{NATS: b.server.URL(), HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.dir, Node: "n"}
	health := make(chan net.Addr, 1)
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, io.Discard, func(a net.Addr) { health <- a }, New(b.config, time.Now)); err != nil && ctx.Err() == nil {
			b.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		b.client.CloseIdleConnections()
		running.Wait()
	}
	b.t.Cleanup(stop)
	ready := "http://" + (<-health).String() + "/readyz"
	b.until("the service is ready", func() bool {
		response, err := http.Get(ready)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return stop
}

func (b *bench) until(what string, true func() bool) {
	b.t.Helper()
	for range tick.Every(b.ctx, 20*time.Millisecond) {
		if true() {
			return
		}
	}
	b.t.Fatalf("not in time: %s", what)
}

// send sends a request with headers, and a body.
func (b *bench) send(method, path, body string, headers ...string) *http.Response {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.ctx, method, "http://switchyard"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	return response
}

// ask sends a request and decodes the answer.
func ask[T any](b *bench, method, path string) (status int, answer T) {
	b.t.Helper()
	return answerOf[T](b, b.send(method, path, ""))
}

func answerOf[T any](b *bench, response *http.Response) (status int, answer T) {
	b.t.Helper()
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		b.t.Fatalf("%s: %v", response.Request.URL, err)
	}
	return response.StatusCode, answer
}

func (b *bench) put(j train.Job) {
	b.t.Helper()
	jobs, err := bus.OpenKV(b.ctx, b.bus, contract.Jobs)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := jobs.Modify(b.ctx, string(j.ID), func(v *train.Job) (bool, error) { *v = j; return true, nil }); err != nil {
		b.t.Fatal(err)
	}
}

// state is what the service says about a job; empty if it knows none.
func (b *bench) state(id train.JobID) train.State {
	b.t.Helper()
	_, page := ask[view.Page](b, "GET", "/api/v1/jobs")
	for _, j := range page.Jobs {
		if j.ID == id {
			return j.State
		}
	}
	return ""
}

func TestTheServiceFollowsTheBus(t *testing.T) {
	b := newBench(t)
	b.put(train.Job{ID: "a", State: train.StateQueued})
	stop := b.serve()
	if got := b.state("a"); got != train.StateQueued {
		t.Errorf("a ready service says %q of what was there before", got)
	}
	b.put(train.Job{ID: "a", State: train.StateRunning})
	b.until("the new state is known", func() bool { return b.state("a") == train.StateRunning })
	stop()
	b.put(train.Job{ID: "a", State: train.StateSucceeded})
	b.serve()
	if got := b.state("a"); got != train.StateSucceeded {
		t.Errorf("after a restart it says %q", got)
	}
}

// A killed service leaves its socket behind; two of them may overlap.
func TestTheSocketIsItsOwners(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(b.socket(), []byte("left behind"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := b.serve()
	b.serve()
	first()
	info, err := os.Stat(b.socket())
	if err != nil || info.Mode().Type() != fs.ModeSocket || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v, want a socket for its owner alone", info.Mode(), err)
	}
	if _, about := ask[api.About](b, "GET", "/api/v1"); about.Bus != b.server.URL() {
		t.Errorf("it serves %q, want %q", about.Bus, b.server.URL())
	}
}

func TestNonsenseIsAnsweredByAProblem(t *testing.T) {
	b := newBench(t)
	b.serve()
	for _, tt := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/job", 404, "GET /job: no such question"},
		{"GET", "/api/v1/job", 404, "GET /api/v1/job: no such question"},
		{"DELETE", "/api/v1/jobs", 404, "DELETE /api/v1/jobs: no such question"},
		{"GET", "/api/v1/jobs?usr=ann", 400, "usr: no such parameter (did you mean user?)"},
		{"GET", "/api/v1/jobs?x=1", 400, "x: no such parameter; there are user, state"},
		{"GET", "/api/v1/jobs?state=runing", 400, `state: "runing": no such state: did you mean running?`},
		{"GET", "/api/v1/jobs?label=phase", 400, `label: "phase": want a label as KEY=VALUE, such as phase=warmup`},
		{"GET", "/api/v1/jobs?name=%5B", 400, `name: "[": want a pattern such as resnet*`},
		{"GET", "/api/v1/energy/ledger?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", 400, `to: want a time after from, at most 92 days later, found "2026-01-01T00:00:00Z"`},
		{"GET", "/api/v1/jobs?newest=-1", 400, `newest: want a whole number from 0, found "-1"`},
		{"GET", "/api/v1/jobs?limit=1&limit=2", 400, "limit: given 2 times, want it once"},
		{"GET", "/api/v1/plan?x=1", 400, "x: no such parameter (did you mean at?)"},
		{"GET", "/api/v1/nodes?x=1", 400, "x: no such parameter; there are limit, after"},
		{"GET", "/api/v1/jobs/nothing", 404, `no job "nothing"`},
		{"POST", "/api/v1/jobs/a/succeeded", 404, "no such question"},
		{"POST", "/api/v1/jobs/a.b/cancel_requested", 400, "a.b"},
		{"POST", "/api/v1/jobs/a/submitted", 422, "yard.job.<id>.submitted.v1: "},
		{"GET", "/api/v1/jobs?after=x", 400, `after "x": after is the next of the page before, as it is`},
	} {
		status, p := ask[api.Problem](b, tt.method, tt.path)
		told := strings.TrimSuffix(p.Detail+": "+p.Fix, ": ")
		if status != tt.status || p.Status != tt.status || p.Title != http.StatusText(status) || !strings.Contains(told, tt.want) {
			t.Errorf("%s %s: %d %+v, want %d %q", tt.method, tt.path, status, p, tt.status, tt.want)
		}
	}
	conn, err := installation.DialUnix(b.ctx, b.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "\x00\x01 this is no HTTP\r\n\r\n")
	if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
		t.Errorf("bytes that are no HTTP: %q", answer)
	}
	if status, _ := ask[view.Page](b, "GET", "/api/v1/jobs"); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}

// events reads a stream of events.
type events struct {
	b      *bench
	body   io.ReadCloser
	lines  *bufio.Scanner
	lastID string
}

func (b *bench) listen(headers ...string) *events {
	b.t.Helper()
	response := b.send("GET", "/api/v1/changes", "", headers...)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		b.t.Fatalf("%s, %s", response.Status, kind)
	}
	b.t.Cleanup(func() { response.Body.Close() })
	return &events{b: b, body: response.Body, lines: bufio.NewScanner(response.Body)}
}

// next returns the name of the next event, and its changes.
func (e *events) next() (name string, changes api.Changes) {
	e.b.t.Helper()
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			e.lastID = value
		case "data":
			if err := json.Unmarshal([]byte(value), &changes); err != nil {
				e.b.t.Fatal(err)
			}
			return name, changes
		}
	}
	e.b.t.Fatalf("the stream has ended: %v", e.lines.Err())
	return "", changes
}

// until reads events until a job is in a state.
func (e *events) until(id train.JobID, state train.State) {
	e.b.t.Helper()
	for {
		name, changes := e.next()
		if name != api.EventChanged {
			e.b.t.Fatalf("event %s before %s is %s", name, id, state)
		}
		if slices.ContainsFunc(changes.Jobs, func(j view.Job) bool { return j.ID == id && j.State == state }) {
			return
		}
	}
}

func TestTheStreamTellsWhatChanges(t *testing.T) {
	b := newBench(t)
	b.put(train.Job{ID: "a", State: train.StateQueued})
	stop := b.serve()
	listing := b.send("GET", "/api/v1/jobs", "")
	position := listing.Header.Get(api.PositionHeader)
	listing.Body.Close()
	// What happens between the list and the stream is in the stream.
	b.put(train.Job{ID: "a", State: train.StateRunning})
	b.until("the service knows", func() bool { return b.state("a") == train.StateRunning })
	first := b.listen(api.PositionHeader, position)
	first.until("a", train.StateRunning)
	b.put(train.Job{ID: "b", State: train.StateQueued})
	first.until("b", train.StateQueued)
	// A client that was cut off gets what it missed, and the newest state alone.
	cutOff := first.lastID
	first.body.Close()
	b.put(train.Job{ID: "b", State: train.StateRunning})
	b.put(train.Job{ID: "b", State: train.StateSucceeded})
	b.until("the service knows", func() bool { return b.state("b") == train.StateSucceeded })
	second := b.listen(api.PositionHeader, cutOff)
	if name, changes := second.next(); name != api.EventChanged || len(changes.Jobs) != 1 || changes.Jobs[0].State != train.StateSucceeded {
		t.Errorf("after the return: %s %+v", name, changes)
	}
	jobs, err := bus.OpenKV(b.ctx, b.bus, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := jobs.Get(b.ctx, "a"); err != nil || jobs.Delete(b.ctx, "a", e.Revision) != nil {
		t.Fatal("delete a job", err)
	}
	for gone := false; !gone; {
		_, changes := second.next()
		gone = slices.Contains(changes.Gone, "a")
	}
	// Another process cannot know what was missed.
	stop()
	b.serve()
	third := b.listen(api.PositionHeader, second.lastID)
	if name, _ := third.next(); name != api.EventReload || third.lastID == second.lastID {
		t.Errorf("after a restart: %s %s", name, third.lastID)
	}
	b.put(train.Job{ID: "c", State: train.StateQueued})
	third.until("c", train.StateQueued)
}

func TestALongAbsenceMeansReload(t *testing.T) {
	k := newKnown(slog.New(slog.DiscardHandler), "now")
	for i := range 3*remembered + 1 {
		k.put(k.index.Jobs, "a", uint64(i+1), fmt.Appendf(nil, `{"id":"a","epochs_done":%d}`, i))
	}
	for after, want := range map[uint64]bool{0: false, remembered - 1: false, 2 * remembered: true, 3*remembered + 1: true, 3*remembered + 2: false} {
		seen := 0
		last, complete, _ := k.follow(after, func(_ *index.Index, changes []change) { seen = len(changes) })
		if complete != want || complete && uint64(seen) != last-after {
			t.Errorf("after %d of %d: complete %v with %d changes", after, last, complete, seen)
		}
	}
}

// A POST stores what a client of the bus would publish.
func TestFactsOfPeopleReachTheBus(t *testing.T) {
	b := newBench(t)
	b.serve()
	const spec, trace = `{"name":"first","command":["true"]}`, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for i, tt := range []struct {
		body   string
		status int
		repeat bool
	}{{spec, 202, false}, {spec, 202, true}, {`{"name":"other","command":["true"]}`, 409, false}, {`{"nmae":"first"}`, 422, false}} {
		status, accepted := answerOf[api.Accepted](b, b.send("POST", "/api/v1/jobs/first-1/submitted", tt.body, event.HeaderTraceParent, trace))
		if status != tt.status || accepted.Repeat != tt.repeat {
			t.Errorf("submission %d: %d %+v", i, status, accepted)
		}
	}
	for _, key := range []string{"once", "once", "again"} {
		if status, _ := answerOf[api.Accepted](b, b.send("POST", "/api/v1/nodes/n1/cordon_requested", `{}`, api.KeyHeader, key)); status != 202 {
			t.Errorf("cordon: %d", status)
		}
	}
	if status, _ := answerOf[api.Accepted](b, b.send("POST", "/api/v1/jobs/first-1/cancel_requested", "", api.KeyHeader, "0")); status != 202 {
		t.Errorf("cancel: %d", status)
	}
	var stored []string
	for _, stream := range []string{event.StreamJobs, event.StreamNodes} {
		err := b.bus.Stored(b.ctx, stream, nil, time.Time{}, func(m bus.Message) {
			stored = append(stored, strings.TrimSpace(m.Subject+" "+m.Key+" "+m.TraceParent))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"yard.job.first-1.submitted.v1 job/first-1/submitted " + trace, "yard.job.first-1.cancel_requested.v1 job/first-1/cancel/0",
		"yard.node.n1.cordon_requested.v1 node/n1/cordon_requested/once", "yard.node.n1.cordon_requested.v1 node/n1/cordon_requested/again",
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error(diff)
	}
}

func TestRecordsAreServed(t *testing.T) {
	b := newBench(t)
	b.put(train.Job{ID: "mnist-1", Spec: train.Spec{Name: "mnist"}, State: train.StateQueued})
	for _, n := range []train.NodeID{"n1", "n2", "n3"} {
		nodes, err := bus.OpenKV(b.ctx, b.bus, contract.Nodes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nodes.Modify(b.ctx, string(n), func(v *train.Node) (bool, error) { v.ID = n; return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	plan := train.Plan{Generation: 7, Waiting: []train.Waiting{{Job: "mnist-1", StartInSeconds: 3}}}
	if err := b.bus.Publish(b.ctx, event.Fact{Subject: event.PlanSubject(), Key: "plan/7", Body: event.PlanDecided{Plan: plan}}); err != nil {
		t.Fatal(err)
	}
	b.serve()
	if _, p := ask[train.Plan](b, "GET", "/api/v1/plan"); p.Generation != 7 {
		t.Errorf("plan %+v", p)
	}
	for _, ref := range []string{"mnist-1", "mnist", "mni"} {
		if status, d := ask[view.Detail](b, "GET", "/api/v1/jobs/"+ref); status != 200 || d.Job.ID != "mnist-1" || d.Plan == nil || d.Plan.Position != 1 {
			t.Errorf("job %s: %d %+v", ref, status, d)
		}
	}
	_, first := ask[view.Records[train.Node]](b, "GET", "/api/v1/nodes?limit=2")
	_, rest := ask[view.Records[train.Node]](b, "GET", "/api/v1/nodes?limit=2&after="+first.Next)
	if len(first.Items) != 2 || first.Next != "n2" || len(rest.Items) != 1 || rest.Next != "" {
		t.Errorf("nodes %+v, then %+v", first, rest)
	}
}

// A plan of the past is found by its time, and so is what the meters showed in a minute.
func TestThePastIsServed(t *testing.T) {
	b := newBench(t)
	b.serve()
	var between []time.Time
	for n := range uint64(3) {
		between = append(between, time.Now())
		plan := train.Plan{Generation: n + 1, DecidedAt: time.Now().UTC()}
		if err := b.bus.Publish(b.ctx, event.Fact{Subject: event.PlanSubject(), Key: fmt.Sprintf("plan/%d", n+1), Body: event.PlanDecided{Plan: plan}}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(t time.Time) string { return "?at=" + t.UTC().Format(time.RFC3339Nano) }
	for n, moment := range between[1:] {
		if status, p := ask[train.Plan](b, "GET", "/api/v1/plan"+at(moment)); status != http.StatusOK || p.Generation != uint64(n+1) {
			t.Errorf("before plan %d: %d, plan %d", n+2, status, p.Generation)
		}
	}
	b.until("the newest plan is known", func() bool {
		_, p := ask[train.Plan](b, "GET", "/api/v1/plan"+at(time.Now()))
		return p.Generation == 3
	})
	if status, p := ask[api.Problem](b, "GET", "/api/v1/plan"+at(between[0])); status != http.StatusNotFound || p.Detail == "" {
		t.Errorf("before all plans: %d %+v", status, p)
	}
	if status, p := ask[api.Problem](b, "GET", "/api/v1/plan?at=yesterday"); status != http.StatusBadRequest || !strings.Contains(p.Detail, "want a time such as") {
		t.Errorf("no time: %d %+v", status, p)
	}
	kv, err := bus.OpenKV(b.ctx, b.bus, contract.Minutes)
	if err != nil {
		t.Fatal(err)
	}
	minute := time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)
	for _, node := range []train.NodeID{"n1", "n2"} {
		for _, when := range []time.Time{minute, minute.Add(time.Minute)} {
			if err := kv.Put(b.ctx, contract.MinuteKey(node, when), contract.Minute{Node: node, At: when, Seconds: 60, Power: 7}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, found := ask[[]contract.Minute](b, "GET", "/api/v1/minutes"+at(minute.Add(30*time.Second))); len(found) != 2 || !found[0].At.Equal(minute) || found[0].Power != 7 {
		t.Errorf("the minute: %+v", found)
	}
}

// What cannot be read of a query is named, and not left out of the question.
func TestAQueryThatCannotBeReadIsRefused(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.put(train.Job{ID: "a", State: train.StateQueued})
	for query, want := range map[string]string{
		"/jobs?state=failed;limit=1": "semicolon", "/jobs?name=%zz&limit=1": "%zz", "/jobs/a?user=%zz": "%zz", "/jobs/a/explanation?zone=%zz": "%zz", "/nodes?limit=1;2": "semicolon",
		"/changes?since=%zz": "%zz", "?bus=1": "bus", "/changes?form=1": "form",
	} {
		if status, p := ask[api.Problem](b, "GET", api.Prefix+query); status != http.StatusBadRequest || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %+v, want 400 with %q", query, status, p, want)
		}
	}
}

// HEAD asks for headers alone, which a stream has at once.
func TestTheHeadersOfTheStreamAreAnAnswer(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.client.Timeout = time.Minute
	for range 2 { // by one connection
		response := b.send("HEAD", "/api/v1/changes", "")
		if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s, %v, %v", response.Status, response.Header, err)
		}
		response.Body.Close()
	}
	b.send("GET", "/api/v1", "").Body.Close()
}

// An installation without data has empty lists: a client that goes through them finds no null.
func TestAListWithoutItemsIsNoNull(t *testing.T) {
	b := newBench(t)
	b.serve()
	for _, r := range api.Routes() {
		if r.Method != "GET" || r.Streams || strings.Contains(r.Path, "{") {
			continue
		}
		path, _, _ := attacked(r)
		response := b.send("GET", path, "")
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || strings.Contains(string(text), "null") {
			t.Errorf("%s: %s %s, %v", path, response.Status, text, err)
		}
	}
}
