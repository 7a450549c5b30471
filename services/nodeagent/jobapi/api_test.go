package jobapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/joblog/epochs"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The answers to heartbeats and to control repeat the wanted micro-batch, and a heartbeat reports the one in use.
func TestMicroBatches(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	b.want("POST", base+"/steps", `{"step":1,"rank":1}`, 200, "{}")
	b.wanted = &train.TunedJob{Job: "j1", Attempt: 1, MicroBatch: 8, Accumulation: 4}
	const wanted = `"micro_batch":8,"accumulation":4,"generation":9}`
	b.want("POST", base+"/steps", `{"step":2,"rank":2}`, 200, "{"+wanted)
	b.want("POST", base+"/steps", `{"step":2,"rank":0,"micro_batch":8,"generation":9}`, 200, "{"+wanted)
	b.want("GET", base+"/control?epochs_done=0", "", 200, `{"stop":false,`+wanted)
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	b.wantError("POST", base+"/steps", `{"step":3,"micro_batch":-1,"generation":-1}`, 400, "BadRequest", "micro_batch: want 0 or more, found -1; generation: want 0 or more, found -1")
	reported := map[int]event.Stepped{}
	for _, beat := range facts[event.Stepped](b, event.StreamSamples, event.FactStepped, 3) {
		reported[beat.Rank] = beat
	}
	if reported[0].MicroBatch != 8 || reported[0].Generation != 9 || reported[1].MicroBatch != 0 {
		t.Errorf("got %+v", reported)
	}
	// A setting for one attempt does not apply to the next one.
	next := attempt(2)
	b.put(next)
	b.want("POST", "/attempt/"+token+"2/v1/jobs/"+capability+"/steps", `{"step":3}`, 200, "{}")
}

// TestThePlannedBatch: every answer has the batch of the newest plan, in passes that suit a shared device, and what the
// code ran with is in the epoch and in the report.
func TestThePlannedBatch(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	a := attempt(1)
	a.Batch, a.BatchGeneration = train.Batch{Samples: 50, LocalBatch: 13, Accumulation: 1}, 3
	b.put(a)
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	b.want("POST", base+"/steps", `{"step":1}`, 200, `{"micro_batch":13,"accumulation":2,"generation":3,"global_batch":50}`)
	b.wanted = &train.TunedJob{Job: "j1", Attempt: 1, MicroBatch: 8, Accumulation: 4}
	b.want("POST", base+"/steps", `{"step":2}`, 200, `{"micro_batch":8,"accumulation":4,"generation":9,"global_batch":50}`)
	b.want("POST", base+"/epochs", `{"epochs_done":1,"global_batch":50,"micro_batch":8,"accumulation":4}`, 200, "{}")
	want := train.Batch{Samples: 50, LocalBatch: 8, Accumulation: 3}
	if r := b.report(1); r.Batch != want {
		t.Errorf("report %+v", r)
	}
	// An older batch that the code follows by its generation counts as followed, one of its own does not.
	b.want("POST", base+"/epochs", `{"epochs_done":2,"global_batch":40,"micro_batch":8,"accumulation":3,"generation":2}`, 200, "{}")
	b.want("POST", base+"/epochs", `{"epochs_done":3,"global_batch":40,"micro_batch":20,"accumulation":1}`, 200, "{}")
	b.want("POST", base+"/epochs", `{"epochs_done":4,"micro_batch":20,"generation":3}`, 200, "{}")
	for i, e := range facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 4) {
		if i == 0 && e.Batch != want || e.BatchIgnored != (i >= 2) {
			t.Errorf("epoch %+v", e)
		}
	}
}

// Larger steps are recorded before the code is asked for them.
func TestLargerStepsAreRecordedFirst(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	b.wanted = &train.TunedJob{Job: "j1", Attempt: 1, MicroBatch: 8, Accumulation: 4}
	b.want("POST", base+"/steps", `{"step":1}`, 200, `{"micro_batch":8,"accumulation":4,"generation":9}`)
	if b.report(1).Enlarged {
		t.Error("steps of the submitted batch count as larger ones")
	}
	b.wanted = &train.TunedJob{Job: "j1", Attempt: 1, MicroBatch: 64, Accumulation: 1, Enlarged: true}
	b.want("POST", base+"/steps", `{"step":2}`, 200, `{"micro_batch":64,"accumulation":1,"generation":9}`)
	if r := b.report(1); !r.Enlarged || !r.Spoke {
		t.Errorf("report %+v", r)
	}
}

