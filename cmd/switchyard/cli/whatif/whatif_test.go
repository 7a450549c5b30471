package whatif

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/history"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// lab is a terminal on a bus with a real planner; the test plays the other services, in a time of its own.
type lab struct {
	*clitest.Terminal
	t     *testing.T
	began time.Time
}

func newLab(t *testing.T) *lab {
	t.Helper()
	s := clitest.New(t, Commands()...)
	all, err := settings.Of("--policy=fifo") // what happened was played by the rules of fifo
	if err != nil {
		t.Fatal(err)
	}
	p := planner.New(all.Planner)
	common := run.Common{NATS: s.Nats, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: t.TempDir(), Node: "n"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run.Together(ctx, common, io.Discard, func(net.Addr) {}, p) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	clitest.Put(t, s.Bus, contract.Nodes, "gpu1", train.Node{ID: "gpu1", SeenAt: time.Now(), JobAPI: "10.0.0.1:9000", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Model: "h100"}}})
	return &lab{s, t, time.Now()}
}

func (l *lab) at(seconds float64) time.Time {
	return l.began.Add(time.Duration(seconds * float64(time.Second)))
}

// says publishes a fact of a service.
func (l *lab) says(source string, seconds float64, id train.JobID, fact string, body any) {
	l.t.Helper()
	f := event.JobFact(id, fact, fmt.Sprintf("%s/%v", fact, seconds), body)
	f.Source, f.Time = source, l.at(seconds)
	clitest.Publish(l.t, l.Bus, f)
}

// admit lets a job in and waits until its plan is recorded.
func (l *lab) admit(seconds float64, id train.JobID, generation int) {
	l.t.Helper()
	spec := train.Spec{
		Name: string(id), Command: []string{"python3", "train.py", "--key", "hunter1"}, Env: map[string]string{"API_TOKEN": "hunter2"},
		BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 4,
	}.WithDefaults()
	l.says("admission", seconds, id, event.FactAdmitted, event.Admitted{Spec: spec, Position: 1})
	clitest.PutJob(l.t, l.Bus, train.Job{ID: id, Spec: spec, State: train.StateQueued, SubmittedAt: l.at(seconds), AdmittedAt: l.at(seconds)})
	l.recorded(generation)
}

// recorded waits until the input of a generation is stored.
func (l *lab) recorded(generation int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Minute)
	defer cancel()
	found := false
	_ = l.Bus.Follow(ctx, event.StreamDecisions, nil, 1, func(m bus.Message) {
		if m.Parsed.ID == fmt.Sprint(generation) {
			found = true
			cancel()
		}
	})
	if !found {
		l.t.Fatalf("the input of generation %d is not recorded", generation)
	}
}

// runs plays a job from its start on: 1 s until the first step, epochs of 10 s, 1 s until the end.
func (l *lab) runs(seconds float64, id train.JobID, epochs int) {
	l.t.Helper()
	l.says("executor", seconds, id, event.FactStarted, event.Started{Attempt: 1, Node: "gpu1", Devices: []train.DeviceID{"gpu:0"}})
	for e := 1; e <= epochs; e++ {
		l.says("nodeagent", seconds+1+10*float64(e), id, event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: e, EpochSeconds: 10, Steps: 100, Devices: 1})
	}
}

func (l *lab) ends(seconds float64, id train.JobID) {
	l.t.Helper()
	l.says("executor", seconds, id, event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 4})
	clitest.PutJob(l.t, l.Bus, train.Job{ID: id, State: train.StateSucceeded, SubmittedAt: l.at(0), FinishedAt: l.at(seconds)})
}

// twoJobs is a history in which the second job waits for the first one's device.
func (l *lab) twoJobs() {
	l.admit(0, "a", 1)
	l.runs(0, "a", 4)
	l.admit(5, "b", 2)
	l.ends(42, "a")
	l.recorded(3)
	l.runs(42, "b", 4)
	l.ends(84, "b")
	l.recorded(4)
}

func near(x, want float64) bool { return math.Abs(x-want) < 1.5 }

