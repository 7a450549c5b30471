package jobapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		Node: node, Bus: d.bus, Reports: d.reports, Roster: roster.New(d.attempts), Outbox: d.box, Log: log, Metrics: prometheus.NewRegistry(),
	})
	d.web = httptest.NewServer(d.api.Handler())
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

// traceShapes are requests as the upstream library sends them, with the answers it must get.
const traceShapes = `GET /has_to_stop/job-1 -> 0
POST /profiling/job-1 application/json {"jobid": "job-1", "timestamp": "2026-01-02T03:04:05.000006", "iternum": 3, "nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": 0.025, "gpumem": 1234}
POST /profiling/job-1 application/json {"jobid": "job-1", "timestamp": "2026-01-02T03:04:05.100006", "iternum": 3, "nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": 0.025, "gpumem": 1234, "epochDur": 0.156511}
POST /end_epoch/job-1 application/json {"done": 2}
GET /has_to_stop/job-1 -> 0
POST /profiling/job-1 application/json {"jobid": "job-1", "timestamp": "2026-01-02T03:04:05.200006", "iternum": 7, "nodelist": "nodeA,nodeB", "numgpu": 2, "rank": 0, "meandur": 0.03125, "gpumem": 1234, "epochDur": 0.132307}
POST /end_epoch/job-1 application/json {"done": 3}
GET /has_to_stop/job-1 -> 1
GET /has_to_stop/job-1 -> 1
`

func TestUpstreamLibraryShapes(t *testing.T) {
	for _, prefix := range []string{"", "/attempt/" + token + "1"} {
		t.Run("prefix "+prefix, func(t *testing.T) { replay(t, traceShapes, prefix) })
	}
}

func TestUpstreamLibraryRecordedTrace(t *testing.T) {
	data := os.Getenv("SWITCHYARD_DATA")
	if data == "" {
		t.Skip("SWITCHYARD_DATA does not name the folder of recorded data")
	}
	trace, err := os.ReadFile(filepath.Join(data, "kubeapi", "wire_trace_head.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "/attempt/" + token + "1"} {
		t.Run("prefix "+prefix, func(t *testing.T) { replay(t, string(trace), prefix) })
	}
}

// replay sends every request of a trace and compares answers and facts.
func replay(t *testing.T, trace, prefix string) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	a := attempt(1)
	d.put(a)
	requests := 0
	for line := range strings.Lines(trace) {
		method, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, rest, _ := strings.Cut(rest, " ")
		if method == "" {
			continue
		}
		requests++
		if method == http.MethodGet {
			answer := strings.TrimPrefix(rest, "-> ")
			if answer == "1" && a.Stop == train.StopNone {
				a.Stop = train.StopPreempt
				d.put(a)
			}
			d.want(method, prefix+path, "", http.StatusOK, answer)
			continue
		}
		_, body, _ := strings.Cut(rest, " ")
		d.want(method, prefix+path, body, http.StatusOK, "ok")
	}
	if requests < 9 {
		t.Fatalf("%d requests in the trace", requests)
	}
	got := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 2)
	for i, want := range []struct {
		done    int
		seconds float64
	}{{2, 0.156511}, {3, 0.132307}} {
		if g := got[i]; g.EpochsDone != want.done || g.EpochSeconds != want.seconds || g.Attempt != 1 || g.Devices != 2 || g.StepSeconds <= 0 ||
			g.MemoryBytes != 1234*unit.MiB {
			t.Errorf("fact %d: %+v, want epochs_done %d in %g s", i, g, want.done, want.seconds)
		}
	}
	want := train.AttemptReport{Job: "j1", Attempt: 1, EpochsDone: 3, Spoke: true, StopAnswered: true}
	if diff := cmp.Diff(want, d.report(1)); diff != "" {
		t.Errorf("report (-want +got)\n%s", diff)
	}
	if beat := facts[event.Stepped](d, event.StreamSamples, event.FactStepped, 1)[0]; beat.Job != "j1" || beat.Step != 3 || beat.Devices != 2 {
		t.Errorf("heartbeat %+v", beat)
	}
}

