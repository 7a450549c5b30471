package history

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// story collects facts in a time that begins at 0 s.
type story struct {
	t     testing.TB
	facts []Fact
}

func moment(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).UTC().Add(time.Duration(seconds * float64(time.Second)))
}

func (s *story) tell(seconds float64, id train.JobID, fact string, body any) {
	s.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	kind, _ := event.Find(event.JobSubject(id, fact))
	s.facts = append(s.facts, Fact{
		Subject: event.JobSubject(id, fact).String(), Sequence: uint64(len(s.facts) + 1), Time: moment(seconds), Source: kind.Publisher, Body: data,
	})
}

func (s *story) admit(seconds float64, id train.JobID, change func(*train.Spec)) {
	spec := train.Spec{Name: string(id), BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 5}
	if change != nil {
		change(&spec)
	}
	s.tell(seconds, id, event.FactSubmitted, event.Submitted{Spec: spec})
	s.tell(seconds+0.1, id, event.FactAdmitted, event.Admitted{Spec: spec.WithDefaults()})
}

func (s *story) start(seconds float64, id train.JobID, number, devices int) {
	body := event.Started{Attempt: number, Node: "gpu1"}
	for i := range devices {
		body.Devices = append(body.Devices, train.DeviceID(fmt.Sprintf("gpu:%d", i)))
	}
	s.tell(seconds, id, event.FactStarted, body)
}

func (s *story) epoch(seconds float64, id train.JobID, number, done int, reported float64) {
	s.tell(seconds, id, event.FactEpochEnded, event.EpochEnded{Attempt: number, EpochsDone: done, EpochSeconds: reported})
}

// h100s is a node with a number of devices.
func h100s(id train.NodeID, devices int) train.Node {
	n := train.Node{ID: id}
	for i := range devices {
		n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU, Model: "h100"})
	}
	return n
}

func (s *story) live() Live {
	s.t.Helper()
	l, err := History{Facts: s.facts, Nodes: []train.Node{h100s("gpu1", 1)}}.Live()
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (l Live) job(t *testing.T, id train.JobID) *sim.Recorded {
	t.Helper()
	for _, a := range l.Workload.Jobs {
		if a.Name == id {
			return a.Source.(*sim.Recorded)
		}
	}
	t.Fatalf("job %s is not in the workload; left out: %v", id, l.LeftOut)
	return nil
}

func TestAJobIsWhatItsFactsTell(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", nil)
	s.start(10, "a", 1, 1)
	s.epoch(23, "a", 1, 1, 10) // 3 s until the first step
	s.epoch(35, "a", 1, 2, 10) // 2 s between the epochs
	s.epoch(35, "a", 1, 2, 10) // told twice
	s.tell(36, "a", event.FactPreempted, event.Preempted{Attempt: 1, EpochsDone: 2})
	s.start(50, "a", 2, 2)
	s.epoch(57, "a", 2, 3, 6)
	s.epoch(69, "a", 2, 5, 6) // the report between was lost
	s.tell(70, "a", event.FactSucceeded, event.Succeeded{Attempt: 2, EpochsDone: 5})
	l := s.live()
	var took []string
	for _, e := range l.job(t, "a").Seen {
		took = append(took, fmt.Sprintf("%d: %.0f s on %d %s", e.Epoch, e.Seconds, e.Config.Workers, e.Device))
	}
	want := []string{"1: 10 s on 1 h100", "2: 12 s on 1 h100", "3: 6 s on 2 h100", "4: 6 s on 2 h100", "5: 6 s on 2 h100"}
	if d := cmp.Diff(want, took); d != "" {
		t.Error(d)
	}
	// 3 s and 1 s before the first epoch, 1 s after each last one.
	if r := l.job(t, "a"); math.Abs(r.StartSeconds-3) > 1e-9 || r.Epochs != 5 || r.RunSeconds != 0 {
		t.Errorf("%+v", r)
	}
	if h := l.Happened["a"]; h != (Outcome{0, 70, 2}) {
		t.Errorf("happened: %+v", h)
	}
}

// A job of a group trains with the batch that the planner chose for it, not with the submitted one.
func TestAJobOfAGroupHasTheBatchThatWasChosen(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", func(s *train.Spec) { s.Energy = &train.EnergySpec{Group: "nightly"} })
	s.tell(1, "a", event.FactTuned, event.Tuned{Group: "nightly", BatchSize: 20, Submitted: 10})
	s.start(2, "a", 1, 1)
	s.epoch(12, "a", 1, 5, 2)
	s.tell(13, "a", event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 5})
	if r := s.live().job(t, "a"); r.Spec.BatchSize != 20 || r.Seen[0].Config.LocalBatch != 20 || r.Seen[0].Steps != 50 {
		t.Errorf("batch %d, epochs of %+v", r.Spec.BatchSize, r.Seen[0])
	}
	if !slices.Contains(told(), event.FactTuned) {
		t.Error("the choice is not read from the bus")
	}
}

