package jobapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/joblog/bigdl"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/roster"
)

// What is wanted comes with the answers to a heartbeat and to control, again and again, and a heartbeat tells what was done.
func TestMicroBatches(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	d.want("POST", base+"/steps", `{"step":1,"rank":1}`, 200, "{}")
	d.wish = &train.TunedTenant{Job: "j1", Attempt: 1, MicroBatch: 8, Accumulation: 4}
	const wish = `"micro_batch":8,"accumulation":4,"generation":9}`
	d.want("POST", base+"/steps", `{"step":2,"rank":2}`, 200, "{"+wish)
	d.want("POST", base+"/steps", `{"step":2,"rank":0,"micro_batch":8,"generation":9}`, 200, "{"+wish)
	d.want("GET", base+"/control?epochs_done=0", "", 200, `{"stop":false,`+wish)
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	d.wantError("POST", base+"/steps", `{"step":3,"micro_batch":-1,"generation":-1}`, 400, "BadRequest", "micro_batch: want 0 or more, got -1; generation: want 0 or more, got -1")
	told := map[int]event.Stepped{}
	for _, beat := range facts[event.Stepped](d, event.StreamSamples, event.FactStepped, 3) {
		told[beat.Rank] = beat
	}
	if told[0].MicroBatch != 8 || told[0].Generation != 9 || told[1].MicroBatch != 0 {
		t.Errorf("told %+v", told)
	}
	// A wish for an attempt is none for the next one.
	next := attempt(2)
	d.put(next)
	d.want("POST", "/attempt/"+token+"2/v1/jobs/"+capability+"/steps", `{"step":3}`, 200, "{}")
}

// That larger steps are asked of an attempt is known before its code hears of it.
func TestLargerStepsAreNotedFirst(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	d.wish = &train.TunedTenant{Job: "j1", Attempt: 1, MicroBatch: 8, Accumulation: 4}
	d.want("POST", base+"/steps", `{"step":1}`, 200, `{"micro_batch":8,"accumulation":4,"generation":9}`)
	if d.report(1).Enlarged {
		t.Error("steps of the submitted batch count as larger ones")
	}
	d.wish = &train.TunedTenant{Job: "j1", Attempt: 1, MicroBatch: 64, Accumulation: 1, Enlarged: true}
	d.want("POST", base+"/steps", `{"step":2}`, 200, `{"micro_batch":64,"accumulation":1,"generation":9}`)
	if r := d.report(1); !r.Enlarged || !r.Spoke {
		t.Errorf("report %+v", r)
	}
}

// Who reads epochs in the output of code that does not call tells of them like the code, but does not say that the code can be asked to leave.
func TestOverheardEpochs(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	const epochs = "/attempt/" + token + "1/v1/jobs/" + capability + "/epochs"
	for range 2 {
		d.want("POST", epochs, `{"epochs_done":1,"epoch_seconds":3.5,"metrics":{"accuracy":0.5},"loss":null,"overheard":true}`, 200, "{}")
	}
	if told := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 1); told[0].Metrics["accuracy"] != 0.5 || told[0].EpochSeconds != 3.5 {
		t.Errorf("told %+v", told)
	}
	if r := d.report(1); r.Spoke || r.EpochsDone != 1 {
		t.Errorf("report %+v", r)
	}
	d.want("POST", epochs, `{"epochs_done":2}`, 200, "{}")
	if r := d.report(1); !r.Spoke || r.EpochsDone != 2 {
		t.Errorf("report %+v", r)
	}
}

// What this agent itself has read in the output of a pod is told as if a supervisor had sent it, once, also by the agent after it, and to the end of the output.
func TestTheAgentOverhears(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hear := func(epoch int) {
		t.Helper()
		e := bigdl.Epoch{Epoch: epoch, Seconds: 3.5, Iterations: 4, Records: 128, Metrics: map[string]float64{"accuracy": 0.5}}
		if err := d.api.Overhear(within(t), attempt(1), e, at); err != nil {
			t.Error(err)
		}
	}
	hear(1)
	hear(1)
	hear(1 << 30) // no training comes so far
	over := attempt(1)
	over.Phase = train.PhaseExited
	d.put(over)
	d.restart()
	hear(1)
	hear(2)
	for range 2 {
		if err := d.api.ReadOut(within(t), over); err != nil {
			t.Error(err)
		}
	}
	told := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 2)
	if told[0].EpochsDone != 1 || told[1].EpochsDone != 2 || told[1].EpochSeconds != 3.5 || told[1].Steps != 4 || told[1].Metrics["accuracy"] != 0.5 {
		t.Errorf("told %+v", told)
	}
	if n := d.stored(event.StreamJobs); n != 2 {
		t.Errorf("%d facts", n)
	}
	if r := d.report(1); r.Spoke || r.EpochsDone != 2 || !r.OutputRead {
		t.Errorf("report %+v", r)
	}
}

