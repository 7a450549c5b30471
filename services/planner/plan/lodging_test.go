package plan

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// mover moves the job that stands for a shared device, and gives the devices from the second on to whoever else stands before it.
type mover struct{ devices []train.DeviceID }

func (mover) Name() string { return "mover" }

func (m mover) decide(s State) train.Plan {
	var p train.Plan
	free := m.devices[2:]
	for _, j := range s.Jobs {
		if j.Rides {
			continue
		}
		a := train.Allocation{Job: j.ID, Node: "n"}
		switch {
		case j.ID == "host":
			a.Devices = m.devices[1:2]
		case len(p.Allocations) < 2: // the first of the others keeps what it cannot leave
			a.Devices = m.devices[:1]
		default:
			a.Devices, free = free[:1], free[1:]
		}
		p.Allocations = append(p.Allocations, a)
	}
	return p
}

// TestSilentJobsStayTogether: when the job that stands for a device leaves it, those that cannot be asked to leave stay, all of them.
func TestSilentJobsStayTogether(t *testing.T) {
	m := mover{devices: []train.DeviceID{"gpu:0", "gpu:1", "gpu:2", "gpu:3"}}
	node := train.Node{ID: "n"}
	for _, id := range m.devices {
		node.Devices = append(node.Devices, train.Device{ID: id, Kind: train.KindGPU, Memory: 16 * unit.GiB})
	}
	s := State{Nodes: []train.Node{node}}
	for _, id := range []train.JobID{"host", "silent-1", "silent-2"} {
		h := Holding{Node: "n", Devices: m.devices[:1], Memory: 4 * unit.GiB}
		planned := h
		if id != "host" {
			planned.Beside = "host"
		}
		s.Jobs = append(s.Jobs, Job{
			ID: id, Spec: train.Spec{AllowSharing: true, EstimatedMemoryMiB: 4 << 10, MinDevices: 1, MaxDevices: 1}, Planned: &planned,
			Running: &Running{Holding: h, Spoke: id == "host"},
		})
	}
	l := newLodgings(s)
	p := l.decide(m, l.firstRiders())
	for _, id := range []train.JobID{"silent-1", "silent-2"} {
		if a, found := p.Find(id); !found || len(a.Devices) != 1 || a.Devices[0] != "gpu:0" {
			t.Errorf("%s is on %v, want gpu:0, where it runs and cannot be asked to leave", id, a.Devices)
		}
	}
}

// A job that lodges beside another is known no less than one that stands before the policy: what is guessed of jobs of which nothing is known does not depend on
// who stands there.
func TestWhoRidesIsKnown(t *testing.T) {
	s := State{Jobs: []Job{
		{ID: "short", Spec: train.Spec{EstimatedHours: 1}}, {ID: "long", Spec: train.Spec{EstimatedHours: 5}, Rides: true}, {ID: "longer", Spec: train.Spec{EstimatedHours: 9}},
	}}
	if b := newBoard(s, false); b.typicalSeconds != 5*3600 || len(b.jobs) != 2 {
		t.Errorf("typical are %v s, want 5 h, with %d jobs", b.typicalSeconds, len(b.jobs))
	}
}

// A job that restarts where it is with more of its device is to the policy what it is when the plan is made again: it is not changed for the sake of speed.
func TestWhoRestartsWithALargerPartIsLeftAlone(t *testing.T) {
	h := Holding{Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: 4 * unit.GiB}
	s := State{
		Nodes: []train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Memory: 16 * unit.GiB}}}},
		Jobs: []Job{{
			ID: "x", Spec: train.Spec{AllowSharing: true, EstimatedMemoryMiB: 8 << 10}, Outgrown: true, Planned: &h,
			Running: &Running{Holding: h, Spoke: true, Epochs: 3, Seconds: 600},
		}},
	}
	seen := newLodgings(s).without(nil)
	if p := seen.Jobs[0].Planned; p == nil || p.Memory != 8*unit.GiB || newBoard(seen, false).jobs[0].rescalable {
		t.Errorf("the policy sees a job that holds %+v and may be changed", p)
	}
	if s.Jobs[0].Planned.Memory != 4*unit.GiB {
		t.Error("the state was changed")
	}
}

// BenchmarkDecideSharing has 160 jobs that may share 48 devices, half of them there already, of kinds all pairs of which were measured.
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
	s.Interference = map[string]*curve.Interference{curve.MeetingsKey(&s.Nodes[0].Devices[0]): known}
	for b.Loop() {
		Decide(s, Switchyard{})
	}
}

// TestWhoOutgrowsItsPartLeavesTheOthersAlone: whichever jobs of shared devices turn out to use more than their parts, those beside them keep theirs, and nobody
// comes to memory that is used.
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
					if a, has := p.Find(id); !has || !holdingOf(a).same(had) {
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

// What a policy remembers of a plan is how the next decision finds it: one whose device another has come to share is as young as that one, which is no news then.
func TestWhoGetsARiderIsNoNews(t *testing.T) {
	h := Holding{Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: 4 * unit.GiB}
	spec := train.Spec{AllowSharing: true, EstimatedMemoryMiB: 4 << 10, MinDevices: 1, MaxDevices: 1, MaxEpochs: 10, BatchSize: 10, TrainingSetSize: 100}
	s := State{
		Now: time.Unix(1000, 0), Tuning: live(),
		Nodes: []train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Memory: 16 * unit.GiB}}}},
		Jobs: []Job{
			{ID: "host", Spec: spec, Planned: &h, Running: &Running{Holding: h, Spoke: true, Epochs: 3, Seconds: 600}},
			{ID: "rider", Spec: spec},
		},
	}
	p := Decide(s, Switchyard{})
	if a, has := p.Find("rider"); !has || a.Beside != "host" {
		t.Fatalf("the rider is not beside the host:\n%s", words(p))
	}
	if next := Decide(s.published(p), Switchyard{}); next.Memory != p.Memory {
		t.Errorf("the plan is remembered as %s, and found as %s", p.Memory, next.Memory)
	}
}

// Of who waits by both plans the first says why, but not that something is kept for it by the second one alone.
func TestWhatIsKeptIsToldOfThePlanThatKeepsIt(t *testing.T) {
	waits := func(id train.JobID, code string) train.Waiting {
		return train.Waiting{Job: id, Blockers: []train.Reason{{Code: code}}}
	}
	first := train.Plan{Waiting: []train.Waiting{waits("x", ReasonPreemptedByPriority), waits("y", ReasonPreemptedByPriority)}}
	second := train.Plan{Waiting: []train.Waiting{waits("x", ReasonDevicesKept), waits("y", ReasonWaitingForDevices)}}
	told := reasonsOf(first, second).Waiting
	if x, y := told[0].Blockers[0].Code, told[1].Blockers[0].Code; x != ReasonDevicesKept || y != ReasonPreemptedByPriority {
		t.Errorf("x waits since %s, want %s; y since %s, want %s", x, ReasonDevicesKept, y, ReasonPreemptedByPriority)
	}
}
