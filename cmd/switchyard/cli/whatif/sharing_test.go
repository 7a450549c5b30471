package whatif

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/history"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// sharedBundle is a bundle of two jobs that ran beside each other on one GPU, at 0.8 of their speed alone: 10 epochs
// of 12.5 s each.
func sharedBundle(t *testing.T) string {
	t.Helper()
	began := time.Unix(1_000_000, 0).UTC()
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	h := history.History{Manifest: history.Manifest{Version: 1, MadeAt: at(900)}}
	say := func(seconds float64, source string, id train.JobID, fact string, body any) {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		h.Facts = append(h.Facts, history.Fact{Subject: event.JobSubject(id, fact).String(), Sequence: uint64(len(h.Facts) + 1), Time: at(seconds), Source: source, Body: data})
	}
	known := curve.NewInterference("", nil)
	kinds := map[train.JobID]curve.Kind{}
	jobs := []train.JobID{"a", "b"}
	for _, id := range jobs {
		spec := train.Spec{
			Name: string(id), Command: []string{"train-" + string(id)}, Tenant: "lab", BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 10,
			AllowSharing: true, EstimatedMemoryMiB: 4 << 10,
		}.WithDefaults()
		kinds[id] = curve.KindOf(spec)
		say(0, "admission", id, event.FactAdmitted, event.Admitted{Spec: spec})
		say(0, "executor", id, event.FactStarted, event.Started{Attempt: 1, Node: "gpu1", Devices: []train.DeviceID{"gpu:0"}})
	}
	for e := 1; e <= 10; e++ {
		for _, id := range jobs {
			say(12.5*float64(e), "nodeagent", id, event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: e, EpochSeconds: 12.5, Steps: 100, Devices: 1})
		}
	}
	for _, id := range jobs {
		say(125, "executor", id, event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 10})
	}
	for range 20 {
		known.Measured(kinds["a"], []curve.Kind{kinds["b"]}, 0.8)
		known.Measured(kinds["b"], []curve.Kind{kinds["a"]}, 0.8)
	}
	device := train.Device{ID: "gpu:0", Kind: train.KindGPU, Model: "h100", Memory: 16 * unit.GiB, Units: 16}
	h.Nodes = []train.Node{{ID: "gpu1", Devices: []train.Device{device}}}
	in := decision.Input{Version: decision.InputVersion, Generation: 1, Policy: "fifo", DecidedAt: at(0), State: plan.State{
		Nodes: h.Nodes, Interference: map[string]*curve.Interference{curve.InterferenceKey(&device): known},
	}}
	path := filepath.Join(t.TempDir(), "shared.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := history.NewWriter(f, h, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Input(in), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// On the cluster as it was the jobs share the GPU again and take as long as they took; with a second node, or a
// quota, they do not share, and each epoch takes what it takes alone.
func TestWhatIfOnAClusterThatShares(t *testing.T) {
	bundle := sharedBundle(t)
	term := clitest.New(t, Commands()...)
	jcts := func(args ...string) (same, other map[string]float64) {
		t.Helper()
		code, out, stderr := term.Run(append([]string{"simulate", "--bundle", bundle, "-o", "json"}, args...)...)
		if code != exit.OK {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		rows := clitest.Parse[[]whatif.Row](t, out)
		if len(rows) != 3 {
			t.Fatalf("%v: %s", args, out)
		}
		return rows[1].JCTs, rows[2].JCTs
	}
	about := func(what string, got, a, b float64) {
		t.Helper()
		if math.Abs(got-a) > 2 && math.Abs(got-b) > 2 {
			t.Errorf("%s: %v s, want about %v or %v", what, got, a, b)
		}
	}
	same, wider := jcts("--add-nodes", "1")
	_, limited := jcts("--quota", "lab=1")
	for _, id := range []string{"a", "b"} {
		about("as it was, "+id, same[id], 125, 125)
		about("with two nodes, "+id, wider[id], 100, 100)
		about("with a quota, "+id, limited[id], 125, 125) // two jobs on one device are within a quota of one
	}
	if code, _, stderr := term.Run("simulate", "--bundle", bundle, "--quota", "lab=-1"); code != exit.Usage || !strings.Contains(stderr, "--quota lab=-1: want 0 or more") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestAQuestionNeedsAPlanner(t *testing.T) {
	term := clitest.New(t, Commands()...)
	code, out, stderr := term.Run("simulate", "--from-bus")
	if code != exit.Unreachable || out != "" || !strings.Contains(stderr, "no planner answers") || !strings.Contains(stderr, "--bundle FILE") {
		t.Errorf("exit code %d: %s %s", code, out, stderr)
	}
}