func TestTheRicherRequests(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	d.want("GET", base+"/control?epochs_done=0&rank=0", "", 200, `{"stop":false,"micro_batch":null,"accumulation":null,"generation":7}`)
	d.want("POST", base+"/steps", `{"step":4,"epoch":0,"steps":4,"step_seconds":0.5,"samples":64,"rank":0,"loss":2.5,"gpu_memory_bytes":1000}`, 200, "{}")
	d.want("POST", base+"/steps", `{"step":8,"epoch":0,"steps":12,"step_seconds":0.1,"samples":64,"rank":0}`, 200, "{}")
	d.want("POST", base+"/checkpoints", `{"epochs_done":1,"path":"/snapshots/x","bytes":9,"seconds":0.25}`, 200, "{}")
	epoch := `{"epochs_done":1,"epoch_seconds":3.5,"steps":16,"samples":128,"rank":0,"loss":1.5,"metrics":{"accuracy":0.5},"grad_sqr":-0.1,"grad_var":2}`
	d.want("POST", base+"/epochs", epoch, 200, "{}")
	d.want("POST", base+"/epochs", epoch, 200, "{}")
	d.want("POST", base+"/epochs", `{"epochs_done":1,"rank":1}`, 200, "{}")
	d.want("POST", base+"/end", `{"outcome":"finished","epochs_done":1,"message":""}`, 200, "{}")

	number := func(v float64) *float64 { return &v }
	want := event.EpochEnded{
		Attempt: 1, EpochsDone: 1, EpochSeconds: 3.5, StepSeconds: (4*0.5 + 12*0.1) / 16, Steps: 16, Samples: 128, Loss: number(1.5),
		Metrics: map[string]float64{"accuracy": 0.5}, GradSquared: number(-0.1), GradVariance: number(2), MemoryBytes: 1000, Devices: 2,
	}
	if diff := cmp.Diff(want, facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 1)[0]); diff != "" {
		t.Errorf("epoch_ended (-want +got)\n%s", diff)
	}
	saved := event.CheckpointWritten{Attempt: 1, EpochsDone: 1, Path: "/snapshots/x", Size: 9, Seconds: 0.25}
	if diff := cmp.Diff(saved, facts[event.CheckpointWritten](d, event.StreamJobs, event.FactCheckpointWritten, 1)[0]); diff != "" {
		t.Errorf("checkpoint_written (-want +got)\n%s", diff)
	}
	if n := d.stored(event.StreamJobs); n != 2 {
		t.Errorf("%d facts of the job, want 2: repetitions and other ranks tell nothing new", n)
	}
	// The second heartbeat came less than half a second after the first.
	beat := facts[event.Stepped](d, event.StreamSamples, event.FactStepped, 1)[0]
	if diff := cmp.Diff(event.Stepped{
		Job: "j1", Attempt: 1, Step: 4, Steps: 4, StepSeconds: 0.5, Samples: 64, Loss: number(2.5), MemoryBytes: 1000, Devices: 2,
	}, beat); diff != "" {
		t.Errorf("stepped (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(train.AttemptReport{
		Job: "j1", Attempt: 1, EpochsDone: 1, Spoke: true, Ended: "finished", Checkpoint: "/snapshots/x", CheckpointEpochs: 1,
	}, d.report(1)); diff != "" {
		t.Errorf("report (-want +got)\n%s", diff)
	}
}

func TestWhoMaySpeak(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.wantError("GET", "/has_to_stop/"+capability, "", 404, "UnknownJob", "JOB_UUID")
	d.wantError("GET", "/nowhere", "", 404, "NotFound", "/nowhere")
	d.wantError("GET", "/end_epoch/"+capability, "", 404, "NotFound", "/end_epoch")
	// A job that was started a moment ago is found without a watch.
	if _, err := d.attempts.Swap(within(t), "j1", attempt(1), 0); err != nil {
		t.Fatal(err)
	}
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	d.want("GET", "/attempt/"+token+"1/has_to_stop/"+capability, "", 200, "0")
	d.wantError("GET", "/attempt/wrong/has_to_stop/"+capability, "", 409, "FencedOff", "newer")
	d.wantError("GET", "/has_to_stop/"+roster.Hash(capability), "", 404, "UnknownJob", "JOB_UUID")

	// A newer attempt fences the older one off, also where the watch lags behind.
	e, err := d.attempts.Get(within(t), "j1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.attempts.Swap(within(t), "j1", attempt(2), e.Revision); err != nil {
		t.Fatal(err)
	}
	d.want("GET", "/attempt/"+token+"2/has_to_stop/"+capability, "", 200, "0")
	d.wantError("POST", "/attempt/"+token+"1/end_epoch/"+capability, `{"done":1}`, 409, "FencedOff", "newer")
	d.want("POST", "/end_epoch/"+capability, `{"done":1}`, 200, "ok")
	if r := d.report(2); r.EpochsDone != 1 {
		t.Errorf("report of the newest attempt %+v", r)
	}

	// An attempt that has ended, and one on another node.
	ended := attempt(2)
	ended.Phase = train.PhaseExited
	d.put(ended)
	d.wantError("GET", "/has_to_stop/"+capability, "", 409, "FencedOff", "ended")
	elsewhere := attempt(3)
	elsewhere.Node = "n2"
	d.put(elsewhere)
	d.wantError("GET", "/attempt/"+token+"3/has_to_stop/"+capability, "", 409, "FencedOff", "ended")
}

