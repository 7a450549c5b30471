package describe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func TestDescribe(t *testing.T) {
	s := clitest.New(t, Command)
	s.Fill(t)
	for _, id := range []string{"resnet-4f2a", "bert-91bc", "mnist-77de", "vgg-0c", "huge"} {
		t.Run(id, func(t *testing.T) {
			if err := describe(t.Context(), s.Console, s.Yard(clitest.Noon), id, clitest.Noon); err != nil {
				t.Fatal(err)
			}
			out, _ := s.Printed()
			clitest.Golden(t, "describe-"+id+".txt", out)
			if strings.Contains(out, "secret") {
				t.Error("shows the value of a variable")
			}
			for _, r := range out {
				if r != '\n' && render.Obeyed(r) {
					t.Errorf("lets %q through", r)
				}
			}
		})
	}
	s.Output = "json"
	if err := describe(t.Context(), s.Console, s.Yard(clitest.Noon), "resnet-4f2a", clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	clitest.Golden(t, "describe.json", out)
	if strings.Contains(out, "token_hash") || strings.Contains(out, "capability_hash") {
		t.Error("shows what belongs to the node's agent")
	}
}

func TestDescribeShowsTheNewestChanges(t *testing.T) {
	j := clitest.Bert()
	const shown = 30
	for i := range shown + 5 {
		j.History = append(j.History, train.Change{At: clitest.Noon, Fact: "queued", State: train.StateQueued, Message: fmt.Sprintf("change %02d", i)})
	}
	text := explain.Explain(explain.Job{Job: j}, clitest.Noon).String()
	if !strings.Contains(text, "5 changes before") || strings.Contains(text, "change 04") || !strings.Contains(text, "change 05") || !strings.Contains(text, "change 34") {
		t.Error(text)
	}
}

func TestDescribeSaysWhatHoldsAJobToItsPart(t *testing.T) {
	for level, words := range map[train.Enforcement]string{
		train.EnforcedByAdvice: "memory      advisory: the job knows its part", train.EnforcedByMPS: "memory      mps: the driver", train.EnforcedByMIG: "memory      mig: an instance",
		"": "memory      none: nothing", train.NotEnforced: "memory      none: nothing",
	} {
		a := view.Attempt{Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: unit.GiB, Enforcement: level}
		if text := explain.Explain(explain.Job{Job: train.Job{ID: "x", State: train.StateRunning}, Attempt: &a}, clitest.Noon).String(); !strings.Contains(text, words) {
			t.Errorf("%s: want %q in\n%s", level, words, text)
		}
		a.Memory = 0
		if text := explain.Explain(explain.Job{Job: train.Job{ID: "x", State: train.StateRunning}, Attempt: &a}, clitest.Noon).String(); strings.Contains(text, "\nmemory") != (level == train.EnforcedByMIG) {
			t.Errorf("%s of a whole device:\n%s", level, text)
		}
	}
}

// A description of which nearly everything is missing still is one.
func TestDescribeOfAlmostNothing(t *testing.T) {
	text := explain.Explain(explain.Job{Job: train.Job{ID: "x", State: train.StateSubmitted}}, clitest.Noon).String()
	if !strings.Contains(text, "job x\n") || !strings.Contains(text, "not read by admission yet") {
		t.Error(text)
	}
	waiting := train.Job{ID: "x", State: train.StateRecovering, Attempt: 1, RunSeconds: 3, SubmittedAt: clitest.Ago(time.Minute)}
	text = explain.Explain(explain.Job{
		Job: waiting, RunSeconds: 3, Attempt: &view.Attempt{Number: 1, Phase: train.PhaseExited, Node: "a", NotBefore: clitest.Noon.Add(4 * time.Second)}, Report: &train.AttemptReport{},
		Model: &train.Model{}, Account: &train.Account{},
	}, clitest.Noon).String()
	if !strings.Contains(text, "the next one in 4.0s") || !strings.Contains(text, "keeps its devices until it ends") {
		t.Error(text)
	}
}

// The end that the plan predicts is what counts: it is what every other view shows.
func TestDescribeHoldsThePredictionAgainstTheDeadline(t *testing.T) {
	running := train.Job{ID: "x", State: train.StateRunning, Spec: train.Spec{Deadline: new(clitest.Noon.Add(time.Hour))}}
	ended := running
	ended.State, ended.FinishedAt = train.StateSucceeded, clitest.Noon.Add(90*time.Minute)
	in := func(d time.Duration) *view.Plan {
		at := clitest.Noon.Add(d)
		return &view.Plan{Predicted: train.Predicted{Finish: &train.Moment{Expected: at, Low: at, High: at}}}
	}
	for _, c := range []struct {
		job  train.Job
		plan *view.Plan
		want string
	}{
		{running, in(50 * time.Minute), "predicted to be 10m00s before it"},
		{running, in(2 * time.Hour), "predicted to be 1h00m late"},
		{running, nil, "deadline    13:00:00\n"},
		{ended, nil, "ended 30m00s late"},
	} {
		if text := explain.Explain(explain.Job{Job: c.job, Plan: c.plan}, clitest.Noon).String(); !strings.Contains(text, c.want) {
			t.Errorf("want %q in:\n%s", c.want, text)
		}
	}
}

func TestDescribeTellsWhatEnergyBought(t *testing.T) {
	job := train.Job{ID: "x", State: train.StateRunning, Spec: train.Spec{MaxEpochs: 10}}
	account := train.Account{
		Energy: 800 * unit.Joule, Idle: 100 * unit.Joule, Estimated: 50 * unit.Joule, Epochs: 4, Samples: 20_000, Methods: []string{"nvml_counter", "rapl"},
		Components: map[string]unit.Energy{"gpu": 700 * unit.Joule, "cpu": 100 * unit.Joule}, Waste: map[train.WasteCause]unit.Energy{train.WasteFailed: 30 * unit.Joule},
		Metering: map[string]train.Metering{"gpu": {MeasuredSeconds: 90, ExpectedSeconds: 100}, "cpu": {MeasuredSeconds: 100, ExpectedSeconds: 100}},
	}
	course := train.EnergyProgress{Epochs: []train.EpochEnergy{
		{EpochsDone: 1, Energy: 200 * unit.Joule, Loss: new(2.0), Metrics: map[string]float64{"accuracy": 0.5}},
		{EpochsDone: 2, Energy: 400 * unit.Joule, Loss: new(1.5), Metrics: map[string]float64{"accuracy": 0.7}},
		{EpochsDone: 3, Energy: 600 * unit.Joule, Loss: new(1.2), Metrics: map[string]float64{"accuracy": 0.6}},
	}}
	text := explain.Explain(explain.Job{Job: job, Account: &account, Course: &course}, clitest.Noon).String()
	for _, want := range []string{
		"cpu 100 J, gpu 700 J (known for 90 % of the time)", "100 J for devices", "50.0 J split without", "30.0 J of work that was lost (failed)", "200 J\n", "40.0 mJ\n",
		"2000 J in total", "600 J to 1.2, the lowest so far, in epoch 3", "400 J to 0.7, the highest so far, in epoch 2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	account.Final = true
	if text := explain.Explain(explain.Job{Job: job, Account: &account}, clitest.Noon).String(); strings.Contains(text, "in all, if") {
		t.Error("an ended job is expected to use more")
	}
}

// describe names the co-runners of a job, and its predicted and measured rate beside them.
func TestDescribeNamesCoRunners(t *testing.T) {
	s := clitest.New(t, Command)
	device := train.Device{ID: "gpu:0", Kind: train.KindGPU, Model: "M", Driver: "550", Memory: 16 * unit.GiB}
	clitest.Put(t, s.Bus, contract.Nodes, "n", train.Node{ID: "n", SeenAt: clitest.Noon, Devices: []train.Device{device}})
	p := train.Plan{Generation: 1, Policy: "switchyard", DecidedAt: clitest.Noon}
	for _, id := range []train.JobID{"one", "two"} {
		clitest.PutJob(t, s.Bus, train.Job{ID: id, Spec: train.Spec{Command: []string{string(id)}, BatchSize: 8, AllowSharing: true}, State: train.StateRunning})
		p.Allocations = append(p.Allocations, train.Allocation{Job: id, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: unit.GiB, Reason: train.Reason{Code: "Placed"}})
	}
	clitest.Publish(t, s.Bus, event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/1", Body: event.PlanDecided{Plan: p}})
	told := func(want string) {
		t.Helper()
		if err := describe(t.Context(), s.Console, s.Yard(clitest.Noon), "one", clitest.Noon); err != nil {
			t.Fatal(err)
		}
		if out, _ := s.Printed(); !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	told("beside two: predicted at 60 % of its speed alone\n")
	kind := func(id string) curve.Kind { return curve.KindOf(train.Spec{Command: []string{id}, BatchSize: 8}) }
	met := curve.NewInterferenceRecord("M", "550", nil)
	met.Measured(kind("one"), nil, 0.1)
	met.Measured(kind("one"), []curve.Kind{kind("two")}, 0.125)
	clitest.Put(t, s.Bus, contract.Interference, curve.InterferenceKey(&device), *met)
	told("beside two: predicted at 60 % of its speed alone, measured 80 % (1 measurement)\n")

	// Two devices with others on each: what counts is where the job is slowest.
	clitest.PutJob(t, s.Bus, train.Job{ID: "three", Spec: train.Spec{Command: []string{"three"}, BatchSize: 8, AllowSharing: true}, State: train.StateRunning})
	p.Generation, p.Allocations[0].Devices = 2, []train.DeviceID{"gpu:0", "gpu:1"}
	p.Allocations = append(p.Allocations, train.Allocation{Job: "three", Node: "n", Devices: []train.DeviceID{"gpu:1"}, Memory: unit.GiB, Reason: train.Reason{Code: "Placed"}})
	clitest.Publish(t, s.Bus, event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/2", Body: event.PlanDecided{Plan: p}})
	met.Known.Measured(kind("one").On(2, 1), []curve.Kind{kind("two")}, 0.9)
	met.Known.Measured(kind("one").On(2, 1), []curve.Kind{kind("three")}, 0.5)
	clitest.Put(t, s.Bus, contract.Interference, curve.InterferenceKey(&device), *met)
	told(", measured 50 % (1 measurement)\n")
	told("beside two, three: ")

	// Over two nodes, with three on the second.
	gang := &p.Allocations[0]
	gang.Node, gang.Devices, gang.Parts = "", nil, []train.Part{{Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: gang.Memory}, {Node: "m", Devices: []train.DeviceID{"gpu:1"}, Memory: gang.Memory}}
	p.Generation, p.Allocations[2].Node = 3, "m"
	clitest.Publish(t, s.Bus, event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/3", Body: event.PlanDecided{Plan: p}})
	met.Known.Measured(kind("one").On(2, 2), []curve.Kind{kind("three")}, 0.7)
	clitest.Put(t, s.Bus, contract.Interference, curve.InterferenceKey(&device), *met)
	told(", measured 69 % (1 measurement)\n")
	told("beside two, three: ")
}