// TestAnEditedJobIsSimulatedAsEdited: what the register refused leaves a job as it was.
func TestAnEditedJobIsSimulatedAsEdited(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", nil)
	s.tell(1, "a", event.FactEditDecided, event.EditDecided{Request: 3, Edit: train.Edit{Set: train.Editable{Priority: new(90), NodeLabels: map[string]string{"zone": "b"}, MaxDevices: 4}}})
	s.tell(1, "a", event.FactEditDecided, event.EditDecided{Request: 4, Refused: []train.Reason{{Code: "Running"}}})
	s.tell(1, "a", event.FactEditDecided, event.EditDecided{Request: 5, Edit: train.Edit{Unset: []string{"node_labels.zone"}}})
	s.start(2, "a", 1, 1)
	s.epoch(12, "a", 1, 5, 2)
	s.tell(13, "a", event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 5})
	if r := s.live().job(t, "a"); r.Priority != 90 || len(r.Spec.NodeLabels) > 0 || r.Spec.MaxDevices != 4 || r.Spec.Launch == "" {
		t.Errorf("priority %d, spec %+v", r.Priority, r.Spec)
	}
	if !slices.Contains(told(), event.FactEditDecided) {
		t.Error("edits are not read")
	}
}

func TestJobsThatTellLittle(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "opaque", nil)
	s.start(5, "opaque", 1, 1)
	s.tell(45, "opaque", event.FactFailed, event.Failed{Attempt: 1})
	s.admit(1, "never", nil)
	s.tell(3, "never", event.FactCancelled, event.Cancelled{})
	s.admit(1, "early-end", nil)
	s.start(10, "early-end", 1, 1)
	s.epoch(20, "early-end", 1, 1, 10)
	s.tell(22, "early-end", event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 1})
	s.admit(2, "twin", func(s *train.Spec) { s.Name = "early-end" })
	s.admit(2, "stranger", nil)
	s.admit(2, "estimated", func(s *train.Spec) { s.EstimatedHours = 2 })
	s.start(3, "estimated", 1, 1)
	l := s.live()
	if r := l.job(t, "opaque"); r.RunSeconds != 40 {
		t.Errorf("the opaque job runs %v s, it ran 40", r.RunSeconds)
	}
	if r := l.job(t, "early-end"); r.Epochs != 1 {
		t.Errorf("the job that ended after one epoch trains %d", r.Epochs)
	}
	if r := l.job(t, "twin"); len(r.Seen) != 1 || r.Epochs != 5 {
		t.Errorf("the job that waits borrows %d epochs and trains %d", len(r.Seen), r.Epochs)
	}
	if r := l.job(t, "estimated"); r.RunSeconds != 7200 {
		t.Errorf("the estimated job runs %v s", r.RunSeconds)
	}
	var out []string
	for _, o := range l.LeftOut {
		out = append(out, string(o.Job))
	}
	if d := cmp.Diff([]string{"never", "stranger"}, out); d != "" {
		t.Errorf("left out: %s", d)
	}
	if len(l.Happened) != 2 {
		t.Errorf("ended: %v", l.Happened)
	}
}

func TestJobsUnderWayAtTheBeginningAreNotCompared(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "before", nil)
	s.start(20, "before", 1, 1)
	s.epoch(30, "before", 1, 5, 2)
	s.admit(25, "within", nil)
	s.tell(31, "before", event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 5})
	s.start(31, "within", 1, 1)
	s.epoch(40, "within", 1, 5, 2)
	s.tell(41, "within", event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 5})
	l, err := History{Manifest: Manifest{Since: moment(24)}, Facts: s.facts}.Live()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Workload.Jobs) != 2 || !l.Workload.Jobs[0].Background || l.Workload.Jobs[1].Background || len(l.Happened) != 1 || l.Happened["within"].JCTSeconds != 16 {
		t.Errorf("%+v", l)
	}
}

