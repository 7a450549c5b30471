package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestPlansKeepThePromises plays random days: jobs come, learn, end and are cancelled, nodes come and go, plans are applied in full or in part; each
// decision of each policy is checked.
func TestPlansKeepThePromises(t *testing.T) {
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				d := &day{t: t, dice: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "day"), 1))}
				for range rapid.IntRange(1, 12).Draw(t, "rounds") {
					d.change()
					p := Decide(d.state, policy)
					checkDevices(t, d.state, p)
					checkComplete(t, d.state, p)
					checkHoldings(t, d.state, p)
					checkPriorities(t, d.state, p)
					checkRepeatable(t, d.state, policy, p)
					checkStable(t, d.state, policy, p)
					d.apply(p)
				}
			})
		})
	}
}

// day is a state that changes at random. It throws its own dice, since rapid prefers small numbers, with which days stay empty.
type day struct {
	t     *rapid.T
	dice  *rand.Rand
	state State
	born  int
}

func (d *day) chance(percent int) bool { return d.dice.IntN(100) < percent }

// between is a number from low to high.
func (d *day) between(low, high int) int { return low + d.dice.IntN(high-low+1) }

func (d *day) change() {
	if len(d.state.Nodes) == 0 || d.chance(20) {
		id := train.NodeID(fmt.Sprintf("n%d", d.between(0, 2)))
		d.state.Nodes = slices.DeleteFunc(d.state.Nodes, func(n train.Node) bool { return n.ID == id })
		n := train.Node{ID: id}
		memory := unit.Bytes(8*int64(d.between(0, 2))) * unit.GiB
		for i := range d.between(1, 6) {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU, Memory: memory})
		}
		d.state.Nodes = append(d.state.Nodes, n)
	} else if d.chance(5) {
		d.state.Nodes = d.state.Nodes[1:]
	}
	for range d.between(0, 4) {
		d.state.Jobs = append(d.state.Jobs, d.job())
	}
	d.state.Jobs = slices.DeleteFunc(d.state.Jobs, func(j Job) bool { return d.chance(10) })
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.CancelRequested = j.CancelRequested || d.chance(3)
		if r := j.Running; r != nil && d.chance(60) {
			r.Spoke, r.Epochs, r.Seconds, j.EpochsDone = true, r.Epochs+1, r.Seconds+20, min(j.EpochsDone+1, j.Spec.MaxEpochs)
			d.learn(j, deviceCount(r.Holding))
			if d.chance(8) && len(r.Devices) > 1 && len(j.Slow) < train.MaxStragglers {
				j.Slow = append(j.Slow, train.Straggler{Attempt: len(j.Slow) + 1, Node: r.Node, Device: r.Devices[d.between(0, len(r.Devices)-1)], Slowdown: float64(d.between(1, 5))})
			}
		}
	}
}

func (d *day) job() Job {
	d.born++
	least := d.between(1, 3)
	return Job{
		ID: train.JobID(fmt.Sprintf("j%d", d.between(0, 9)*100+d.born)), Priority: 20 + 30*d.between(0, 2),
		SubmittedAt: time.Unix(int64(d.between(0, 3)), 0),
		Spec: train.Spec{
			MinDevices: least, MaxDevices: least + d.between(0, 4), BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: d.between(0, 30),
			EstimatedHours: float64(d.between(0, 3)), EstimatedMemoryMiB: (12 << 10) * int64(d.between(0, 4)/4),
		},
	}
}

func deviceCount(h Holding) int {
	n := 0
	for _, p := range h.places() {
		n += len(p.Devices)
	}
	return n
}

func (d *day) learn(j *Job, workers int) {
	seen := train.Config{Workers: workers, Nodes: 1, LocalBatch: 10}
	speed, err := curve.FitStepTime([]curve.StepSample{{Config: seen, StepSeconds: 0.01 + 3*d.dice.Float64()}})
	if err != nil {
		d.t.Fatal(err)
	}
	j.Model = &train.Model{Speed: speed, EpochsSeen: j.EpochsDone}
}

// apply lets the executor get so far with each job of the plan.
func (d *day) apply(p train.Plan) {
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.Planned = nil
		if a, ok := p.Find(j.ID); ok {
			j.Planned = &Holding{Node: a.Node, Devices: a.Devices}
		}
		moves := j.Running != nil && (j.Planned == nil || j.Running.Node != j.Planned.Node || !train.SameDevices(j.Running.Devices, j.Planned.Devices))
		if moves {
			j.Running.StopPending = true
			if d.chance(70) {
				j.Running = nil
			}
		}
		if j.Running == nil && j.Planned != nil && d.chance(80) {
			j.Running = &Running{Holding: *j.Planned}
		}
	}
}