// A process that reads epochs in the output of code reports them like the code, but does not suggest that the code
// can be asked to leave.
func TestOverheardEpochs(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	const epochs = "/attempt/" + token + "1/v1/jobs/" + capability + "/epochs"
	for range 2 {
		b.want("POST", epochs, `{"epochs_done":1,"epoch_seconds":3.5,"metrics":{"accuracy":0.5},"loss":null,"overheard":true}`, 200, "{}")
	}
	if reported := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 1); reported[0].Metrics["accuracy"] != 0.5 || reported[0].EpochSeconds != 3.5 {
		t.Errorf("got %+v", reported)
	}
	if r := b.report(1); r.Spoke || r.EpochsDone != 1 {
		t.Errorf("report %+v", r)
	}
	b.want("POST", epochs, `{"epochs_done":2}`, 200, "{}")
	if r := b.report(1); !r.Spoke || r.EpochsDone != 2 {
		t.Errorf("report %+v", r)
	}
}

// Epochs that this agent has read in the output of a pod are published as if a supervisor had sent them, once, also
// by the next agent, and to the end of the output.
func TestTheAgentReadsOutput(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hear := func(epoch int) {
		t.Helper()
		e := epochs.Epoch{Epoch: epoch, Seconds: 3.5, Iterations: 4, Records: 128, Metrics: map[string]float64{"accuracy": 0.5}}
		if err := b.api.Overhear(within(t), attempt(1), e, at); err != nil {
			t.Error(err)
		}
	}
	hear(1)
	hear(1)
	hear(1 << 30) // no training gets that far
	over := attempt(1)
	over.Phase = train.PhaseExited
	b.put(over)
	b.restart()
	hear(1)
	hear(2)
	for range 2 {
		if err := b.api.ReadOut(within(t), over); err != nil {
			t.Error(err)
		}
	}
	reported := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 2)
	if reported[0].EpochsDone != 1 || reported[1].EpochsDone != 2 || reported[1].EpochSeconds != 3.5 || reported[1].Steps != 4 || reported[1].Metrics["accuracy"] != 0.5 {
		t.Errorf("got %+v", reported)
	}
	if n := b.stored(event.StreamJobs); n != 2 {
		t.Errorf("%d facts", n)
	}
	if r := b.report(1); r.Spoke || r.EpochsDone != 2 || !r.OutputRead {
		t.Errorf("report %+v", r)
	}
}