func TestWhatAnotherClusterWouldHaveDone(t *testing.T) {
	l := newLab(t)
	l.twoJobs()
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	if code, out, err := l.Run("bundle", "--out", bundle); code != exit.OK || !strings.Contains(out, "4 decisions") {
		t.Fatalf("exit code %d: %s %s", code, out, err)
	}
	for _, source := range [][]string{{"--from-bus"}, {"--bundle", bundle}} {
		code, out, err := l.Run(append([]string{"simulate", "--add-nodes", "1", "--policy", "fifo,optimus", "-o", "json"}, source...)...)
		if code != exit.OK {
			t.Fatalf("%s: exit code %d: %s", source, code, err)
		}
		rows := clitest.Parse[[]whatif.Row](t, out)
		if len(rows) != 4 {
			t.Fatalf("%s: %s", source, out)
		}
		for i, want := range []whatif.Row{
			{Kind: whatif.KindMeasured, Nodes: 1, Devices: 1, JCTs: map[string]float64{"a": 42, "b": 79}},
			{Kind: whatif.KindSamePolicy, Nodes: 1, Devices: 1, JCTs: map[string]float64{"a": 42, "b": 79}},
			{Kind: whatif.KindWhatIf, Nodes: 2, Devices: 2, JCTs: map[string]float64{"a": 42, "b": 42}},
			{Kind: whatif.KindWhatIf, Nodes: 2, Devices: 2, JCTs: map[string]float64{"a": 42, "b": 42}},
		} {
			got := rows[i]
			if got.Kind != want.Kind || got.Nodes != want.Nodes || got.Devices != want.Devices || got.Jobs != 2 || got.Completed != 2 ||
				!near(got.JCTs["a"], want.JCTs["a"]) || !near(got.JCTs["b"], want.JCTs["b"]) {
				t.Errorf("%s: row %d is %+v, want about %+v", source, i, got, want)
			}
		}
		if !near(rows[0].MakespanSeconds, 84) || !near(rows[2].MakespanSeconds, 47) || !near(rows[0].AvgJCTSeconds, 60.5) {
			t.Errorf("%s: %s", source, out)
		}
	}
	code, out, _ := l.Run("simulate", "--from-bus", "--cluster", "nodes=3,gpus=2")
	if code != exit.OK || !strings.Contains(out, "same policy, simulated: 6") || !strings.Contains(out, "measured: 60.5 s") || !strings.Contains(out, "what if: fifo") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, wrong := range [][]string{
		{"--from-bus", "--policy", "tiresias"},
		{"--from-bus", "--traces", "x"},
		{"--from-bus", "--like", "nowhere", "--add-nodes", "1"},
		{"--bundle", bundle, "--since", "1h"},
		{"--bundle", bundle + "x"},
		{"--from-bus", "--add-nodes", "-1"},
		{"--from-bus", "--interval", "1ms"},
	} {
		if code, out, err := l.Run(append([]string{"simulate"}, wrong...)...); code != exit.Usage || out != "" {
			t.Errorf("%s: exit code %d: %s %s", wrong, code, out, err)
		}
	}
}

// The second node came when the second job had waited for it.
func TestARunInWhichNothingCompletedHasNoTimes(t *testing.T) {
	s := clitest.NewWithoutBus()
	measured := whatif.Row{Kind: whatif.KindMeasured, Policy: "fifo", Jobs: 1, Completed: 1, AvgJCTSeconds: 5}
	if err := writeWhatIf(s.Console, whatif.Answer{Rows: []whatif.Row{measured, {Kind: whatif.KindSamePolicy, Policy: "fifo", Jobs: 1}}}); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	if strings.Contains(out, "0.0 s  0.0 s  0.0 s  0.0 s") || strings.Contains(out, "%") || !strings.Contains(out, "no job completed") {
		t.Errorf("printed\n%s", out)
	}
}

func TestWhatIfOnAClusterThatGrew(t *testing.T) {
	began := time.Unix(1_000_000, 0).UTC()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	h := history.History{Manifest: history.Manifest{Version: 1, MadeAt: at(900)}}
	say := func(seconds int, source string, id train.JobID, fact string, body any) {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		h.Facts = append(h.Facts, history.Fact{Subject: event.JobSubject(id, fact).String(), Sequence: uint64(len(h.Facts) + 1), Time: at(seconds), Source: source, Body: data})
	}
	for _, j := range []struct {
		id    train.JobID
		node  train.NodeID
		start int
	}{{"a", "gpu1", 0}, {"b", "gpu2", 200}} {
		spec := train.Spec{Name: string(j.id), BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 1}.WithDefaults()
		say(0, "admission", j.id, event.FactAdmitted, event.Admitted{Spec: spec})
		say(j.start, "executor", j.id, event.FactStarted, event.Started{Attempt: 1, Node: j.node, Devices: []train.DeviceID{"gpu:0"}})
		say(j.start+300, "nodeagent", j.id, event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 300, Steps: 100, Devices: 1})
		say(j.start+300, "executor", j.id, event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 1})
	}
	devices := []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Model: "h100"}}
	h.Nodes = []train.Node{{ID: "gpu1", Devices: devices}, {ID: "gpu2", Devices: devices}}
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := history.NewWriter(f, h, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, nodes := range [][]train.Node{h.Nodes[:1], h.Nodes} {
		in := decision.Input{Version: decision.InputVersion, Generation: uint64(i + 1), Policy: "fifo", DecidedAt: at(200 * i), State: plan.State{Nodes: nodes}}
		if err := w.Input(in); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	term := clitest.New(t, Commands()...)
	code, out, stderr := term.Run("simulate", "--bundle", path, "--add-nodes", "1", "-o", "json")
	if code != exit.OK || !strings.Contains(stderr, "1 of 2 nodes came or went") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	rows := clitest.Parse[[]whatif.Row](t, out)
	if len(rows) != 3 || !near(rows[0].JCTs["b"], 500) || math.Abs(rows[1].JCTs["b"]-500) > 10 || math.Abs(rows[2].JCTs["b"]-300) > 10 {
		t.Errorf("%s", out)
	}
	// On quite another cluster nobody comes or goes.
	if _, out, _ := term.Run("simulate", "--bundle", path, "--cluster", "nodes=2,gpus=1", "-o", "json"); math.Abs(clitest.Parse[[]whatif.Row](t, out)[2].JCTs["b"]-300) > 10 {
		t.Errorf("%s", out)
	}
}

func TestReplayADecision(t *testing.T) {
	l := newLab(t)
	if code, _, err := l.Run("replay"); code != exit.Failed || !strings.Contains(err, "no decision is recorded") {
		t.Errorf("on an empty bus: exit code %d: %s", code, err)
	}
	l.admit(0, "short", 1)
	l.admit(1, "later", 2)
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	if code, _, err := l.Run("bundle", "--out", bundle); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, err)
	}
	for _, more := range [][]string{nil, {"1"}, {"--bundle", bundle}, {"1", "--bundle", bundle}} {
		code, out, err := l.Run(append([]string{"replay"}, more...)...)
		if code != exit.OK || !strings.Contains(out, "identical") {
			t.Errorf("replay %s: exit code %d: %s%s", more, code, out, err)
		}
	}
	code, out, _ := l.Run("replay", "-o", "json")
	if r := clitest.Parse[replayResult](t, out); code != exit.OK || !r.Identical || r.Generation != 2 || r.Jobs != 2 || r.Published == nil {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, _, err := l.Run("replay", "17"); code != exit.Failed || !strings.Contains(err, "not recorded") {
		t.Errorf("exit code %d: %s", code, err)
	}
	if code, _, _ := l.Run("replay", "--policy", "lifo"); code != exit.Usage {
		t.Errorf("exit code %d for a policy that does not exist", code)
	}
	if code, _, _ := l.Run("replay", "two"); code != exit.Usage {
		t.Errorf("exit code %d for a generation that is no number", code)
	}
}

