package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkDecideIdleCluster has an idle cluster and, for each of its devices, a job that has waited for too long.
func BenchmarkDecideIdleCluster(b *testing.B) {
	for _, name := range PolicyNames() {
		for _, size := range []int{100, 400} {
			b.Run(fmt.Sprintf("%s/%d_nodes", name, size), func(b *testing.B) {
				var s State
				s.Now = time.Unix(100000, 0)
				s.Tuning = Tuning{OneNode: true, AtEpochs: true}
				for i := range size {
					n := train.Node{ID: train.NodeID(fmt.Sprintf("n%05d", i))}
					for d := range 8 {
						n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("GPU-%d-%d", d, i)), Kind: train.KindGPU})
					}
					s.Nodes = append(s.Nodes, n)
				}
				for i := range size * 8 {
					spec := train.Spec{MinDevices: 1, MaxDevices: 1, BatchSize: 32, TrainingSetSize: 1000, MaxEpochs: 10}
					s.Jobs = append(s.Jobs, Job{ID: train.JobID(fmt.Sprintf("j%06d", i)), Priority: 50, SubmittedAt: time.Unix(0, 0), Spec: spec})
				}
				for b.Loop() {
					Decide(s, Policies()[name])
				}
			})
		}
	}
}
