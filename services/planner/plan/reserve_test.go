package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func gpus(node string, n int) train.Node {
	x := train.Node{ID: train.NodeID(node), Cores: 32, Memory: 64 * unit.GiB}
	for d := range n {
		x.Devices = append(x.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", d)), Kind: train.KindGPU, Memory: 16 * unit.GiB, BusyWatts: 100, IdleWatts: 10})
	}
	return x
}

func runningOn(j plan.Job, node string, devices ...train.DeviceID) plan.Job {
	h := plan.Holding{Node: train.NodeID(node), Devices: devices}
	j.Planned = &h
	j.Running = &plan.Running{Holding: h, Seconds: 300, Epochs: 3, Spoke: true}
	j.RunSeconds = 300
	return j
}

func jobOf(now time.Time, id string, priority, devices int, age time.Duration) plan.Job {
	return plan.Job{
		ID: train.JobID(id), Priority: priority, SubmittedAt: now.Add(-age),
		Spec: train.Spec{MinDevices: devices, MaxDevices: devices, Tenant: "t", BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 30},
	}
}

// TestAReservationTakesNothingFromWhoRuns: what is reserved for a job is taken by a more important one. The reservation
// does not pass to the device, the quota or the watts of a job that runs.
func TestAReservationTakesNothingFromWhoRuns(t *testing.T) {
	now := time.Unix(100_000, 0)
	limits := map[string]func(s *plan.State){
		"devices": func(s *plan.State) { s.Nodes = []train.Node{gpus("a", 2)} },
		"quota":   func(s *plan.State) { s.Quotas = map[string]int{"t": 2} },
		"power":   func(s *plan.State) { s.PowerBudgetWatts = 4*10 + 2*90 },
	}
	for limit, set := range limits {
		for name, policy := range plan.Policies() {
			t.Run(limit+" "+name, func(t *testing.T) {
				s := plan.State{Now: now, Tuning: plan.Tuning{AtEpochs: true, OneNode: true, StarvationSeconds: 60}, Nodes: []train.Node{gpus("a", 4)}}
				set(&s)
				s.Jobs = []plan.Job{
					jobOf(now, "starved", 50, 2, 1000*time.Second),
					runningOn(jobOf(now, "runs", 50, 1, 500*time.Second), "a", "gpu:0"),
					jobOf(now, "high", 80, 1, time.Second),
				}
				made := plan.Decide(s, policy)
				for _, id := range []train.JobID{"runs", "high"} {
					if _, has := made.Find(id); !has {
						t.Errorf("%s waits:\n%s", id, describePlan(made))
					}
				}
			})
		}
	}
}

// TestWhatIsReservedIsNamed: a job that waits since the rest of a quota or of the power budget is kept for another says
// so.
func TestWhatIsReservedIsNamed(t *testing.T) {
	now := time.Unix(100_000, 0)
	limits := map[string]func(s *plan.State) string{
		"quota": func(s *plan.State) string {
			s.Quotas = map[string]int{"t": 2}
			return `needs 1 device; "t" holds 1 of its quota of 2, and keeps 1 device more for jobs that have waited for too long`
		},
		"power": func(s *plan.State) string {
			s.PowerBudgetWatts = 6*10 + 2*90
			return "needs 1 device, and the power budget leaves 90 W, 90 W of them for jobs that have waited for too long"
		},
	}
	for limit, set := range limits {
		t.Run(limit, func(t *testing.T) {
			s := plan.State{Now: now, Tuning: plan.Tuning{AtEpochs: true, OneNode: true, StarvationSeconds: 60}, Nodes: []train.Node{gpus("a", 6)}}
			want := set(&s)
			s.Jobs = []plan.Job{
				jobOf(now, "starved", 50, 2, 1000*time.Second),
				runningOn(jobOf(now, "runs", 50, 1, 500*time.Second), "a", "gpu:0"),
				jobOf(now, "new", 50, 1, time.Second),
			}
			made := plan.Decide(s, plan.SRTF{})
			for _, w := range made.Waiting {
				if w.Job == "new" && w.Blockers[0].Message != want {
					t.Errorf("got %q, want %q", w.Blockers[0].Message, want)
				}
			}
			if len(made.Waiting) != 2 {
				t.Error(describePlan(made))
			}
		})
	}
}
