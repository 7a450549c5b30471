package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/checkpoint"
)

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "gotrainer")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build trainer: %v\n%s", err, out)
	}
	return binary
}

// agent is a job API that asks to stop after an epoch, and signals heartbeats to a test.
type agent struct {
	*httptest.Server
	mu        sync.Mutex
	calls     []string
	beats     []map[string]any
	bodies    map[string]map[string]any // the last of each kind
	stopAfter int
	tune      []int // another of these micro-batches after every heartbeat
	grow      []int // another of these global batches after every heartbeat
	done      int
	beat      chan struct{} // one token once a heartbeat has come
}

func newAgent(t *testing.T, stopAfter int) *agent {
	a := &agent{stopAfter: stopAfter, bodies: map[string]map[string]any{}, beat: make(chan struct{}, 1)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		kind := strings.TrimPrefix(r.URL.Path, "/attempt/tok/v1/jobs/job/")
		if kind == "control" {
			a.calls = append(a.calls, "control")
			fmt.Fprintf(w, `{"stop":%t}`, a.stopAfter > 0 && a.done >= a.stopAfter)
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		a.take(kind, body)
		if len(a.tune) > 0 && kind == "steps" {
			generation := len(a.beats)
			fmt.Fprintf(w, `{"micro_batch":%d,"accumulation":2,"generation":%d}`, a.tune[generation%len(a.tune)], generation)
		}
		if len(a.grow) > 0 && kind == "steps" {
			global := a.grow[len(a.beats)%len(a.grow)]
			fmt.Fprintf(w, `{"micro_batch":10,"accumulation":2,"generation":%d,"global_batch":%d}`, len(a.beats), global)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *agent) take(kind string, body map[string]any) {
	a.bodies[kind] = body
	if kind == "steps" {
		a.beats = append(a.beats, body)
		select {
		case a.beat <- struct{}{}:
		default:
		}
		return
	}
	word := fmt.Sprintf("%s %v", kind, body["epochs_done"])
	if kind == "end" {
		word += fmt.Sprint(" ", body["outcome"])
	}
	if kind == "epochs" {
		a.done = int(body["epochs_done"].(float64))
	}
	a.calls = append(a.calls, word)
}

// hold keeps handlers out while a test reads; a client may be gone with its answer before its handler returns.
func (a *agent) hold(read func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	read()
}

func (a *agent) api() string { return a.URL + "/attempt/tok" }

// attempt is the processes of one start of a job.
type attempt struct {
	commands []*exec.Cmd
	stdout   []*bytes.Buffer
	stderr   []*bytes.Buffer
}

func start(t *testing.T, binary, dir, api string, number, processes int, args ...string) *attempt {
	t.Helper()
	a := &attempt{}
	port := freePort(t)
	for rank := range processes {
		c := exec.CommandContext(t.Context(), binary, smallNet(args...)...)
		c.Env = []string{
			"JOB_UUID=job", "SWITCHYARD_SNAPSHOTS_DIR=" + dir, "SWITCHYARD_JOB_API=" + api, "HEARTBEAT_FREQ=2",
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, "RANK=" + strconv.Itoa(rank),
			"WORLD_SIZE=" + strconv.Itoa(processes), "NUM_GPUS=" + strconv.Itoa(processes),
			"TRAIN_LEDGER=" + filepath.Join(dir, "ledger"), "SWITCHYARD_JOB=mnist",
			"SWITCHYARD_ATTEMPT=" + strconv.Itoa(number), "SWITCHYARD_DEVICES=cpu:" + strconv.Itoa(rank),
		}
		out, complaints := &bytes.Buffer{}, &bytes.Buffer{}
		c.Stdout, c.Stderr = out, complaints
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		a.commands, a.stdout, a.stderr = append(a.commands, c), append(a.stdout, out), append(a.stderr, complaints)
	}
	return a
}

// code waits for a process and returns its exit code.
func (a *attempt) code(t *testing.T, rank int) int {
	t.Helper()
	err := a.commands[rank].Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return a.commands[rank].ProcessState.ExitCode()
}

func (a *attempt) wantCodes(t *testing.T, want int) {
	t.Helper()
	for rank := range a.commands {
		if got := a.code(t, rank); got != want {
			t.Errorf("rank %d exits with %d, want %d; it says %s", rank, got, want, a.stderr[rank])
		}
	}
}

type ledgerLine struct {
	Event       string  `json:"event"`
	Job         string  `json:"job"`
	Attempt     int     `json:"attempt"`
	PID         int     `json:"pid"`
	Rank        int     `json:"rank"`
	Epoch       int     `json:"epoch"`
	Devices     string  `json:"devices"`
	UnixSeconds float64 `json:"unix_seconds"`
}

// ledgerOf reads what one rank of one attempt wrote, as "event epoch".
func ledgerOf(t *testing.T, dir string, number, rank int) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for text := range strings.Lines(string(data)) {
		var line ledgerLine
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&line); err != nil {
			t.Fatalf("ledger line %q: %v", text, err)
		}
		if line.Attempt != number || line.Rank != rank {
			continue
		}
		if line.Job != "mnist" || line.PID == 0 || line.UnixSeconds < 1e9 || line.Devices != fmt.Sprintf("cpu:%d", rank) {
			t.Errorf("ledger line %s", text)
		}
		events = append(events, fmt.Sprint(line.Event, " ", line.Epoch))
	}
	return events
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q\nwant %q", what, got, want)
	}
}