// checkDevices: each device exists and is given once.
func checkDevices(t *rapid.T, s State, p train.Plan) {
	given := map[string]train.JobID{}
	for _, a := range p.Allocations {
		n := slices.IndexFunc(s.Nodes, func(n train.Node) bool { return n.ID == a.Node })
		if n < 0 {
			t.Fatalf("%s is on node %s, which is gone", a.Job, a.Node)
		}
		for _, d := range a.Devices {
			if !slices.ContainsFunc(s.Nodes[n].Devices, func(x train.Device) bool { return x.ID == d }) {
				t.Fatalf("%s gets %s, which %s has not", a.Job, d, a.Node)
			}
			key := string(a.Node) + "/" + string(d)
			if other, taken := given[key]; taken {
				t.Fatalf("%s is given to %s and to %s", key, other, a.Job)
			}
			given[key] = a.Job
		}
	}
}

// checkComplete: each job is in the plan once, with a reason; a cancelled one is not; gangs are whole.
func checkComplete(t *rapid.T, s State, p train.Plan) {
	waits := map[train.JobID]int{}
	for _, w := range p.Waiting {
		waits[w.Job]++
		if len(w.Blockers) == 0 || w.Blockers[0].Code == "" || w.Blockers[0].Message == "" {
			t.Fatalf("%s waits without a reason", w.Job)
		}
	}
	for _, j := range s.Jobs {
		a, has := p.Find(j.ID)
		places := waits[j.ID]
		if has {
			places++
		}
		if want := map[bool]int{true: 0, false: 1}[j.CancelRequested]; places != want {
			t.Fatalf("%s (cancelled: %v) is in the plan %d times", j.ID, j.CancelRequested, places)
		}
		if has && (len(a.Devices) < j.Spec.MinDevices || len(a.Devices) > j.Spec.MaxDevices) {
			t.Fatalf("%s gets %d devices, wants %d to %d", j.ID, len(a.Devices), j.Spec.MinDevices, j.Spec.MaxDevices)
		}
		if has && a.Reason.Message == "" {
			t.Fatalf("%s has no reason", j.ID)
		}
	}
}

// alive says whether a holding still exists.
func alive(s State, h Holding) bool {
	for _, n := range s.Nodes {
		if n.ID == h.Node {
			return !slices.ContainsFunc(h.Devices, func(id train.DeviceID) bool {
				return !slices.ContainsFunc(n.Devices, func(d train.Device) bool { return d.ID == id })
			})
		}
	}
	return false
}

func silent(j Job) bool { return j.Running != nil && !j.Running.Spoke && !j.Running.StopPending }

// checkHoldings: who cannot be asked stays; who is resized keeps a part or all of what it had; young attempts are not resized for others of
// the same priority.
func checkHoldings(t *rapid.T, s State, p train.Plan) {
	for _, j := range s.Jobs {
		a, has := p.Find(j.ID)
		if silent(j) && !j.CancelRequested && alive(s, j.Running.Holding) {
			if !has || a.Node != j.Running.Node || !train.SameDevices(a.Devices, j.Running.Devices) {
				t.Fatalf("%s never spoke and runs on %v, planned %+v", j.ID, j.Running.Holding, a)
			}
			continue
		}
		if j.CancelRequested || j.Planned == nil || !alive(s, *j.Planned) || contested(s, j) {
			continue
		}
		young := j.Running == nil || !j.Running.Spoke || j.Running.Epochs < 1
		if young && !has && !outranked(s, p, j) {
			t.Fatalf("%s is stopped before its first epoch on %v, and for no job of higher priority", j.ID, j.Planned)
		}
		if !has || a.Node != j.Planned.Node {
			continue
		}
		common := 0
		for _, d := range a.Devices {
			if slices.Contains(j.Planned.Devices, d) {
				common++
			}
		}
		// A slow device of its own may be given up for another one.
		if common < min(len(a.Devices), len(j.Planned.Devices))-len(j.Slow) {
			t.Fatalf("%s held %v and gets %v: neither some of them nor more", j.ID, j.Planned.Devices, a.Devices)
		}
		if young && len(a.Devices) != len(j.Planned.Devices) && !outranked(s, p, j) {
			t.Fatalf("%s is resized from %v to %v before its first epoch there", j.ID, j.Planned.Devices, a.Devices)
		}
	}
}

