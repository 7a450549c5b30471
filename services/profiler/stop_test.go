package profiler

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// facts returns the first n facts of a kind, of any job.
func facts[T any](b *bench, fact string, n int) []T {
	b.t.Helper()
	var published []T
	b.follow("yard.job.*."+fact+".v1", func(m bus.Message) bool {
		body, err := event.Decode[T](m.Data)
		if err != nil {
			b.t.Error(err)
		}
		published = append(published, body)
		return len(published) == n
	})
	if len(published) < n {
		b.t.Fatalf("%d facts %s, want %d", len(published), fact, n)
	}
	return published
}

// lossOf has converged by the rule after about ten epochs.
func lossOf(epoch int) float64 { return 1/(0.5*float64(epoch)+0.5) + 1 }

// lossy ends an epoch of an attempt, and waits until it has entered the model as the one with a number.
func (b *bench) lossy(id train.JobID, attempt, epoch, number int) {
	b.publish(id, event.FactEpochEnded, fmt.Sprintf("attempt/%d/epoch/%d", attempt, epoch), 20*float64(number),
		event.EpochEnded{Attempt: attempt, EpochsDone: epoch, EpochSeconds: 20, Devices: 1, Loss: new(lossOf(epoch))})
	b.await(id, seen(number))
}

func TestAConvergedJobIsPublishedOnceAcrossARestart(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	s := spec()
	s.MaxEpochs, s.Stop = 100, &train.StopSpec{LossDecrease: 0.02, Epochs: 3}
	b.begin("a", s)
	b.begin("plain", spec()) // as calm, but without a stop rule
	end := 0
	for e := 1; e <= 20; e++ {
		b.lossy("a", 1, e, e)
		// The drop of the true curve at its third calm epoch shows where the end is due.
		if end == 0 && e > 3 && lossOf(e-3)-lossOf(e-2) < 0.02 {
			end = e
		}
	}
	first := facts[event.Converged](b, event.FactConverged, 1)[0]
	if first.EpochsDone < end-1 || first.EpochsDone > end+1 || first.LossDecrease <= 0 || first.LossDecrease >= 0.02 {
		t.Fatalf("published %+v, want about epoch %d", first, end)
	}
	// The estimate is for the predicted end, not for all epochs.
	if r := b.estimates(1); r[0].TotalSeconds > 100*20 {
		t.Errorf("estimate %+v", r[0])
	}
	stop()
	b.serve()
	b.lossy("a", 1, 21, 21)
	if published := b.count(event.FactConverged); published != 1 {
		t.Errorf("published %d times", published)
	}
	// A job that begins again from scratch has another loss to converge.
	b.publish("a", event.FactAttemptLost, "attempt/1/end", 420, event.AttemptLost{Attempt: 1, EpochsDone: 21})
	b.publish("a", event.FactStarted, "attempt/2/started", 420, event.Started{Attempt: 2, Devices: []train.DeviceID{"cpu:0"}, FromScratch: true})
	for e := 1; e <= 20; e++ {
		b.lossy("a", 2, e, 21+e)
	}
	if again := facts[event.Converged](b, event.FactConverged, 2)[1]; again != first {
		t.Errorf("the second time %+v, the first time %+v", again, first)
	}
}

func TestAStragglerIsPublishedOnceAnAttemptAndKeptInTheModel(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	s := spec()
	s.MinDevices, s.MaxDevices, s.Launch, s.Strategy = 3, 3, train.LaunchPerDevice, train.StrategyAllReduce
	devices := []train.DeviceID{"cpu:4", "cpu:5", "cpu:6"}
	b.publish("a", event.FactAdmitted, "admitted", 0, event.Admitted{Spec: s})
	b.publish("a", event.FactStarted, "attempt/1/started", 0, event.Started{Attempt: 1, Node: "lab1", Devices: devices})
	b.epoch("a", 1, 20)
	b.await("a", seen(1))
	b.beats(1, []float64{0.4, 0, 0.4})
	published := facts[event.Straggling](b, event.FactStraggling, 1)[0]
	if published.Rank != 1 || published.Device != "cpu:5" || published.Node != "lab1" || published.Attempt != 1 || published.Workers != 3 || published.Slowdown < 1.6 || published.Slowdown > 1.7 {
		t.Fatalf("published %+v", published)
	}
	kept := func(n int) func(train.Model) bool { return func(m train.Model) bool { return len(m.Stragglers) == n } }
	if m := b.await("a", kept(1)).Value; m.Stragglers[0].Device != "cpu:5" {
		t.Fatalf("model %+v", m)
	}
	// A restart knows it, and the next attempt has its own.
	stop()
	b.serve()
	b.publish("a", event.FactStarted, "attempt/2/started", 60, event.Started{Attempt: 2, Node: "lab1", Devices: []train.DeviceID{"cpu:4", "cpu:6", "cpu:7"}})
	b.publish("a", event.FactEpochEnded, "attempt/2/epoch/2", 80, event.EpochEnded{Attempt: 2, EpochsDone: 2, EpochSeconds: 20, Devices: 3})
	b.await("a", seen(2))
	b.beats(2, []float64{0.4, 0.4, 0})
	if m := b.await("a", kept(2)).Value; m.Stragglers[0].Device != "cpu:5" || m.Stragglers[1].Device != "cpu:7" {
		t.Fatalf("model %+v", m)
	}
	if published := b.count(event.FactStraggling); published != 2 {
		t.Errorf("published %d times", published)
	}
}

// beats publishes a heartbeat of each worker of job a: a step of a second in which it waited that long.
func (b *bench) beats(attempt int, waited []float64) {
	b.t.Helper()
	for rank, wait := range waited {
		f := event.Fact{
			Subject: event.Subject{Entity: "sample", ID: "a", Fact: event.FactStepped, Version: 1}, Source: "nodeagent",
			Key:  fmt.Sprintf("job/a/attempt/%d/step/50/%d", attempt, rank),
			Body: event.Stepped{Job: "a", Attempt: attempt, Rank: rank, Step: 50, Steps: 50, StepSeconds: 1, WaitSeconds: wait, Devices: len(waited)},
		}
		if err := b.bus.Publish(b.ctx, f); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestANewJobStartsWithTheModelOfItsKind(t *testing.T) {
	b := newBench(t)
	b.serve()
	s := spec()
	s.Command = []string{"train"}
	b.begin("first", s)
	b.epoch("first", 1, 20)
	b.await("first", seen(1))
	b.publish("first", event.FactSucceeded, "end", 50, event.Succeeded{Attempt: 1, EpochsDone: 10})
	other := s
	other.Command = []string{"another"}
	b.begin("other", other)
	b.begin("second", s)
	// 100 steps in 20 s.
	m := b.await("second", func(m train.Model) bool { return m.Speed.Known() }).Value
	if step := m.Speed.StepSeconds(train.Config{Workers: 1, Nodes: 1, LocalBatch: 10}); step != 0.2 || m.EpochsSeen != 0 {
		t.Fatalf("model %+v", m)
	}
	// What it measures itself counts, and another program gets nothing.
	b.epoch("second", 1, 40)
	if m := b.await("second", seen(1)).Value; len(m.Speed.Measured) != 1 || m.Speed.Measured[0].StepSeconds != 0.4 {
		t.Fatalf("model %+v", m)
	}
	b.epoch("other", 1, 10)
	if m := b.await("other", seen(1)).Value; m.Speed.Measured[0].StepSeconds != 0.1 {
		t.Fatalf("model %+v", m)
	}
}