func TestTwoProcessesStopWhenAskedAndResume(t *testing.T) {
	binary, dir, straight := build(t), t.TempDir(), t.TempDir()
	a := newAgent(t, 2)
	start(t, binary, dir, a.api(), 1, 2, "-epochs", "4").wantCodes(t, 0)
	a.hold(func() {
		wantLines(t, "calls", a.calls, "checkpoints 1", "epochs 1", "control", "checkpoints 2", "epochs 2", "control",
			"end 2 stopped")
		a.calls, a.beats, a.stopAfter = nil, nil, 4 // a request to stop after the last epoch has no effect
	})
	wantLines(t, "ledger of rank 0", ledgerOf(t, dir, 1, 0), "start 0", "epoch 1", "epoch 2", "exit 2")
	wantLines(t, "ledger of rank 1", ledgerOf(t, dir, 1, 1), "start 0", "epoch 1", "epoch 2", "exit 2")

	second := start(t, binary, dir, a.api(), 2, 2, "-epochs", "4")
	second.wantCodes(t, 0)
	a.hold(func() {
		wantLines(t, "calls", a.calls, "checkpoints 3", "epochs 3", "control", "checkpoints 4", "epochs 4", "control",
			"end 4 finished")
		wantHeartbeats(t, a)
	})
	wantLines(t, "ledger of rank 0", ledgerOf(t, dir, 2, 0), "start 2", "epoch 3", "epoch 4", "exit 4")
	if out := second.stdout[0].String(); strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, "epoch 3/4 loss ") {
		t.Errorf("output %q", out)
	}

	mustRun(t, straight, 2, 1, 4)
	if !bytes.Equal(snapshot(t, straight, checkpoint.CurrentName), snapshot(t, dir, checkpoint.CurrentName)) {
		t.Error("stopped and resumed, the training ends elsewhere than in one go")
	}
}