func TestPredictionsWhereNoJobHasEnded(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", nil)
	s.start(1, "a", 1, 1)
	s.epoch(11, "a", 1, 1, 10)
	if l := s.live(); len(l.Happened) != 0 || len(l.Workload.Jobs) != 1 || l.Workload.Jobs[0].Background || l.Workload.Jobs[0].Source.(*sim.Recorded).Epochs != 5 {
		t.Errorf("%+v", l)
	}
}

func TestFactsOfOthersCountForNothing(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", nil)
	s.start(1, "a", 1, 1)
	s.tell(9, "a", event.FactSucceeded, event.Succeeded{Attempt: 1})
	s.facts[len(s.facts)-1].Source = "mallory"
	s.facts = append(s.facts, Fact{Subject: "yard.job.a.succeeded.v1", Source: "executor", Body: json.RawMessage(`"no"`), Time: moment(10)}, Fact{Subject: "rubbish"})
	if l, err := (History{Facts: s.facts}).Live(); err == nil {
		t.Errorf("the job ended: %+v", l)
	}
}

func TestOnlyJobsOfTheStretchAreRead(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "test")
	say := func(source string, seconds float64, id train.JobID, fact string, body any) {
		f := event.JobFact(id, fact, fact, body)
		f.Source, f.Time = source, moment(seconds)
		if err := b.Publish(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	spec := train.Spec{Name: "x", BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1}
	for _, id := range []train.JobID{"old", "through", "unadmitted"} {
		if id != "unadmitted" {
			say("admission", 0, id, event.FactAdmitted, event.Admitted{Spec: spec})
		}
		say("executor", 1, id, event.FactStarted, event.Started{Attempt: 1, Node: "n"})
	}
	say("executor", 10, "old", event.FactSucceeded, event.Succeeded{Attempt: 1})
	say("executor", 30, "through", event.FactSucceeded, event.Succeeded{Attempt: 1})
	for since, want := range map[time.Time]int{moment(20): 3, {}: 6, moment(40): 0} {
		h, err := FromBus(t.Context(), b, since, moment(50))
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Facts) != want {
			t.Errorf("since %v: %d facts, want %d", since, len(h.Facts), want)
		}
	}
}

