package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// BenchmarkDecide has 500 running jobs on 128 nodes of 8 devices and 10,000 waiting ones.
func BenchmarkDecide(b *testing.B) {
	for _, name := range PolicyNames() {
		b.Run(name, func(b *testing.B) {
			s, policy := busyCluster(b, 500, 10_000), Policies()[name]
			for b.Loop() {
				Decide(s, policy)
			}
		})
	}
}

// BenchmarkDecideStarving has 10,000 jobs that have waited for too long while all 1,024 devices are held, or the last
// 24 idle.
func BenchmarkDecideStarving(b *testing.B) {
	for _, name := range PolicyNames() {
		for _, idle := range []int{0, 24} {
			b.Run(fmt.Sprintf("%s/%d_idle", name, idle), func(b *testing.B) {
				s, policy := busyCluster(b, (1024-idle)/2, 10_000), Policies()[name]
				s.Now = time.Unix(20_000, 0)
				for b.Loop() {
					Decide(s, policy)
				}
			})
		}
	}
}

func busyCluster(b *testing.B, running, waiting int) State {
	b.Helper()
	var s State
	for i := range 128 {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("n%03d", i))}
		for d := range 8 {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range running + waiting {
		j := Job{
			ID: train.JobID(fmt.Sprintf("j%05d", i)), Priority: 40 + i%3*10, SubmittedAt: time.Unix(int64(i), 0),
			Spec: train.Spec{MinDevices: 1 + i%2, MaxDevices: 4, BatchSize: 32, TrainingSetSize: 50_000, MaxEpochs: 50},
		}
		if i < running {
			first := i % 4 * 2
			h := Holding{Node: s.Nodes[i/4].ID, Devices: []train.DeviceID{s.Nodes[0].Devices[first].ID, s.Nodes[0].Devices[first+1].ID}}
			speed, err := curve.FitStepTime([]curve.StepSample{{Config: train.Config{Workers: 2, Nodes: 1, LocalBatch: 32}, StepSeconds: 0.01 * float64(1+i%17)}}, curve.DevicePrior{})
			if err != nil {
				b.Fatal(err)
			}
			j.Planned, j.Running = &h, &Running{Holding: h, Seconds: 100, Epochs: 3, Spoke: true}
			j.EpochsDone, j.Model = 3, &train.Model{Speed: speed, EpochsSeen: 3}
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

// BenchmarkDecideUnlike has 10,000 waiting jobs against a quota or the power budget while devices are idle, jobs that
// are all of another memory, and such as may share devices.
func BenchmarkDecideUnlike(b *testing.B) {
	limits := map[string]func(s *State, held int){
		"quota":  func(s *State, held int) { s.Quotas = map[string]int{"": held + 10} },
		"power":  func(s *State, held int) { s.PowerBudgetWatts = float64(held+10) * 100 },
		"memory": func(s *State, _ int) { unlike(s) },
		"quota_memory": func(s *State, held int) {
			unlike(s)
			s.Quotas = map[string]int{"": held + 10}
		},
		"shared": func(s *State, _ int) {
			unlike(s)
			for i := range s.Jobs {
				s.Jobs[i].Spec.AllowSharing = true
			}
		},
	}
	for _, name := range PolicyNames() {
		for _, limit := range []string{"quota", "power", "memory", "quota_memory", "shared"} {
			for _, running := range []int{100, 500} {
				for _, wait := range []string{"new", "starved"} {
					b.Run(fmt.Sprintf("%s/%s/%d_running/%s", name, limit, running, wait), func(b *testing.B) {
						s, policy := busyCluster(b, running, 10_000), Policies()[name]
						for i := range s.Nodes {
							for d := range s.Nodes[i].Devices {
								s.Nodes[i].Devices[d].BusyWatts, s.Nodes[i].Devices[d].Memory = 100, 16*unit.GiB
							}
						}
						limits[limit](&s, 2*running)
						if wait == "starved" {
							s.Now = time.Unix(30_000, 0)
						}
						for b.Loop() {
							Decide(s, policy)
						}
					})
				}
			}
		}
	}
}

func unlike(s *State) {
	for i := range s.Jobs {
		s.Jobs[i].Spec.EstimatedMemoryMiB = int64(1000 + i)
	}
}