// 210 samples in batches of 2 x 16: 7 steps an epoch, in heartbeats of 2, 2, 2 and 1, after 14 steps of the first
// attempt. Both ranks send them, so that the slower one can be found: each waits for the other, but never longer than
// its step takes.
func wantHeartbeats(t *testing.T, a *agent) {
	t.Helper()
	beats := [2][]string{}
	for _, b := range a.beats {
		rank := int(b["rank"].(float64))
		beats[rank] = append(beats[rank], fmt.Sprint(b["epoch"], " ", b["step"], " ", b["steps"], " ", b["samples"]))
		if b["loss"].(float64) <= 0 || b["step_seconds"].(float64) <= 0 || b["grad_var"].(float64) <= 0 ||
			b["wait_seconds"].(float64) <= 0 || b["wait_seconds"].(float64) > b["step_seconds"].(float64) {
			t.Errorf("heartbeat %v", b)
		}
	}
	for rank := range beats {
		wantLines(t, fmt.Sprintf("heartbeats of rank %d", rank), beats[rank],
			"2 16 2 64", "2 18 2 64", "2 20 2 64", "2 21 1 18", "3 23 2 64", "3 25 2 64", "3 27 2 64", "3 28 1 18")
	}
	epoch := a.bodies["epochs"]
	if epoch["steps"] != 7.0 || epoch["samples"] != 210.0 || epoch["epoch_seconds"].(float64) <= 0 ||
		epoch["metrics"].(map[string]any)["accuracy"].(float64) <= 0 {
		t.Errorf("epoch %v", epoch)
	}
	info, err := os.Stat(a.bodies["checkpoints"]["path"].(string))
	if err != nil || float64(info.Size()) != a.bodies["checkpoints"]["bytes"] {
		t.Errorf("checkpoint %v: %v", a.bodies["checkpoints"], err)
	}
}

// The micro-batch changes in mid-epoch and nothing else does: no sample is dropped or seen twice, and the training ends
// with the same bytes.
func TestMicroBatchesDoNotChangeTheTraining(t *testing.T) {
	binary, dir, straight := build(t), t.TempDir(), t.TempDir()
	a := newAgent(t, 0)
	a.tune = []int{4, 8, 12, 16} // the network sums four samples at a time, so these give the same bytes as one pass
	start(t, binary, dir, a.api(), 1, 1, "-epochs", "3").wantCodes(t, 0)
	a.hold(func() { wantFollowed(t, a) })
	mustRun(t, straight, 1, 1, 3)
	if !bytes.Equal(snapshot(t, straight, checkpoint.CurrentName), snapshot(t, dir, checkpoint.CurrentName)) {
		t.Error("with micro-batches the training ends elsewhere")
	}
}

// wantFollowed checks that every desired micro-batch is used between two steps, and that the heartbeats report it.
func wantFollowed(t *testing.T, a *agent) {
	t.Helper()
	if len(a.beats) < len(a.tune) {
		t.Fatalf("only %d heartbeats", len(a.beats))
	}
	for i, b := range a.beats {
		want := []float64{16, 0}
		if i > 0 {
			want = []float64{float64(a.tune[i%len(a.tune)]), float64(i)}
		}
		if b["micro_batch"] != want[0] || b["generation"] != want[1] {
			t.Errorf("heartbeat %d says it ran with %v of generation %v, want %v", i, b["micro_batch"], b["generation"], want)
		}
	}
}

// More than the batch is a larger step: no sample is dropped or seen twice, and there are fewer steps.
func TestALargerMicroBatchIsALargerStep(t *testing.T) {
	binary, dir := build(t), t.TempDir()
	a := newAgent(t, 0)
	a.tune = []int{32, 64}
	start(t, binary, dir, a.api(), 1, 1, "-epochs", "3").wantCodes(t, 0)
	a.hold(func() {
		wantFollowed(t, a)
		last := a.bodies["epochs"]
		if steps := last["steps"].(float64); last["samples"] != 210.0 || steps > 6 || steps < 210/64 {
			t.Errorf("the last epoch has %v samples in %v steps, want 210 in steps of 32 and 64", last["samples"], steps)
		}
	})

	several := newAgent(t, 0)
	several.tune = []int{32}
	start(t, binary, t.TempDir(), several.api(), 1, 2, "-epochs", "1").wantCodes(t, 0)
	several.hold(func() {
		for i, b := range several.beats {
			if b["micro_batch"] != 16.0 {
				t.Errorf("heartbeat %d of two processes says that they step by %v", i, b["micro_batch"])
			}
		}
	})
}