func TestBadBodies(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.put(attempt(1))
	v1 := "/v1/jobs/" + capability
	for _, c := range []struct{ path, body, words string }{
		{"/end_epoch/" + capability, ``, "want a JSON object"},
		{"/end_epoch/" + capability, `[]`, "want a JSON object, got array"},
		{"/end_epoch/" + capability, `{}`, "done: is missing"},
		{"/end_epoch/" + capability, `{"done": -1}`, "done: want 0 or more, got -1"},
		{"/end_epoch/" + capability, `{"done": 1.5}`, "done: want a whole number, got number 1.5"},
		{"/end_epoch/" + capability, `{"done": "2"}`, "done: want a whole number, got string"},
		{"/end_epoch/" + capability, `{"done": 1000001}`, "done: want at most 1000000, got 1000001"},
		{"/end_epoch/" + capability, `{"done": 2} {"done": 3}`, "want a JSON object"},
		{"/profiling/" + capability, `{"iternum": 1, "meandur": NaN}`, "want a JSON object"},
		{"/profiling/" + capability, `{"iternum": 1, "meandur": 1e999}`, "meandur: want a finite number"},
		{"/profiling/" + capability, `{"iternum": 1, "meandur": -1, "epochDur": -2}`, "meandur: want 0 or more, got -1; epochDur: want 0 or more, got -2"},
		{v1 + "/steps", `{"step": 1, "rank": 70000, "samples": -4}`, "rank: want 0 to 65535, got 70000; samples: want 0 or more, got -4"},
		{v1 + "/steps", `{"step": 1, "metrics": {"a": "b"}}`, "metrics"},
		{v1 + "/steps", `{"step": 1, "steps": true}`, "steps: want a whole number, got bool"},
		{v1 + "/steps", `{"step": 9007199254740993000}`, "step: want at most"},
		{v1 + "/epochs", `{"epochs_done": 1, "epoch_seconds": 1e12}`, "epoch_seconds: want at most"},
		{v1 + "/checkpoints", `{"epochs_done": 1, "path": ""}`, "path: want 1 to"},
		{v1 + "/checkpoints", `{"epochs_done": 1, "path": "a\u0000b"}`, "path: want 1 to"},
		{v1 + "/end", `{"outcome": "bored"}`, "outcome: want finished, stopped or failed"},
	} {
		d.wantError("POST", c.path, c.body, 400, "BadRequest", c.words)
	}
	many, err := json.Marshal(map[string]any{"step": 1, "metrics": manyMetrics(65)})
	if err != nil {
		t.Fatal(err)
	}
	d.wantError("POST", v1+"/steps", string(many), 400, "BadRequest", "metrics: has 65 entries")
	d.wantError("POST", v1+"/steps", `{"step":1,"x":"`+strings.Repeat("y", 70<<10)+`"}`, 413, "TooLarge", "read the body")
	if n := d.stored(event.StreamJobs); n != 0 {
		t.Errorf("%d facts of refused requests", n)
	}
}

func manyMetrics(n int) map[string]float64 {
	m := map[string]float64{}
	for i := range n {
		m[fmt.Sprint("m", i)] = 1
	}
	return m
}

func TestAStopIsRecordedBeforeItIsTold(t *testing.T) {
	s := bustest.Start(t)
	d := newDesk(t, s)
	a := attempt(1)
	d.put(a)
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	a.Stop = train.StopRescale
	d.put(a)
	s.Stop()
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
}

func TestAStopThatWasToldStaysTold(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	a := attempt(1)
	a.Stop = train.StopPreempt
	d.put(a)
	d.want("GET", "/has_to_stop/"+capability, "", 200, "1")
	if !d.report(1).StopAnswered {
		t.Error("told and not recorded")
	}
	a.Stop = train.StopNone
	d.put(a)
	d.want("GET", "/has_to_stop/"+capability, "", 200, "1")
	d.restart()
	d.want("GET", "/has_to_stop/"+capability, "", 200, "1")
}

func TestProcessesOfAnAttemptHearTheSame(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	a := attempt(1)
	d.put(a)
	ask := func(epochs, rank int) bool {
		t.Helper()
		status, body := d.do("GET", fmt.Sprintf("/v1/jobs/%s/control?epochs_done=%d&rank=%d", capability, epochs, rank), "")
		var said controlRecord
		if err := json.Unmarshal([]byte(body), &said); err != nil || status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		return said.Stop
	}
	if ask(3, 0) {
		t.Error("stop that nobody asked for")
	}
	a.Stop = train.StopPreempt
	d.put(a)
	if ask(3, 1) {
		t.Error("rank 1 hears of a stop that rank 0 did not hear of")
	}
	if !ask(4, 1) || !ask(4, 0) {
		t.Error("no stop at the next epoch's end")
	}
}