func TestTheRicherRequests(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	b.batchesSince = time.Unix(1_000_000, 0).UTC()
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	b.want("GET", base+"/control?epochs_done=0&rank=0", "", 200, `{"stop":false,"micro_batch":null,"accumulation":null,"generation":0}`)
	b.want("POST", base+"/steps", `{"step":4,"epoch":0,"steps":4,"step_seconds":0.5,"wait_seconds":0.125,"samples":64,"rank":0,"loss":2.5,"gpu_memory_bytes":1000}`, 200, "{}")
	b.want("POST", base+"/steps", `{"step":8,"epoch":0,"steps":12,"step_seconds":0.1,"samples":64,"rank":0}`, 200, "{}")
	b.want("POST", base+"/checkpoints", `{"epochs_done":1,"path":"/snapshots/x","bytes":9,"seconds":0.25}`, 200, "{}")
	epoch := `{"epochs_done":1,"epoch_seconds":3.5,"steps":16,"samples":128,"rank":0,"loss":1.5,"metrics":{"accuracy":0.5},"grad_sqr":-0.1,"grad_var":2}`
	b.want("POST", base+"/epochs", epoch, 200, "{}")
	b.want("POST", base+"/epochs", epoch, 200, "{}")
	b.want("POST", base+"/epochs", `{"epochs_done":1,"rank":1}`, 200, "{}")
	b.want("POST", base+"/end", `{"outcome":"finished","epochs_done":1,"message":""}`, 200, "{}")

	number := func(v float64) *float64 { return &v }
	want := event.EpochEnded{
		Attempt: 1, EpochsDone: 1, EpochSeconds: 3.5, StepSeconds: (4*0.5 + 12*0.1) / 16, Steps: 16, Samples: 128, Loss: number(1.5),
		Metrics: map[string]float64{"accuracy": 0.5}, GradSquared: number(-0.1), GradVariance: number(2), MemoryBytes: 1000, Devices: 2,
		BatchesSince: time.Unix(1_000_000, 0).UTC(),
	}
	if diff := cmp.Diff(want, facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 1)[0]); diff != "" {
		t.Errorf("epoch_ended (-want +got)\n%s", diff)
	}
	saved := event.CheckpointWritten{Attempt: 1, EpochsDone: 1, Path: "/snapshots/x", Size: 9, Seconds: 0.25}
	if diff := cmp.Diff(saved, facts[event.CheckpointWritten](b, event.StreamJobs, event.FactCheckpointWritten, 1)[0]); diff != "" {
		t.Errorf("checkpoint_written (-want +got)\n%s", diff)
	}
	if n := b.stored(event.StreamJobs); n != 2 {
		t.Errorf("%d facts of the job, want 2: repetitions and other ranks add nothing", n)
	}
	// The second heartbeat came less than half a second after the first.
	beat := facts[event.Stepped](b, event.StreamSamples, event.FactStepped, 1)[0]
	if diff := cmp.Diff(event.Stepped{
		Job: "j1", Attempt: 1, Step: 4, Steps: 4, StepSeconds: 0.5, WaitSeconds: 0.125, Samples: 64, Loss: number(2.5), MemoryBytes: 1000, Devices: 2,
	}, beat); diff != "" {
		t.Errorf("stepped (-want +got)\n%s", diff)
	}
	reported := b.report(1)
	if diff := cmp.Diff(train.AttemptReport{
		Job: "j1", Attempt: 1, EpochsDone: 1, Spoke: true, Ended: "finished", Checkpoint: "/snapshots/x", CheckpointEpochs: 1,
		Steps: train.Steps{Epoch: 1, Total: 8, Seconds: 0.1, At: reported.Steps.At},
	}, reported); diff != "" {
		t.Errorf("report (-want +got)\n%s", diff)
	}
}

// The memory of an epoch is what the driver has seen, if that is more than the code knows of, for example its context
// on the device.
func TestEpochsHaveTheMemoryThatWasSeen(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	const epochs = "/attempt/" + token + "1/v1/jobs/" + capability + "/epochs"
	b.seen = 1500
	b.want("POST", epochs, `{"epochs_done":1,"gpu_memory_bytes":1000}`, 200, "{}")
	b.want("POST", epochs, `{"epochs_done":2,"gpu_memory_bytes":2000}`, 200, "{}")
	reported := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 2)
	if reported[0].MemoryBytes != 1500 || reported[1].MemoryBytes != 2000 {
		t.Errorf("epochs of %d and %d bytes, want 1500 and 2000", reported[0].MemoryBytes, reported[1].MemoryBytes)
	}
}

