package plan

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestNobodyStarvesBesideThoseThatShare: a stream of jobs that share never leaves a device empty, but who wants one for itself, or several that it would share,
// gets them once the bound has passed and the jobs of then have ended.
func TestNobodyStarvesBesideThoseThatShare(t *testing.T) {
	const step, bound, longest = 60, 300, 300
	for _, policy := range []Policy{Switchyard{}, FIFO{}} {
		t.Run(policy.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				tuning := live()
				tuning.StarvationSeconds = bound
				s := State{Now: time.Unix(0, 0), Tuning: tuning}
				n := train.Node{ID: "n"}
				devices := rapid.IntRange(1, 3).Draw(t, "devices")
				for i := range devices {
					n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", i)), Kind: train.KindGPU, Memory: 16 * unit.GiB})
				}
				s.Nodes = []train.Node{n}
				most := devices
				if policy == (Switchyard{}) {
					most = 1 // it gives what comes free to whom that is enough for
				}
				alone := train.Spec{MinDevices: rapid.IntRange(1, most).Draw(t, "needs"), AllowSharing: rapid.Bool().Draw(t, "would share"), EstimatedMemoryMiB: 4 << 10}
				alone.MaxDevices = alone.MinDevices
				ends, started := map[train.JobID]time.Time{}, map[train.JobID]bool{}
				for i := 0; !started["alone"]; i++ {
					s.Now = s.Now.Add(step * time.Second)
					id := train.JobID(fmt.Sprint("shares", i))
					j := Job{ID: id, Priority: 50, SubmittedAt: s.Now, Spec: train.Spec{MinDevices: 1, MaxDevices: 1, AllowSharing: true, EstimatedMemoryMiB: 4 << 10}}
					if i > devices+(bound+2*longest)/step+2 {
						t.Fatalf("the job that wants a device for itself has waited for %d s", step*(i-devices))
					}
					if i == devices { // those before it have devices
						j.ID, j.Spec = "alone", alone
					}
					s.Jobs = append(s.Jobs, j)
					p := Decide(s, policy)
					var left []Job
					for _, j := range s.Jobs {
						a, has := p.Find(j.ID)
						if has && !started[j.ID] {
							started[j.ID], ends[j.ID] = true, s.Now.Add(time.Duration(rapid.IntRange(step, longest).Draw(t, "seconds"))*time.Second)
						}
						j.Planned, j.Running = nil, nil
						if has {
							j.Planned = holdingOf(a)
							j.Running = &Running{Holding: *j.Planned, Seconds: 5}
						}
						if !has || s.Now.Before(ends[j.ID]) {
							left = append(left, j)
						}
					}
					s.Jobs, s.Memory = left, p.Memory
				}
			})
		})
	}
}
