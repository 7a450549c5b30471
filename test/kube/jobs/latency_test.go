package jobs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkSubmissionToContainer measures the time of a single job from its publication to a running container, and
// from its planned fact to its pod: bus, admission, planner, executor and agent as separate processes, on a real
// kubelet. Run it with -benchtime 1x.
func BenchmarkSubmissionToContainer(b *testing.B) {
	const jobs = 30
	y := newYard(b)
	y.start("planner")
	w := y.podWatcher(y.client(), y.namespace)
	planned := y.facts(event.FactPlanned)
	var toPlan, toPod, toRun []time.Duration
	for i := range jobs {
		id := train.JobID(fmt.Sprintf("c%d", i))
		spec := train.Spec{Name: string(id), Image: image, Command: []string{"/trainer", "-hidden", "8"}, BatchSize: 10, TrainingSetSize: 100, MaxEpochs: 1, MaxDevices: 1}
		began := time.Now()
		y.must(y.bus.Publish(y.ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})))
		pod := string(id) + "-1-0"
		y.await(w, pod, 1, ran)
		m, at := w.of(pod), planned(id)
		toPlan, toPod, toRun = append(toPlan, at.Sub(began)), append(toPod, m.made.Sub(at)), append(toRun, m.ran.Sub(began))
		y.state(id, train.StateSucceeded)
		y.nothingLeft()
	}
	b.ReportMetric(millis(quantile(toPlan, 0.5)), "planned-ms")
	b.ReportMetric(millis(quantile(toPod, 0.5)), "planned-to-pod-ms")
	b.ReportMetric(millis(quantile(toRun, 0.5)), "container-ms")
	b.ReportMetric(millis(quantile(toRun, 0.9)), "container-ms-p90")
	b.ReportMetric(0, "ns/op")
}

// facts records when a fact of a job arrives from the bus, and waits for it.
func (y *yard) facts(fact string) func(train.JobID) time.Time {
	y.t.Helper()
	var mu sync.Mutex
	epochFacts := map[train.JobID]time.Time{}
	subject := event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1}
	ctx, cancel := context.WithCancel(y.ctx)
	var following conc.WaitGroup
	following.Go(func() {
		_ = y.bus.Follow(ctx, event.StreamJobs, []string{subject.String()}, 1, func(m bus.Message) {
			mu.Lock()
			defer mu.Unlock()
			epochFacts[train.JobID(m.Parsed.ID)] = time.Now()
		})
	})
	y.t.Cleanup(func() { cancel(); following.Wait() })
	return func(id train.JobID) (at time.Time) {
		y.until(fmt.Sprintf("job %s: %s", id, fact), func() bool {
			mu.Lock()
			defer mu.Unlock()
			at = epochFacts[id]
			return !at.IsZero()
		})
		return at
	}
}