// contested says whether an attempt that cannot leave sits on what was planned for the job.
func contested(s State, j Job) bool {
	return slices.ContainsFunc(s.Jobs, func(o Job) bool {
		return o.ID != j.ID && silent(o) && o.Running.Node == j.Planned.Node &&
			slices.ContainsFunc(o.Running.Devices, func(d train.DeviceID) bool { return slices.Contains(j.Planned.Devices, d) })
	})
}

// outranked says whether a job of higher priority gets devices of the node that it did not hold.
func outranked(s State, p train.Plan, j Job) bool {
	return slices.ContainsFunc(s.Jobs, func(o Job) bool {
		a, has := p.Find(o.ID)
		return has && o.Priority > j.Priority && a.Node == j.Planned.Node &&
			(o.Planned == nil || o.Planned.Node != a.Node || !train.SameDevices(o.Planned.Devices, a.Devices))
	})
}

// checkPriorities: no job waits as long as jobs of lower priority that could be asked to leave hold what it needs. Behind the head of a line that
// nobody passes the others wait for the head.
func checkPriorities(t *rapid.T, s State, p train.Plan) {
	for _, w := range p.Waiting {
		if w.Blockers[0].Code == ReasonHeadOfLineBlocked || slices.ContainsFunc(w.Blockers, func(r train.Reason) bool { return r.Code == ReasonHeadOfLineBlocked }) {
			continue
		}
		j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == w.Job })]
		for _, n := range s.Nodes {
			if len(n.Devices) > 0 && n.Devices[0].Memory > 0 && j.Spec.EstimatedMemory() > n.Devices[0].Memory {
				continue
			}
			room := len(n.Devices)
			for _, a := range p.Allocations {
				o := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })]
				if a.Node == n.ID && (o.Priority >= j.Priority || silent(o)) {
					room -= len(a.Devices)
				}
			}
			if room >= j.Spec.MinDevices {
				t.Fatalf("%s (priority %d, needs %d) waits, though %s has %d devices that are free or held by lower ones", j.ID, j.Priority, j.Spec.MinDevices, n.ID, room)
			}
		}
	}
}

// checkRepeatable: the same state gives the same bytes, in whatever order jobs and nodes come.
func checkRepeatable(t *rapid.T, s State, policy Policy, p train.Plan) {
	want, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	s.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
	s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
	if got, _ := json.Marshal(Decide(s, policy)); string(got) != string(want) {
		t.Fatalf("another order gives another plan:\n%s\n%s", want, got)
	}
}

// checkStable: with the plan published, and with it carried out, deciding again without news changes no device.
func checkStable(t *rapid.T, s State, policy Policy, p train.Plan) {
	published, applied := s, s
	published.Jobs, applied.Jobs = slices.Clone(s.Jobs), slices.Clone(s.Jobs)
	for i, j := range s.Jobs {
		published.Jobs[i].Planned, applied.Jobs[i].Planned = nil, nil
		a, has := p.Find(j.ID)
		if !has {
			applied.Jobs[i].Running = nil
			continue
		}
		h := &Holding{Node: a.Node, Devices: a.Devices}
		published.Jobs[i].Planned, applied.Jobs[i].Planned = h, h
		if j.Running == nil || j.Running.Node != a.Node || !train.SameDevices(j.Running.Devices, a.Devices) {
			applied.Jobs[i].Running = &Running{Holding: *h}
		}
	}
	for name, next := range map[string]State{"published": published, "applied": applied} {
		again := Decide(next, policy)
		same := slices.EqualFunc(p.Allocations, again.Allocations, func(x, y train.Allocation) bool {
			return x.Job == y.Job && x.Node == y.Node && train.SameDevices(x.Devices, y.Devices)
		})
		if !same {
			t.Fatalf("the %s plan is changed at once:\n%s\n%s", name, words(p), words(again))
		}
	}
}

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
			speed, err := curve.FitStepTime([]curve.StepSample{{Config: train.Config{Workers: 2, Nodes: 1, LocalBatch: 32}, StepSeconds: 0.01 * float64(1+i%17)}})
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
