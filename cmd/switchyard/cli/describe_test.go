package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestDescribe(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	for _, id := range []string{"resnet-4f2a", "bert-91bc", "mnist-77de", "vgg-0c", "huge"} {
		t.Run(id, func(t *testing.T) {
			if err := s.describe(t.Context(), s.bus, id, noon); err != nil {
				t.Fatal(err)
			}
			out, _ := s.printed()
			golden(t, "describe-"+id+".txt", out)
			if strings.Contains(out, "secret") {
				t.Error("shows the value of a variable")
			}
			for _, r := range out {
				if r != '\n' && obeyed(r) {
					t.Errorf("lets %q through", r)
				}
			}
		})
	}
	s.output = "json"
	if err := s.describe(t.Context(), s.bus, "resnet-4f2a", noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.printed()
	golden(t, "describe.json", out)
	if strings.Contains(out, "token_hash") || strings.Contains(out, "capability_hash") {
		t.Error("shows what belongs to the node's agent")
	}
}

func TestDescribeShowsTheNewestChanges(t *testing.T) {
	j := bert()
	for i := range historyShown + 5 {
		j.History = append(j.History, train.Change{At: noon, Fact: "queued", State: train.StateQueued, Message: fmt.Sprintf("change %02d", i)})
	}
	text := describeText(description{Job: j}, noon)
	if !strings.Contains(text, "5 changes before") || strings.Contains(text, "change 04") || !strings.Contains(text, "change 05") || !strings.Contains(text, "change 34") {
		t.Error(text)
	}
}

func TestDescribeSaysWhatHoldsAJobToItsPart(t *testing.T) {
	for level, words := range map[train.Enforcement]string{
		train.EnforcedByAdvice: "memory      advisory: it is told its part", train.EnforcedByMPS: "memory      mps: the driver", train.EnforcedByMIG: "memory      mig: an instance",
		"": "memory      none: nothing", train.EnforcedByNobody: "memory      none: nothing",
	} {
		a := attemptView{Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: unit.GiB, Enforcement: level}
		if text := describeText(description{Job: train.Job{ID: "x", State: train.StateRunning}, Attempt: &a}, noon); !strings.Contains(text, words) {
			t.Errorf("%s: want %q in\n%s", level, words, text)
		}
		a.Memory = 0
		if text := describeText(description{Job: train.Job{ID: "x", State: train.StateRunning}, Attempt: &a}, noon); strings.Contains(text, "\nmemory") != (level == train.EnforcedByMIG) {
			t.Errorf("%s of a whole device:\n%s", level, text)
		}
	}
}

// A description of which nearly everything is missing still is one.
func TestDescribeOfAlmostNothing(t *testing.T) {
	text := describeText(description{Job: train.Job{ID: "x", State: train.StateSubmitted}}, noon)
	if !strings.Contains(text, "job x\n") || !strings.Contains(text, "not taken up yet") {
		t.Error(text)
	}
	waiting := train.Job{ID: "x", State: train.StateRecovering, Attempt: 1, RunSeconds: 3, SubmittedAt: ago(time.Minute)}
	text = describeText(description{
		Job: waiting, RunSeconds: 3, Attempt: &attemptView{Number: 1, Phase: train.PhaseExited, Node: "a", NotBefore: noon.Add(4 * time.Second)}, Report: &train.AttemptReport{},
		Model: &train.Model{}, Account: &train.Account{},
	}, noon)
	if !strings.Contains(text, "the next one in 4.0s") || !strings.Contains(text, "has not called the job API") {
		t.Error(text)
	}
}

func TestDescribeHoldsThePredictionAgainstTheDeadline(t *testing.T) {
	job := train.Job{ID: "x", State: train.StateRunning, Spec: train.Spec{Deadline: new(noon.Add(time.Hour))}, PredictedFinish: noon.Add(50 * time.Minute)}
	for _, c := range []struct {
		change func(j *train.Job)
		want   string
	}{
		{func(*train.Job) {}, "predicted to be 10m00s before it"},
		{func(j *train.Job) { j.PredictedFinish = noon.Add(2 * time.Hour) }, "predicted to be 1h00m late"},
		{func(j *train.Job) { j.State, j.FinishedAt = train.StateSucceeded, noon.Add(90*time.Minute) }, "ended 30m00s late"},
	} {
		j := job
		c.change(&j)
		if text := describeText(description{Job: j}, noon); !strings.Contains(text, c.want) {
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
	course := train.Course{Epochs: []train.EpochEnergy{
		{EpochsDone: 1, Energy: 200 * unit.Joule, Loss: new(2.0), Metrics: map[string]float64{"accuracy": 0.5}},
		{EpochsDone: 2, Energy: 400 * unit.Joule, Loss: new(1.5), Metrics: map[string]float64{"accuracy": 0.7}},
		{EpochsDone: 3, Energy: 600 * unit.Joule, Loss: new(1.2), Metrics: map[string]float64{"accuracy": 0.6}},
	}}
	text := describeText(description{Job: job, Account: &account, Course: &course}, noon)
	for _, want := range []string{
		"cpu 100.0 J, gpu 700.0 J (measured 90 % of the time)", "100.0 J for devices", "50.0 J were shared without", "30.0 J by what failed", "200.0 J\n", "0.04 J\n",
		"2000.0 J in all", "600.0 J to 1.2, the least so far, in epoch 3", "400.0 J to 0.7, the most so far, in epoch 2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	account.Final = true
	if text := describeText(description{Job: job, Account: &account}, noon); strings.Contains(text, "in all, if") {
		t.Error("an ended job is expected to use more")
	}
}

// A job that shares its device is told with whom, and what that was expected to cost and costs.
func TestDescribeTellsTheCompany(t *testing.T) {
	s := newTerminal(t)
	device := train.Device{ID: "gpu:0", Kind: train.KindGPU, Model: "M", Driver: "550", Memory: 16 * unit.GiB}
	put(t, s.bus, event.BucketNodes, "n", train.Node{ID: "n", SeenAt: noon, Devices: []train.Device{device}})
	p := train.Plan{Generation: 1, Policy: "switchyard", DecidedAt: noon}
	for _, id := range []train.JobID{"one", "two"} {
		putJob(t, s.bus, train.Job{ID: id, Spec: train.Spec{Command: []string{string(id)}, BatchSize: 8, AllowSharing: true}, State: train.StateRunning})
		p.Allocations = append(p.Allocations, train.Allocation{Job: id, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: unit.GiB, Reason: train.Reason{Code: "Placed"}})
	}
	publish(t, s.bus, event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/1", Body: event.PlanDecided{Plan: p}})
	told := func(want string) {
		t.Helper()
		if err := s.describe(t.Context(), s.bus, "one", noon); err != nil {
			t.Fatal(err)
		}
		if out, _ := s.printed(); !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	told("beside two: predicted at 60 % of its speed alone\n")
	kind := func(id string) curve.Kind { return curve.KindOf(train.Spec{Command: []string{id}, BatchSize: 8}) }
	met := curve.NewMeetings("M", "550", nil)
	met.Measured(kind("one"), nil, 0.1)
	met.Measured(kind("one"), []curve.Kind{kind("two")}, 0.125)
	put(t, s.bus, event.BucketMeetings, curve.MeetingsKey(&device), *met)
	told("beside two: predicted at 60 % of its speed alone, measured 80 % (1 measurement)\n")

	// Two devices with others on each: what counts is where the job is slowest.
	putJob(t, s.bus, train.Job{ID: "three", Spec: train.Spec{Command: []string{"three"}, BatchSize: 8, AllowSharing: true}, State: train.StateRunning})
	p.Generation, p.Allocations[0].Devices = 2, []train.DeviceID{"gpu:0", "gpu:1"}
	p.Allocations = append(p.Allocations, train.Allocation{Job: "three", Node: "n", Devices: []train.DeviceID{"gpu:1"}, Memory: unit.GiB, Reason: train.Reason{Code: "Placed"}})
	publish(t, s.bus, event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/2", Body: event.PlanDecided{Plan: p}})
	met.Known.Measured(kind("one").On(2), []curve.Kind{kind("two")}, 0.9)
	met.Known.Measured(kind("one").On(2), []curve.Kind{kind("three")}, 0.5)
	put(t, s.bus, event.BucketMeetings, curve.MeetingsKey(&device), *met)
	told(", measured 50 % (1 measurement)\n")
	told("beside two, three: ")
}