func TestWhichAttemptsAreServed(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.wantError("GET", "/has_to_stop/"+capability, "", 404, "UnknownJob", "JOB_UUID")
	b.wantError("GET", "/nowhere", "", 404, "NotFound", "/nowhere")
	b.wantError("GET", "/end_epoch/"+capability, "", 404, "NotFound", "/end_epoch")
	// A job that was started a moment ago is found without a watch.
	if _, err := b.attempts.Swap(within(t), "j1", attempt(1), 0); err != nil {
		t.Fatal(err)
	}
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	b.want("GET", "/attempt/"+token+"1/has_to_stop/"+capability, "", 200, "0")
	b.wantError("GET", "/attempt/wrong/has_to_stop/"+capability, "", 409, "FencedOff", "newer")
	b.wantError("GET", "/has_to_stop/"+train.Hash(capability), "", 404, "UnknownJob", "JOB_UUID")

	// A newer attempt fences off the older one, even if the watch lags behind.
	e, err := b.attempts.Get(within(t), "j1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.attempts.Swap(within(t), "j1", attempt(2), e.Revision); err != nil {
		t.Fatal(err)
	}
	b.want("GET", "/attempt/"+token+"2/has_to_stop/"+capability, "", 200, "0")
	b.wantError("POST", "/attempt/"+token+"1/end_epoch/"+capability, `{"done":1}`, 409, "FencedOff", "newer")
	b.want("POST", "/end_epoch/"+capability, `{"done":1}`, 200, "ok")
	if r := b.report(2); r.EpochsDone != 1 {
		t.Errorf("report of the newest attempt %+v", r)
	}

	// An attempt that has ended, and one on another node.
	ended := attempt(2)
	ended.Phase = train.PhaseExited
	b.put(ended)
	b.wantError("GET", "/has_to_stop/"+capability, "", 409, "FencedOff", "ended")
	elsewhere := attempt(3)
	elsewhere.Node = "n2"
	b.put(elsewhere)
	b.wantError("GET", "/attempt/"+token+"3/has_to_stop/"+capability, "", 409, "FencedOff", "ended")
}

// Each request is sent with guesses, with the hashes that are on the bus, with the token of another attempt, by an
// attempt that is over, and about a job on another node: each is refused, and changes nothing.
func TestEveryRequestIsAttacked(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	over, elsewhere := attempt(1), attempt(1)
	over.Job, over.Phase, over.CapabilityHash = "over", train.PhaseExited, train.Hash("over")
	elsewhere.Job, elsewhere.Node, elsewhere.CapabilityHash = "elsewhere", "n2", train.Hash("elsewhere")
	for _, a := range []train.Attempt{attempt(1), over, elsewhere} {
		b.put(a)
	}
	for _, r := range b.api.routes() {
		for _, attack := range []struct{ token, capability string }{
			{"", "guessed"},
			{"", train.Hash(capability)},
			{"/attempt/guessed", capability},
			{"/attempt/" + train.Hash(token+"1"), capability},
			{"/attempt/" + token + "2", capability},
			{"/attempt/" + token + "1", "over"},
			{"/attempt/" + token + "1", "elsewhere"},
			{"/attempt/..%2f..%2fetc", capability},
			{"", "..%2fj1"},
		} {
			path := attack.token + strings.Replace(r.path, "{capability}", attack.capability, 1)
			if status, text := b.do(r.method, path, `{"done": 1}`); status != http.StatusNotFound && status != http.StatusConflict {
				t.Errorf("%s %s: %d %s", r.method, path, status, text)
			}
		}
	}
	if entries, err := b.reports.List(within(t)); err != nil || len(entries) > 0 {
		t.Errorf("reports of strangers: %+v, %v", entries, err)
	}
	if last, err := b.bus.LastSequence(within(t), event.StreamJobs); err != nil || last > 0 {
		t.Errorf("%d facts of strangers, %v", last, err)
	}
}