func TestFactsSurviveABusThatIsAway(t *testing.T) {
	dir := t.TempDir()
	s, err := busserver.Start(busserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	port := s.Port()
	d := newDesk(t, s)
	d.put(attempt(1))
	d.want("POST", "/end_epoch/"+capability, `{"done":1}`, 200, "ok")
	s.Stop()
	d.want("POST", "/end_epoch/"+capability, `{"done":2}`, 200, "ok")
	d.want("POST", "/v1/jobs/"+capability+"/checkpoints", `{"epochs_done":2,"path":"/p"}`, 200, "{}")
	d.want("POST", "/end_epoch/"+capability, `{"done":3}`, 200, "ok")
	d.want("POST", "/v1/jobs/"+capability+"/end", `{"outcome":"finished","epochs_done":3}`, 200, "{}")
	d.want("POST", "/v1/jobs/"+capability+"/steps", `{"step":1}`, 200, "{}")
	if n := d.box.Len(); n != 4 {
		t.Errorf("%d facts on disk, want 4", n)
	}
	// The agent dies as well; what it promised is on disk.
	d.restart()
	if s, err = busserver.Start(busserver.Options{Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	d.background()
	got := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 3)
	for i, g := range got {
		if g.EpochsDone != i+1 {
			t.Errorf("fact %d tells of epoch %d: out of order", i, g.EpochsDone)
		}
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var last train.AttemptReport
	if err := d.reports.Watch(ctx, func(e bus.Entry[train.AttemptReport], _ bool) {
		if last = e.Value; last.Ended == "finished" {
			cancel()
		}
	}, nil); err != nil {
		t.Fatal(err)
	}
	if last.EpochsDone != 3 || last.Checkpoint != "/p" || !last.Spoke {
		t.Errorf("report %+v", last)
	}
}

func TestAnUnreachableBusIsNotAnUnknownJob(t *testing.T) {
	s := bustest.Start(t)
	d := newDesk(t, s)
	s.Stop()
	d.wantError("GET", "/has_to_stop/"+capability, "", 503, "Unavailable", "cannot be read")
}

func TestLateWordsOfALastEpochAreStillRecorded(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.put(attempt(1))
	d.want("POST", "/v1/jobs/"+capability+"/end", `{"outcome":"finished","epochs_done":2}`, 200, "{}")
	d.want("POST", "/v1/jobs/"+capability+"/epochs", `{"epochs_done":2,"epoch_seconds":4}`, 200, "{}")
	if got := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 1)[0]; got.EpochSeconds != 4 {
		t.Errorf("%+v", got)
	}
}

func TestSignalEnd(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.put(attempt(1))
	d.want("POST", "/signal_end/"+capability, "", 200, "ok")
	if r := d.report(1); r.Ended != "finished" || !r.Spoke {
		t.Errorf("report %+v", r)
	}
}

func TestMerge(t *testing.T) {
	r := train.AttemptReport{Job: "j", Attempt: 1, EpochsDone: 4, StopAnswered: true, Ended: "failed", Checkpoint: "/new", CheckpointEpochs: 4}
	got := merge(r, train.AttemptReport{Job: "j", Attempt: 1, EpochsDone: 3, Spoke: true, Ended: "finished", Checkpoint: "/old", CheckpointEpochs: 3})
	want := r
	want.Spoke = true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if again := merge(got, got); again != got {
		t.Errorf("%+v, then %+v", got, again)
	}
}

func FuzzBodies(f *testing.F) {
	for _, body := range []string{`{"done":2}`, `{"step":1,"metrics":{"a":1e308}}`, `{"epochs_done":-1}`, `{"outcome":"finished"}`, `null`, `{"rank":1e2}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var done doneBody
		var beat stepsBody
		var epoch epochBody
		var saved checkpointBody
		var end endBody
		var p profile
		for _, b := range []struct {
			body  any
			check func() []problem
		}{
			{&done, func() []problem { return done.check() }}, {&beat, func() []problem { return beat.check() }},
			{&epoch, func() []problem { return epoch.check() }}, {&saved, func() []problem { return saved.check() }},
			{&end, func() []problem { return end.check() }}, {&p, func() []problem { return p.check() }},
		} {
			problems := parseAndCheck(data, b.body, b.check)
			for _, problem := range problems {
				if problem.text == "" {
					t.Fatalf("a problem without words in %q", data)
				}
			}
			if len(problems) > 0 {
				continue
			}
			// What is taken can be told.
			if _, err := (event.Fact{Body: b.body}).Encode(); err != nil {
				t.Fatal(err)
			}
		}
		if done.Done != nil && *done.Done < 0 && len(done.check()) == 0 {
			t.Fatal("a negative number was taken")
		}
	})
}
