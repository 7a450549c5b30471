package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/progress"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestScalesToMeasure(t *testing.T) {
	elastic := train.Spec{Strategy: train.StrategyAllReduce}
	served := train.Spec{Strategy: train.StrategyParameterServer, ParameterServers: &train.ServersSpec{Max: 3, Cores: 2}}
	for _, tt := range []struct {
		spec        train.Spec
		workers, ps string
		want        string
	}{
		{elastic, "1..3", "", "[{1 0} {2 0} {3 0}]"},
		{elastic, "4,1..2,2", "", "[{4 0} {1 0} {2 0}]"},
		{served, "1,2", "1..2", "[{1 1} {2 1} {1 2} {2 2}]"},
		{served, "2", "", "[{2 3}]"},
		{train.Spec{SingleDevice: true}, "1", "", "[{1 0}]"},
		{train.Spec{SingleDevice: true}, "1..2", "", "the job runs on one device"},
		{train.Spec{Strategy: train.StrategyNone}, "2", "", "the job runs on one device"},
		{elastic, "1", "1", "the job has no parameter servers"},
		{elastic, "", "", "want --workers"},
		{elastic, "0", "", "want numbers from 1"},
		{elastic, "3..1", "", "want numbers from 1"},
		{elastic, "1..9999999", "", "want numbers from 1"},
		{elastic, "a", "", "want numbers from 1"},
	} {
		scales, err := measureOptions{workers: tt.workers, servers: tt.ps}.scales(tt.spec)
		got := make([][2]int, len(scales))
		for i, s := range scales {
			got[i] = [2]int{s.Workers, s.Servers}
		}
		words := strings.NewReplacer("[[", "[{", "]]", "}]", "] [", "} {").Replace(fmt.Sprint(got))
		if err != nil {
			words = err.Error()
		}
		if !strings.Contains(words, tt.want) {
			t.Errorf("--workers %q --ps %q: %s, want %s", tt.workers, tt.ps, words, tt.want)
		}
	}
	at := scale{Workers: 4, Servers: 2}.at(served)
	if at.MinDevices != 4 || at.MaxDevices != 4 || *at.ParameterServers != (train.ServersSpec{Max: 2, Cores: 2}) || at.Name != "-w4-p2" || served.ParameterServers.Max != 3 {
		t.Errorf("%+v", at)
	}
}

func apply(r *progress.Run, subject event.Subject, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r.Apply(subject, clitest.Noon, data)
}

