package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkStarts is how many jobs a second get their pods, from the plan on, on nodes that only exist on paper. Run it with -benchtime 1x.
func BenchmarkStarts(b *testing.B) {
	const jobs = 400
	y := fakeNodes(b, jobs)
	var allocations []train.Allocation
	for i := range jobs {
		id := train.JobID(fmt.Sprintf("r%d", i))
		spec := train.Spec{Name: string(id), Image: image, Command: []string{"/trainer"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1}
		_, err := y.jobs.Swap(y.ctx, string(id), train.Job{ID: id, Spec: spec.WithDefaults(), State: train.StateQueued}, 0)
		y.must(err)
		allocations = append(allocations, train.Allocation{Job: id, Node: train.NodeID(fmt.Sprintf("kwok-%d", i)), Devices: []train.DeviceID{"gpu:0"}})
	}
	b.ResetTimer()
	y.plan(allocations...)
	// A look costs as much as dozens of pods.
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for strings.Count(y.kubectl("get", "pods", "-n", y.namespace, "-o", "name"), "pod/") < jobs {
		<-look.C
	}
	b.ReportMetric(jobs/b.Elapsed().Seconds(), "pods/s")
}