func TestBadBodies(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	v1 := "/v1/jobs/" + capability
	for _, c := range []struct{ path, body, words string }{
		{"/end_epoch/" + capability, ``, "no JSON: unexpected end"},
		{"/end_epoch/" + capability, `[]`, "want an object, found a list"},
		{"/end_epoch/" + capability, `{}`, "done: is missing"},
		{"/end_epoch/" + capability, `{"done": -1}`, "done: want 0 or more, found -1"},
		{"/end_epoch/" + capability, `{"done": 1.5}`, "done: want a whole number, found 1.5"},
		{"/end_epoch/" + capability, `{"done": "2"}`, "done: want a whole number, found \"2\""},
		{"/end_epoch/" + capability, `{"done": 1000001}`, "done: want at most 1000000, found 1000001"},
		{"/end_epoch/" + capability, `{"done": 2} {"done": 3}`, "line 1, column 13: no JSON"},
		{"/profiling/" + capability, `{"iternum": 1, "meandur": NaN}`, "meandur: NaN is no JSON number"},
		{"/end_epoch/" + capability, `{"done": 2, "done": 3}`, "done: given twice"},
		{"/end_epoch/" + capability, "{\"done\": 2, \"by\": \"\xff\"}", "not UTF-8"},
		{"/end_epoch/" + capability, `{"done": 2, "by": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "nested deeper"},
		{"/profiling/" + capability, `{"iternum": 1, "meandur": 1e999}`, "meandur: want a finite number"},
		{"/profiling/" + capability, `{"iternum": 1, "meandur": -1, "epochDur": -2}`, "meandur: want 0 or more, found -1; epochDur: want 0 or more, found -2"},
		{v1 + "/steps", `{"step": 1, "rank": 70000, "samples": -4}`, "rank: want 0 to 65535, found 70000; samples: want 0 or more, found -4"},
		{v1 + "/steps", `{"step": 1, "metrics": {"a": "b"}}`, "metrics"},
		{v1 + "/steps", `{"step": 1, "steps": true}`, "steps: want a whole number, found true"},
		{v1 + "/steps", `{"step": 9007199254740993000}`, "step: want at most"},
		{v1 + "/epochs", `{"epochs_done": 1, "epoch_seconds": 1e12}`, "epoch_seconds: want at most"},
		{v1 + "/checkpoints", `{"epochs_done": 1, "path": ""}`, "path: want 1 to"},
		{v1 + "/checkpoints", `{"epochs_done": 1, "path": "a\u0000b"}`, "path: want 1 to"},
		{v1 + "/end", `{"outcome": "bored"}`, "outcome: want finished, stopped or failed"},
	} {
		b.wantError("POST", c.path, c.body, 400, "BadRequest", c.words)
	}
	b.wantError("POST", v1+"/steps", `{"step":1,"x":"`+strings.Repeat("y", 70<<10)+`"}`, 413, "TooLarge", "read the body")
	if n := b.stored(event.StreamJobs); n != 0 {
		t.Errorf("%d facts of refused requests", n)
	}
}

// An epoch with more metrics than are kept counts, with those of the shortest names.
func TestMetricsAreLeftOut(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	many := map[string]float64{"accuracy": 0.5, "nonfinite_f1": 1, "": 1, strings.Repeat("x", maxMetricName+1): 1}
	for i := range 2 * maxMetrics {
		many[fmt.Sprint("gradient/layer", i)] = 1
	}
	body, err := json.Marshal(map[string]any{"epochs_done": 1, "metrics": many})
	if err != nil {
		t.Fatal(err)
	}
	b.want("POST", "/attempt/t0k3n1/v1/jobs/"+capability+"/epochs", string(body), 200, "{}")
	ended := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 1)[0]
	if len(ended.Metrics) != maxMetrics || ended.Metrics["accuracy"] != 0.5 || ended.Metrics["nonfinite_f1"] != 1 {
		t.Errorf("%d metrics: %v", len(ended.Metrics), ended.Metrics)
	}
}

func TestAStopIsRecordedBeforeItIsAnswered(t *testing.T) {
	s := bustest.Start(t)
	b := newBench(t, s)
	a := attempt(1)
	b.put(a)
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	a.Stop = train.StopRescale
	b.put(a)
	s.Stop()
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
}

func TestAStopThatWasPerhapsRecordedIsWithdrawn(t *testing.T) {
	s := bustest.Start(t)
	b := newBench(t, s)
	a := attempt(1)
	a.Stop = train.StopPreempt
	b.put(a)
	raw, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	js, err := jetstream.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(within(t), string(contract.Reports)); err != nil {
		t.Fatal(err)
	}
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	// It was recorded all the same.
	if err := b.bus.Ensure(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.reports.Swap(within(t), contract.ReportKey("j1", 1), train.AttemptReport{Job: "j1", Attempt: 1, Spoke: true, StopAnswered: true}, 0); err != nil {
		t.Fatal(err)
	}
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	b.restart() // what has to be withdrawn is not forgotten
	b.want("GET", "/has_to_stop/"+capability, "", 200, "0")
	ctx, cancel := context.WithCancel(within(t))
	var delivering conc.WaitGroup
	delivering.Go(func() { _ = b.box.Run(ctx, b.api.DeliverKept) })
	for b.box.Len() > 0 && ctx.Err() == nil {
		tick.Pause(ctx, time.Millisecond)
	}
	cancel()
	delivering.Wait()
	if b.report(1).StopAnswered {
		t.Error("recorded and not answered")
	}
	b.want("GET", "/has_to_stop/"+capability, "", 200, "1")
	if !b.report(1).StopAnswered {
		t.Error("answered and not recorded")
	}
}

func TestAStopAnswerStands(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	a := attempt(1)
	a.Stop = train.StopPreempt
	b.put(a)
	b.want("GET", "/has_to_stop/"+capability, "", 200, "1")
	if !b.report(1).StopAnswered {
		t.Error("answered and not recorded")
	}
	a.Stop = train.StopNone
	b.put(a)
	b.want("GET", "/has_to_stop/"+capability, "", 200, "1")
	b.restart()
	b.want("GET", "/has_to_stop/"+capability, "", 200, "1")
}

func TestProcessesOfAnAttemptGetTheSameAnswer(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	a := attempt(1)
	b.put(a)
	ask := func(epochs, rank int) bool {
		t.Helper()
		status, body := b.do("GET", fmt.Sprintf("/v1/jobs/%s/control?epochs_done=%d&rank=%d", capability, epochs, rank), "")
		var given controlRecord
		if err := json.Unmarshal([]byte(body), &given); err != nil || status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		return given.Stop
	}
	if ask(3, 0) {
		t.Error("a stop without a request")
	}
	a.Stop = train.StopPreempt
	b.put(a)
	if ask(3, 1) {
		t.Error("rank 1 gets a stop that rank 0 did not get")
	}
	if !ask(4, 1) || !ask(4, 0) {
		t.Error("no stop at the next epoch's end")
	}
}

func TestFactsSurviveABusThatIsAway(t *testing.T) {
	dir := t.TempDir()
	s, err := busserver.Start(busserver.Options{Open: true, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	port := s.Port()
	b := newBench(t, s)
	b.put(attempt(1))
	b.want("POST", "/end_epoch/"+capability, `{"done":1}`, 200, "ok")
	s.Stop()
	b.want("POST", "/end_epoch/"+capability, `{"done":2}`, 200, "ok")
	b.want("POST", "/v1/jobs/"+capability+"/checkpoints", `{"epochs_done":2,"path":"/p"}`, 200, "{}")
	b.want("POST", "/end_epoch/"+capability, `{"done":3}`, 200, "ok")
	b.want("POST", "/v1/jobs/"+capability+"/end", `{"outcome":"finished","epochs_done":3}`, 200, "{}")
	b.want("POST", "/v1/jobs/"+capability+"/steps", `{"step":1}`, 200, "{}")
	if err := b.api.ReadOut(within(t), attempt(1)); err != nil {
		t.Error(err)
	}
	if n := b.box.Len(); n != 5 {
		t.Errorf("%d items on disk, want 5", n)
	}
	// The agent dies as well; what it acknowledged is on disk.
	b.restart()
	if s, err = busserver.Start(busserver.Options{Open: true, Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b.background()
	got := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 3)
	for i, g := range got {
		if g.EpochsDone != i+1 {
			t.Errorf("fact %d is about epoch %d: out of order", i, g.EpochsDone)
		}
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var last train.AttemptReport
	if err := b.reports.Watch(ctx, func(e bus.Entry[train.AttemptReport], _ bool) {
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
	b := newBench(t, s)
	s.Stop()
	b.wantError("GET", "/has_to_stop/"+capability, "", 503, "Unavailable", "cannot be read")
}

func TestALateReportOfTheLastEpochIsRecorded(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	b.want("POST", "/v1/jobs/"+capability+"/end", `{"outcome":"finished","epochs_done":2}`, 200, "{}")
	b.want("POST", "/v1/jobs/"+capability+"/epochs", `{"epochs_done":2,"epoch_seconds":4}`, 200, "{}")
	if got := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 1)[0]; got.EpochSeconds != 4 {
		t.Errorf("%+v", got)
	}
}

func TestSignalEnd(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	b.want("POST", "/signal_end/"+capability, "", 200, "ok")
	if r := b.report(1); r.Ended != "finished" || !r.Spoke {
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