func TestProgressLinesOfARun(t *testing.T) {
	c := progress.New("j", train.Spec{MaxEpochs: 3, TrainingSetSize: 1000, BatchSize: 10})
	job := func(fact string, body any) { apply(c, event.JobSubject("j", fact), body) }
	meter := func(node train.NodeID, work float64) {
		apply(c, event.Subject{Entity: "energy", ID: string(node), Fact: event.FactMeasured, Version: 1}, event.Measured{
			Node: node, From: clitest.Noon, To: clitest.Noon.Add(2 * time.Second),
			Users: []event.Use{{Job: "j", Component: "cpu", Work: work}, {Job: "j", Component: "gpu", Work: 9}, {Job: "other", Component: "cpu", Work: 9}},
		})
	}
	prints := func(want string) {
		t.Helper()
		if got := line(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	job(event.FactQueued, event.Queued{Blockers: []train.Reason{{Code: "WaitingForDevices", Message: "needs 2 devices"}}})
	prints("queued: needs 2 devices")
	job(event.FactStarted, event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0", "cpu:1"}, Servers: 1})
	prints("epoch 0 of 3")
	apply(c, event.Subject{Entity: "sample", ID: "j", Fact: event.FactStepped, Version: 1}, event.Stepped{Job: "j", Step: 7, StepSeconds: 0.5})
	prints("epoch 0 of 3 and step 7, 40 samples/s, 2 steps/s")
	meter("a", 3)
	meter("b", 1)
	meter("a", 1)
	job(event.FactEpochEnded, event.EpochEnded{EpochsDone: 1, EpochSeconds: 100, Steps: 50, Samples: 1000, Devices: 2})
	prints("epoch 1 of 3, 10 samples/s, 0.5 steps/s, 1.50 processors in use")
	// Steps and samples follow from the job.
	job(event.FactEpochEnded, event.EpochEnded{EpochsDone: 2, EpochSeconds: 10, Devices: 2})
	meter("b", 4)
	prints("epoch 2 of 3, 100 samples/s, 5 steps/s, 2.00 processors in use")
	prints("epoch 2 of 3")
	apply(c, event.JobSubject("other", event.FactFailed), event.Failed{})
	job(event.FactSucceeded, event.Succeeded{})
	run := newMeasuredRun(scale{Workers: 2, Servers: 2}, c)
	if run.Servers != 1 || run.SamplesPerSecond != 100 || run.StepsPerSecond != 5 || math.Abs(run.CPUCores-(4.0/4+5.0/4)) > 1e-9 || run.State != train.StateSucceeded {
		t.Errorf("%+v", run)
	}
}

// play stands for the services: each submission is admitted, runs for three epochs on what it asks for and succeeds;
// with three workers it is refused.
func play(t *testing.T, b *bus.Bus, m bus.Message) {
	var spec train.Spec
	if err := json.Unmarshal(m.Data, &spec); err != nil {
		t.Error(err)
		return
	}
	id := train.JobID(m.Parsed.ID)
	if spec.MinDevices == 3 {
		clitest.PutJob(t, b, train.Job{ID: id, State: train.StateRejected, Reason: "TooFewDevices", Infeasible: true, Message: "too few devices"})
		return
	}
	devices := []train.DeviceID{"cpu:0", "cpu:1"}[:spec.MinDevices]
	step := 0.02 / float64(spec.MinDevices)
	facts := []event.Fact{event.JobFact(id, event.FactStarted, "started", event.Started{Attempt: 1, Node: "n", Devices: devices})}
	for e := 1; e <= spec.MaxEpochs; e++ {
		facts = append(facts, event.JobFact(id, event.FactEpochEnded, fmt.Sprint("epoch/", e), event.EpochEnded{
			Attempt: 1, EpochsDone: e, EpochSeconds: step * 100, Steps: 100, Samples: 1000, StepSeconds: step, Devices: len(devices),
		}))
	}
	clitest.Put(t, b, contract.Models, string(id), train.Model{Job: string(id), EpochsSeen: spec.MaxEpochs, Speed: train.Speed{Measured: []train.Measured{
		{Config: train.Config{Workers: len(devices), Nodes: 1, LocalBatch: 10}, StepSeconds: step, Weight: 300},
	}}})
	clitest.PutJob(t, b, train.Job{ID: id, State: train.StateQueued})
	clitest.Publish(t, b, append(facts, event.JobFact(id, event.FactSucceeded, "end", event.Succeeded{Attempt: 1, EpochsDone: spec.MaxEpochs}))...)
}

func TestMeasure(t *testing.T) {
	s := clitest.New(t, Command)
	ctx, stop := context.WithCancel(t.Context())
	var services conc.WaitGroup
	act := func(m bus.Message) { play(t, s.Bus, m) }
	services.Go(func() { _ = s.Bus.Follow(ctx, event.StreamJobs, []string{"yard.job.*.submitted.v1"}, 1, act) })
	file := filepath.Join(t.TempDir(), "job.json")
	job := `{"name":"a","command":["x"],"batch_size":10,"training_set_size":1000,"max_epochs":50,"strategy":"all_reduce"}`
	if err := os.WriteFile(file, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := s.Run("measure", file, "--workers", "1..3", "--epochs", "3", "-o", "json")
	stop()
	services.Wait()
	var m measurement
	if err := json.Unmarshal([]byte(out), &m); err != nil || code != exit.Failed || len(m.Runs) != 3 || m.Speed == nil {
		t.Fatalf("exit %d, error %v: %s%s", code, err, out, errs)
	}
	type row struct {
		Workers, Epochs int
		State           train.State
		Samples, Steps  float64
		Step            float64
	}
	var got []row
	for _, r := range m.Runs {
		got = append(got, row{r.Workers, r.Epochs, r.State, math.Round(r.SamplesPerSecond), math.Round(r.StepsPerSecond), r.StepSeconds})
	}
	want := []row{{1, 3, train.StateSucceeded, 500, 50, 0.02}, {2, 3, train.StateSucceeded, 1000, 100, 0.01}, {3, 0, train.StateRejected, 0, 0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(m.Speed.Measured) != 2 || !strings.Contains(errs, "epoch 1 of 3, 500 samples/s") || !strings.Contains(errs, "with 3 workers: rejected") {
		t.Errorf("%+v\n%s", m.Speed, errs)
	}
}

func TestAnInterruptedMeasurementCancelsItsRun(t *testing.T) {
	s := clitest.New(t, Command)
	ctx, interrupt := context.WithCancel(t.Context())
	reading, stop := context.WithCancel(t.Context())
	var services conc.WaitGroup
	cancelled := make(chan string, 1)
	act := func(m bus.Message) {
		switch m.Parsed.Fact {
		case event.FactSubmitted:
			clitest.PutJob(t, s.Bus, train.Job{ID: train.JobID(m.Parsed.ID), State: train.StateQueued})
			clitest.Publish(t, s.Bus, event.JobFact(train.JobID(m.Parsed.ID), event.FactStarted, "started", event.Started{Attempt: 1, Node: "n"}))
		case event.FactStarted:
			interrupt()
		case event.FactCancelRequested:
			cancelled <- m.Parsed.ID
		}
	}
	services.Go(func() { _ = s.Bus.Follow(reading, event.StreamJobs, []string{"yard.job.>"}, 1, act) })
	c, err := runScale(ctx, s.Console, s.Bus, train.Spec{Name: "a", MaxEpochs: 3}, time.Hour)
	if err == nil || c != nil {
		t.Errorf("a run that was interrupted: %+v, error %v", c, err)
	}
	select {
	case id := <-cancelled:
		if !strings.HasPrefix(id, "a-") {
			t.Errorf("%s is cancelled", id)
		}
	case <-time.After(time.Minute):
		t.Error("the run is not cancelled")
	}
	stop()
	services.Wait()
}

func TestMeasurementsAreWritten(t *testing.T) {
	m := measurement{Runs: []measuredRun{
		{scale: scale{Workers: 1, Servers: 1}, Job: "a-1", State: train.StateSucceeded, Epochs: 3, SamplesPerSecond: 512.4, StepsPerSecond: 8.01, StepSeconds: 0.125, CPUCores: 0.98, config: train.Config{Workers: 1, Servers: 1, Nodes: 1, LocalBatch: 64}},
		{scale: scale{Workers: 2, Servers: 1}, Job: "a-2", State: train.StateFailed, CPUCores: -1},
	}}
	m.fit(train.Spec{Strategy: train.StrategyParameterServer}, nil)
	if m.Speed != nil {
		t.Fatal("a model of nothing")
	}
	m.fit(train.Spec{Strategy: train.StrategyParameterServer}, []curve.StepSample{{Config: m.Runs[0].config, StepSeconds: 0.125, Weight: 9}})
	a := clitest.NewWithoutBus()
	if err := printMeasurement(a.Console, m); err != nil {
		t.Fatal(err)
	}
	a.Output = "csv"
	if err := printMeasurement(a.Console, m); err != nil {
		t.Fatal(err)
	}
	out, _ := a.Printed()
	clitest.Golden(t, "measure.txt", out)
}