func TestTheRicherRequests(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	d.batchesSince = time.Unix(1_000_000, 0).UTC()
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	d.want("GET", base+"/control?epochs_done=0&rank=0", "", 200, `{"stop":false,"micro_batch":null,"accumulation":null,"generation":0}`)
	d.want("POST", base+"/steps", `{"step":4,"epoch":0,"steps":4,"step_seconds":0.5,"wait_seconds":0.125,"samples":64,"rank":0,"loss":2.5,"gpu_memory_bytes":1000}`, 200, "{}")
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
		BatchesSince: time.Unix(1_000_000, 0).UTC(),
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
		Job: "j1", Attempt: 1, Step: 4, Steps: 4, StepSeconds: 0.5, WaitSeconds: 0.125, Samples: 64, Loss: number(2.5), MemoryBytes: 1000, Devices: 2,
	}, beat); diff != "" {
		t.Errorf("stepped (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(train.AttemptReport{
		Job: "j1", Attempt: 1, EpochsDone: 1, Spoke: true, Ended: "finished", Checkpoint: "/snapshots/x", CheckpointEpochs: 1,
	}, d.report(1)); diff != "" {
		t.Errorf("report (-want +got)\n%s", diff)
	}
}

// The memory of an epoch is what the driver has seen, where that is more than the code knows of: its context on the device, say.
func TestEpochsTellOfMemoryAsItWasSeen(t *testing.T) {
	d := newDesk(t, bustest.Start(t))
	d.background()
	d.put(attempt(1))
	const epochs = "/attempt/" + token + "1/v1/jobs/" + capability + "/epochs"
	d.seen = 1500
	d.want("POST", epochs, `{"epochs_done":1,"gpu_memory_bytes":1000}`, 200, "{}")
	d.want("POST", epochs, `{"epochs_done":2,"gpu_memory_bytes":2000}`, 200, "{}")
	told := facts[event.EpochEnded](d, event.StreamJobs, event.FactEpochEnded, 2)
	if told[0].MemoryBytes != 1500 || told[1].MemoryBytes != 2000 {
		t.Errorf("epochs of %d and %d bytes, want 1500 and 2000", told[0].MemoryBytes, told[1].MemoryBytes)
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

func TestAStopThatWasPerhapsRecordedIsTakenBack(t *testing.T) {
	s := bustest.Start(t)
	d := newDesk(t, s)
	a := attempt(1)
	a.Stop = train.StopPreempt
	d.put(a)
	raw, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	js, err := jetstream.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(within(t), event.BucketReports); err != nil {
		t.Fatal(err)
	}
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	// It was recorded all the same.
	if err := d.bus.Ensure(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.reports.Swap(within(t), reportKey("j1", 1), train.AttemptReport{Job: "j1", Attempt: 1, Spoke: true, StopAnswered: true}, 0); err != nil {
		t.Fatal(err)
	}
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	d.restart() // what is to be taken back is not forgotten
	d.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	ctx, cancel := context.WithCancel(within(t))
	var delivering conc.WaitGroup
	delivering.Go(func() { _ = d.box.Run(ctx, d.api.DeliverKept) })
	_ = d.reports.Watch(ctx, func(e bus.Entry[train.AttemptReport], _ bool) {
		if !e.Value.StopAnswered {
			cancel()
		}
	}, nil)
	delivering.Wait()
	if d.report(1).StopAnswered {
		t.Error("recorded and not told")
	}
	d.want("GET", "/has_to_stop/"+capability, "", 200, "1")
	if !d.report(1).StopAnswered {
		t.Error("told and not recorded")
	}
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
	if err := d.api.ReadOut(within(t), attempt(1)); err != nil {
		t.Error(err)
	}
	if n := d.box.Len(); n != 5 {
		t.Errorf("%d items on disk, want 5", n)
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
		if last = e.Value; last.OutputRead {
			cancel()
		}
	}, nil); err != nil {
		t.Fatal(err)
	}
	if last.EpochsDone != 3 || last.Checkpoint != "/p" || !last.Spoke || last.Ended != "finished" {
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