// The published plan does not follow from the input: another version decided, or there is a fault.
func TestReplayTellsADifference(t *testing.T) {
	l := newLab(t)
	l.admit(0, "short", 1)
	l.admit(1, "later", 2)
	input, err := decision.ReadInput(t.Context(), l.Bus, 2)
	if err != nil {
		t.Fatal(err)
	}
	published, err := decision.PublishedPlan(t.Context(), l.Bus, input)
	if err != nil {
		t.Fatal(err)
	}
	input.State.Jobs = input.State.Jobs[:0:0]
	if err := replay(l.Console, replayed{input, published}, ""); err == nil {
		t.Error("a plan for two jobs follows from an input without any")
	}
	out, _ := l.Printed()
	if !strings.Contains(out, "is not in it, instead of: gets gpu:0 of node gpu1") || !strings.Contains(out, "is not in it, instead of: waits at place 1") {
		t.Errorf("told:\n%s", out)
	}
	if err := replay(l.Console, replayed{input, published}, "fifo"); err != nil {
		t.Errorf("what another policy would do is no fault: %v", err)
	}
	if err := replay(l.Console, replayed{input: input}, ""); err == nil {
		t.Error("identical to a plan that is gone")
	}
}

func TestABundleHoldsNoSecrets(t *testing.T) {
	l := newLab(t)
	l.twoJobs()
	l.admit(90, "c", 5)
	l.says("executor", 91, "c", event.FactFailed, event.Failed{Attempt: 1, Exit: train.Exit{Code: 1, LogTail: "key hunter3"}})
	for _, unredacted := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "b.tar.gz")
		args := []string{"bundle", "--out", path}
		if unredacted {
			args = append(args, "--unredacted")
		}
		if code, _, err := l.Run(args...); code != exit.OK {
			t.Fatalf("exit code %d: %s", code, err)
		}
		text := unpackBundle(t, path)
		for _, secret := range []string{"hunter1", "hunter2", "hunter3", "10.0.0.1"} {
			if strings.Contains(text, secret) != unredacted {
				t.Errorf("unredacted %v: %s is in it: %v", unredacted, secret, !unredacted)
			}
		}
		if !strings.Contains(text, "API_TOKEN") || !strings.Contains(text, "decisions/5.json") {
			t.Error("the bundle lacks what is no secret")
		}
		if code, out, err := l.Run("replay", "--bundle", path); code != exit.OK || !strings.Contains(out, "identical") {
			t.Errorf("replay: exit code %d: %s%s", code, out, err)
		}
	}
}

// unpackBundle is all that is in a bundle, the names of its files included.
func unpackBundle(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(h.Name + "\n")
		if _, err := io.Copy(&all, files); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayNamesOtherCode: a plan that other code decided may differ, and replay says so.
func TestReplayNamesOtherCode(t *testing.T) {
	l := newLab(t)
	l.admit(0, "short", 1)
	input, err := decision.ReadInput(t.Context(), l.Bus, 1)
	if err != nil || input.Decider != plan.Version {
		t.Fatalf("decided by %q: %v", input.Decider, err)
	}
	input.Decider = ""
	if err := replay(l.Console, replayed{input: input}, "fifo"); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.Printed(); !strings.Contains(out, "decided by other code (before "+plan.Version) {
		t.Errorf("printed:\n%s", out)
	}
}
