package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
)

// BenchmarkDecideSharing has 160 jobs that may share 48 devices, half of them there already, of kinds all pairs of
// which were measured.
func BenchmarkDecideSharing(b *testing.B) {
	const jobs, kinds = 160, 20
	var s State
	for i := range 6 {
		n := train.Node{ID: train.NodeID(fmt.Sprint("n", i))}
		for d := range 8 {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", d)), Kind: train.KindGPU, Memory: 16 * unit.GiB})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range jobs {
		j := Job{
			ID: train.JobID(fmt.Sprint("j", i)), Priority: 50, SubmittedAt: time.Unix(int64(i), 0),
			Spec: train.Spec{Command: []string{fmt.Sprint("program", i%kinds)}, BatchSize: 32, AllowSharing: true, EstimatedMemoryMiB: 6 << 10, MinDevices: 1, MaxDevices: 1, MaxEpochs: 10},
		}
		if i < jobs/2 {
			n := &s.Nodes[i/8%6]
			j.Planned = &Holding{Node: n.ID, Devices: []train.DeviceID{n.Devices[i%8].ID}, Memory: 6 * unit.GiB}
			if i >= 48 {
				j.Planned.Beside = train.JobID(fmt.Sprint("j", i-48))
			}
			j.Running = &Running{Holding: *j.Planned, Seconds: 100, Epochs: 3, Spoke: true}
		}
		s.Jobs = append(s.Jobs, j)
	}
	known := curve.NewInterference("", nil)
	for i := range kinds {
		for k := range kinds {
			known.Measured(curve.KindOf(s.Jobs[i].Spec), []curve.Kind{curve.KindOf(s.Jobs[k].Spec)}, 0.4+0.5*float64((i*7+k*3)%kinds)/kinds)
		}
	}
	s.Interference = map[string]*curve.Interference{curve.InterferenceKey(&s.Nodes[0].Devices[0]): known}
	for b.Loop() {
		Decide(s, Switchyard{})
	}
}

// TestWhoOutgrowsItsPartLeavesTheOthersAlone: whichever jobs of shared devices turn out to use more than their parts,
// those beside them keep theirs, and nobody comes to memory that is used.
func TestWhoOutgrowsItsPartLeavesTheOthersAlone(t *testing.T) {
	for _, name := range PolicyNames() {
		policy, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				day := &story{state: State{Now: time.Unix(1000, 0), Tuning: live(), Nodes: []train.Node{{ID: "n"}}}}
				for i := range rapid.IntRange(1, 3).Draw(t, "devices") {
					day.state.Nodes[0].Devices = append(day.state.Nodes[0].Devices, train.Device{
						ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU, Memory: 16 * unit.GiB, Units: 16,
					})
				}
				sharing := func(i int) {
					day.state.Jobs = append(day.state.Jobs, Job{
						ID: train.JobID(fmt.Sprint("j", i)), SubmittedAt: time.Unix(int64(i), 0),
						Spec: train.Spec{AllowSharing: true, EstimatedMemoryMiB: rapid.Int64Range(1, 9).Draw(t, "GiB") << 10, MaxDevices: 1, MaxEpochs: 10, BatchSize: 10, TrainingSetSize: 100},
					})
				}
				for i := range rapid.IntRange(2, 8).Draw(t, "jobs") {
					sharing(i)
				}
				day.last = Decide(day.state, policy)
				day.apply(true)
				used := map[train.DeviceID]unit.Bytes{}
				stays := map[train.JobID]Holding{}
				for i := range day.state.Jobs {
					j := &day.state.Jobs[i]
					if j.Running == nil {
						continue
					}
					need := j.Running.Memory
					if rapid.IntRange(0, 2).Draw(t, "outgrows") == 0 {
						j.Outgrown, j.Spec.EstimatedMemoryMiB = true, j.Spec.EstimatedMemoryMiB+rapid.Int64Range(1, 4).Draw(t, "more")<<10
						need = j.Spec.EstimatedMemory()
					} else {
						stays[j.ID] = j.Running.Holding
					}
					used[j.Running.Devices[0]] += need
				}
				sharing(len(day.state.Jobs))
				p := Decide(day.state, policy)
				for id, had := range stays {
					if a, has := p.Find(id); !has || !holdingOf(a).Same(had) {
						t.Fatalf("%s has %+v and is not left alone:\n%s", id, had, words(p))
					}
				}
				newcomer := day.state.Jobs[len(day.state.Jobs)-1].ID
				if a, has := p.Find(newcomer); has && used[a.Devices[0]]+a.Memory > 16*unit.GiB {
					t.Fatalf("%s comes to %s, of which %s are used:\n%s", newcomer, a.Devices[0], used[a.Devices[0]], words(p))
				}
			})
		})
	}
}

// sharingState has x run on a device for long, and y beside it, which has not finished an epoch there.
func sharingState() State {
	spec := train.Spec{AllowSharing: true, EstimatedMemoryMiB: 6 << 10, MinDevices: 1, MaxDevices: 4, MaxEpochs: 100, BatchSize: 10, TrainingSetSize: 1000}
	h := Holding{Node: "a", Devices: []train.DeviceID{"gpu:0"}, Memory: 6 * unit.GiB}
	guest := h
	guest.Beside = "x"
	s := State{Now: time.Unix(1000, 0), Tuning: live(), Nodes: []train.Node{{ID: "a"}}}
	for i := range 4 {
		s.Nodes[0].Devices = append(s.Nodes[0].Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", i)), Kind: train.KindGPU, Memory: 16 * unit.GiB})
	}
	return State{Now: s.Now, Tuning: s.Tuning, Nodes: s.Nodes, Jobs: []Job{
		{ID: "x", Spec: spec, EpochsDone: 20, Planned: &h, Running: &Running{Holding: h, Spoke: true, Epochs: 20, Seconds: 6000}},
		{ID: "y", Spec: spec, Planned: &guest, Running: &Running{Holding: h, Spoke: true, Saved: true, Seconds: 5}},
	}}
}

// TestAPrimaryWaitsForItsGuestAndSaysSo: x has finished twenty epochs where it is. That it does not grow is for y
// beside it, which has finished none.
func TestAPrimaryWaitsForItsGuestAndSaysSo(t *testing.T) {
	for _, policy := range []Policy{Optimus{}, Switchyard{}} {
		a, has := Decide(sharingState(), policy).Find("x")
		if want := "it may grow once y beside it has finished an epoch there"; !has || a.Reason.Code != explain.Kept || !strings.Contains(a.Reason.Message, want) {
			t.Errorf("%s: x: %+v, want %q", policy.Name(), a.Reason, want)
		}
	}
}

// TestGuestsThatCannotLeaveStayTogether: y and z cannot be asked to leave, and x beside them can. A job of a higher
// priority that wants the device waits.
func TestGuestsThatCannotLeaveStayTogether(t *testing.T) {
	for _, policy := range Policies() {
		s := sharingState()
		s.Nodes[0].Devices = s.Nodes[0].Devices[:1]
		s.Jobs[1].Running.Spoke = false
		s.Jobs = append(s.Jobs, Job{ID: "urgent", Priority: 90, Spec: train.Spec{MinDevices: 1, MaxDevices: 1}})
		p := Decide(s, policy)
		for _, id := range []train.JobID{"x", "y"} {
			if a, has := p.Find(id); !has || a.Devices[0] != "gpu:0" {
				t.Errorf("%s: %s does not stay:\n%s", policy.Name(), id, words(p))
			}
		}
	}
}