func TestABundleComesBackAsItWas(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "a", func(s *train.Spec) { s.Command = []string{"python3", "x.py"} })
	s.start(1, "a", 1, 1)
	h := History{
		Manifest: Manifest{Version: bundleVersion, MadeAt: moment(9), Since: moment(0)}, Facts: s.facts, Sightings: []Sighting{{}},
		Plans: []Fact{{Subject: "yard.plan.main.decided.v1", Sequence: 3, Time: moment(1), Source: "planner", Body: json.RawMessage(`{"policy":"\u003cfifo\u003e"}`)}},
		Nodes: []train.Node{{ID: "gpu1", JobAPI: "x"}}, Models: []train.Model{{Job: "a"}},
	}
	input := func(g uint64) decision.Input {
		return decision.Input{Version: decision.InputVersion, Generation: g, Policy: "fifo", PlanSequence: g, State: plan.State{Seed: g}}
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, h, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []uint64{9, 10, 11} {
		if err := w.Input(input(g)); err != nil {
			t.Fatal(err)
		}
	}
	unreadable := input(12)
	unreadable.Version = decision.InputVersion + 1
	if err := w.Input(unreadable); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBundle(bytes.NewReader(file.Bytes()), 12); err == nil {
		t.Error("an input that this program cannot read is asked for and not missed")
	}
	for generation, want := range map[uint64]uint64{0: 11, 10: 10, 13: 0} {
		got, err := ReadBundle(bytes.NewReader(file.Bytes()), generation)
		if err != nil {
			t.Fatal(err)
		}
		if want == 0 != (got.Input == nil) || want > 0 && got.Input.State.Seed != want {
			t.Errorf("generation %d: input %+v", generation, got.Input)
		}
		if len(got.Unreadable) != 1 {
			t.Errorf("generation %d: %v, want the newest input named", generation, got.Unreadable)
		}
		got.Input, got.Unreadable = nil, nil
		if d := cmp.Diff(h, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if _, err := h.Published(input(3)); err != nil {
		t.Error(err)
	}
	if _, err := h.Published(input(4)); err == nil {
		t.Error("a plan that is not there is found")
	}
	newer := h
	newer.Version = bundleVersion + 1
	file.Reset()
	if w, err = NewWriter(&file, newer, true); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBundle(&file, 0); err == nil || !strings.Contains(err.Error(), "layout") {
		t.Errorf("a newer layout: %v", err)
	}
}

// A bundle may be attached to a report of a fault, which everybody reads.
func TestABundleHasNoSecrets(t *testing.T) {
	const secret = "t0k3n"
	notify := []train.NotifySpec{{Webhook: "https://example.org/" + secret}, {Mail: secret + "@example.org"}}
	spec := train.Spec{
		Name: "a", Command: []string{"python3", secret}, Env: map[string]string{"KEY": secret}, SecretEnv: map[string]string{"KEY": "file:" + secret},
		DataURL: "https://example.org/set?sig=" + secret, Notify: notify,
	}
	s := &story{t: t}
	s.admit(0, "a", func(s *train.Spec) { *s = spec })
	s.tell(1, "a", event.FactEditDecided, event.EditDecided{Edit: train.Edit{Set: train.Editable{Notify: notify}}, Reason: secret})
	var file bytes.Buffer
	w, err := NewWriter(&file, History{Manifest: Manifest{Version: bundleVersion}, Facts: s.facts}, true)
	if err != nil {
		t.Fatal(err)
	}
	input := decision.Input{Version: decision.InputVersion, Generation: 1, State: plan.State{Jobs: []plan.Job{{ID: "a", Spec: spec}}}}
	if err := errors.Join(w.Input(input), w.Close()); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unpacked); err != nil || strings.Contains(string(text), secret) || !strings.Contains(string(text), "edit_decided") {
		t.Errorf("%v: %s", err, text)
	}
}

// A bundle of some hundred kilobytes that unpacks to gigabytes, or to millions of empty records, is refused in words.
func TestABundleThatGrowsIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ file, begin, body, want string }{
		"zeros":       {"decisions/1.json", "", strings.Repeat("\x00", 1<<20), errBomb.Error()},
		"empty nodes": {nodesFile, "[{}", strings.Repeat(",{}", 1<<18), errEmpty.Error()},
		"many nodes":  {nodesFile, `[{"id":"a"}`, strings.Repeat(`,{"id":"a"}`, 1<<16), errMany.Error()},
		"empty facts": {factsFile, "{}", strings.Repeat("\n{}", 1<<18), errEmpty.Error()},
	} {
		var file bytes.Buffer
		zip := gzip.NewWriter(&file)
		into := tar.NewWriter(zip)
		const times = 300
		if err := into.WriteHeader(&tar.Header{Name: test.file, Mode: 0o600, Size: int64(len(test.begin) + times*len(test.body))}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(into, test.begin)
		for range times {
			_, _ = io.WriteString(into, test.body)
		}
		if err := errors.Join(into.Close(), zip.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBundle(&file, 0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

func FuzzReadBundle(f *testing.F) {
	s := &story{t: f}
	s.admit(0, "a", nil)
	s.start(1, "a", 1, 1)
	s.epoch(2, "a", 1, 1, 1)
	var file bytes.Buffer
	w, err := NewWriter(&file, History{Manifest: Manifest{Version: bundleVersion}, Facts: s.facts}, true)
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) {
		if h, err := ReadBundle(bytes.NewReader(data), 0); err == nil {
			_, _ = h.Live()
		}
	})
}

func TestAnArrayIsItsJobs(t *testing.T) {
	s := &story{t: t}
	s.admit(0, "o1", func(spec *train.Spec) { spec.Array = "0-1" })
	for index, id := range []train.JobID{"o1-0", "o1-1"} {
		s.admit(1, id, func(spec *train.Spec) { spec.ArrayMember = &train.ArrayMember{Array: "o1", Index: index} })
		s.start(2, id, 1, 1)
		s.epoch(10, id, 1, 1, 8)
		s.tell(11, id, event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 1})
	}
	s.tell(12, "o1", event.FactSucceeded, event.Succeeded{})
	l := s.live()
	if len(l.LeftOut) != 0 || len(l.Workload.Jobs) != 2 {
		t.Errorf("%d jobs; left out: %v", len(l.Workload.Jobs), l.LeftOut)
	}
}