// The global batch changes in mid-epoch, without a restart, in all processes at the same step; each hears of it at
// another time. The code reports what it ran.
func TestTheGlobalBatchChangesWithoutARestart(t *testing.T) {
	binary := build(t)
	for _, rule := range []string{"adascale", "linear"} {
		a := newAgent(t, 0)
		a.grow = []int{32, 45, 64}
		start(t, binary, t.TempDir(), a.api(), 1, 2, "-epochs", "3", "-global-batch", "32", "-lr-rule", rule).wantCodes(t, 0)
		a.hold(func() {
			ran := map[any]map[float64]bool{} // by step
			seen := map[float64]bool{}
			for _, b := range a.beats {
				if ran[b["step"]] == nil {
					ran[b["step"]] = map[float64]bool{}
				}
				global := b["global_batch"].(float64)
				ran[b["step"]][global], seen[global] = true, true
				if global > 2*b["micro_batch"].(float64)*b["accumulation"].(float64) {
					t.Errorf("%s: passes of %v add up to less than the step: %v", rule, b["micro_batch"], b)
				}
			}
			for step, batches := range ran {
				if len(batches) != 1 {
					t.Errorf("%s: at step %v the processes ran %v", rule, step, batches)
				}
			}
			if last := a.bodies["epochs"]; len(seen) < 2 || last["samples"] != 210.0 || last["grad_var"].(float64) <= 0 || !seen[last["global_batch"].(float64)] {
				t.Errorf("%s: ran %v, last epoch %v", rule, seen, last)
			}
		})
	}
}

// forever has more epochs than any test waits for, and a ring that would wait long.
func forever() []string { return []string{"-epochs", "100000000", "-ring-timeout", "30m"} }

func TestDeathOfAPeerEndsTheOthers(t *testing.T) {
	binary, dir := build(t), t.TempDir()
	for number, victim := range []int{2, 0} {
		a := newAgent(t, 0)
		job := start(t, binary, dir, a.api(), number+1, 3, forever()...)
		<-a.beat
		if err := job.commands[victim].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for rank := range job.commands {
			code := job.code(t, rank)
			if rank != victim && (code != 1 || !strings.Contains(job.stderr[rank].String(), "peer lost")) {
				t.Errorf("rank %d exits with %d after the death of rank %d; it says %s", rank, code, victim, job.stderr[rank])
			}
		}
		a.hold(func() {
			if end := a.bodies["end"]; end != nil {
				t.Errorf("a lost peer is reported as this process's own end: %v", end)
			}
		})
	}
	// The next attempt must be able to use what the killed ones left.
	last := newAgent(t, 1)
	start(t, binary, dir, last.api(), 3, 3, forever()...).wantCodes(t, 0)
}

func TestTermination(t *testing.T) {
	binary, dir := build(t), t.TempDir()
	a := newAgent(t, 0)
	job := start(t, binary, dir, a.api(), 1, 1, forever()...)
	<-a.beat
	if err := job.commands[0].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	job.wantCodes(t, 143)
	events := ledgerOf(t, dir, 1, 0)
	if last := events[len(events)-1]; !strings.HasPrefix(last, "exit ") {
		t.Errorf("ledger ends with %q", last)
	}
}

func TestTrainingGoesOnWithoutTheAPI(t *testing.T) {
	binary, dir := build(t), t.TempDir()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	job := start(t, binary, dir, gone.URL+"/attempt/tok", 1, 2, "-epochs", "3")
	job.wantCodes(t, 0)
	if !strings.Contains(job.stderr[0].String(), "training goes on") || strings.Count(job.stdout[0].String(), "\n") != 3 {
		t.Errorf("output %q, complaints %q", job.stdout[0], job.stderr[0])
	}
}

func TestFailureIsReported(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, dir, 1, 1, 1)
	a := newAgent(t, 0)
	s, err := readSettings(smallNet("-hidden", "5"), lookup(map[string]string{
		"JOB_UUID": "job", "SWITCHYARD_SNAPSHOTS_DIR": dir, "SWITCHYARD_JOB_API": a.api(),
	}), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	err = train(context.Background(), s, newLedger(s.ledger, 0, os.Stderr), os.Stdout, os.Stderr)
	a.hold(func() {
		if err == nil || a.bodies["end"]["outcome"] != "failed" || a.bodies["end"]["message"] != err.Error() {
			t.Errorf("error %v, reported %v", err, a.bodies["end"])
		}
	})
}
