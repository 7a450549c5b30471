package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/colocate"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
)

// TestPlansKeepThePromises plays random days: jobs come, learn, end and are cancelled, nodes come and go, plans are
// applied in full or in part; each decision of each policy is checked.
func TestPlansKeepThePromises(t *testing.T) {
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				d := &day{t: t, dice: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "day"), 1)), state: State{Now: time.Unix(1000, 0), Tuning: live()}}
				d.terms()
				for range rapid.IntRange(1, 12).Draw(t, "rounds") {
					d.change()
					p := Decide(d.state, policy)
					checkDevices(t, d.state, p)
					checkComplete(t, d.state, p)
					checkHoldings(t, d.state, p)
					checkPriorities(t, d.state, p)
					checkTerms(t, d.state, p)
					checkWishes(t, d.state, p)
					checkRepeatable(t, d.state, policy, p)
					checkStable(t, d.state, policy, p)
					d.apply(p)
				}
			})
		})
	}
}

// day is a state that changes at random. It throws its own dice, since rapid prefers small numbers, with which days
// stay empty.
type day struct {
	t     *rapid.T
	dice  *rand.Rand
	state State
	born  int
	// crowded: most jobs share, all are of one tenant and small enough for several on a device.
	crowded bool
	// models is the number of models of GPU on each node; with more than one, some jobs ask for one of them.
	models int
}

func (d *day) chance(percent int) bool { return d.dice.IntN(100) < percent }

// between is a number from low to high.
func (d *day) between(low, high int) int { return low + d.dice.IntN(high-low+1) }

// terms are quotas and a power budget, on some days.
func (d *day) terms() {
	randomTerms(d.dice, &d.state)
	d.crowded = d.chance(30)
}

func randomTerms(dice *rand.Rand, s *State) {
	if dice.IntN(3) == 0 {
		s.Quotas = map[string]int{"t0": dice.IntN(5), "t1": 1 + dice.IntN(8)}
	}
	if dice.IntN(3) == 0 {
		s.PowerBudgetWatts = float64(100 + dice.IntN(1500))
	}
	if dice.IntN(3) == 0 {
		s.Tuning.EnergyWeight, s.Tuning.FairnessBound, s.Tuning.StarvationSeconds = dice.Float64(), 1+3*dice.Float64(), 100
	}
}

// randomWatts are what a device draws at most, and idle.
func randomWatts(dice *rand.Rand) (busy, idle float64) {
	busy = float64(50 + 25*dice.IntN(8))
	return busy, busy / float64(2+dice.IntN(8))
}

func (d *day) change() {
	d.state.Now = d.state.Now.Add(30 * time.Second)
	if len(d.state.Nodes) == 0 || d.chance(20) {
		number := d.between(0, 2)
		id := train.NodeID(fmt.Sprintf("n%d", number))
		d.state.Nodes = slices.DeleteFunc(d.state.Nodes, func(n train.Node) bool { return n.ID == id })
		n := train.Node{ID: id, Labels: d.labels()}
		memory := unit.Bytes(8*number) * unit.GiB // a device of a name is of one size
		busy, idle := randomWatts(d.dice)
		for i := range d.between(1, 6) {
			n.Devices = append(n.Devices, train.Device{
				ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU, Model: modelOf(i, d.models), Memory: memory, BusyWatts: busy, IdleWatts: idle, Units: 5 * (i % 2),
			})
		}
		d.state.Nodes = append(d.state.Nodes, n)
	} else if d.chance(5) {
		d.state.Nodes = d.state.Nodes[1:]
	}
	for range d.between(0, 4) {
		d.state.Jobs = append(d.state.Jobs, d.job())
	}
	d.meet()
	d.state.Jobs = slices.DeleteFunc(d.state.Jobs, func(j Job) bool { return d.chance(10) })
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.CancelRequested = j.CancelRequested || d.chance(3)
		if r := j.Running; r != nil && d.chance(60) {
			r.Spoke, r.Epochs, r.Seconds, j.EpochsDone = true, r.Epochs+1, r.Seconds+20, min(j.EpochsDone+1, j.Spec.MaxEpochs)
			d.learn(j, deviceCount(r.Holding))
			if d.chance(15) && r.Memory > 0 {
				j.Outgrown, j.Spec.EstimatedMemoryMiB = true, j.Spec.EstimatedMemoryMiB+int64(d.between(1, 6))<<10
			}
			if d.chance(8) && len(r.Devices) > 1 && len(j.Slow) < train.MaxStragglers {
				j.Slow = append(j.Slow, train.Straggler{Attempt: len(j.Slow) + 1, Node: r.Node, Device: r.Devices[d.between(0, len(r.Devices)-1)], Slowdown: float64(d.between(1, 5)), FoundAt: d.state.Now})
			}
		}
	}
}

func (d *day) job() Job {
	d.born++
	least := d.between(1, 3)
	var deadline *time.Time
	if d.chance(20) {
		deadline = new(d.state.Now.Add(time.Duration(d.between(1, 7200)) * time.Second))
	}
	sharing := d.chance(40) || d.crowded && d.chance(80)
	if sharing && d.chance(60) {
		least = 1
	}
	j := Job{
		ID: train.JobID(fmt.Sprintf("j%d", d.between(0, 9)*100+d.born)), Priority: 20 + 30*d.between(0, 2),
		SubmittedAt: time.Unix(int64(d.between(0, 3)), 0),
		Spec: train.Spec{
			MinDevices: least, MaxDevices: least + d.between(0, 4), BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: d.between(0, 30),
			Tenant: fmt.Sprint("t", d.between(0, 2)), Deadline: deadline,
			EstimatedHours: float64(d.between(0, 3)), EstimatedMemoryMiB: (12 << 10) * int64(d.between(0, 4)/4),
			NodeLabels: d.labels(), Command: []string{fmt.Sprint("program", d.between(0, 3))},
		},
	}
	if sharing {
		j.Spec.AllowSharing, j.Spec.EstimatedMemoryMiB = true, int64(d.between(0, 10))<<10
		if d.chance(70) {
			j.Spec.MaxDevices = least
		}
	}
	if d.models > 1 && d.chance(30) {
		j.Spec.GPU = modelOf(d.between(0, 1), d.models)
	}
	if d.crowded {
		j.Spec.Tenant, j.Spec.NodeLabels, j.Spec.EstimatedMemoryMiB = "t0", nil, int64(d.between(1, 3))<<10
	}
	return j
}

// meet measures jobs beside each other, on some days so that they disturb each other badly.
func (d *day) meet() {
	if len(d.state.Jobs) < 3 || d.chance(30) {
		return
	}
	key := curve.InterferenceKey(&train.Device{Kind: train.KindGPU})
	if d.state.Interference == nil {
		d.state.Interference = map[string]*curve.Interference{key: curve.NewInterference("", nil)}
	}
	kind := func() curve.Kind {
		return curve.KindOf(d.state.Jobs[d.dice.IntN(len(d.state.Jobs))].Spec).On(d.between(1, 3), d.between(1, 2))
	}
	for range d.between(1, 6) {
		others := []curve.Kind{kind(), kind()}[:d.between(1, 2)]
		d.state.Interference[key].Measured(kind(), others, 0.05+0.95*d.dice.Float64())
	}
}

// labels are those of a node, or what a job asks for: mostly none.
func (d *day) labels() map[string]string {
	switch d.between(0, 5) {
	case 0:
		return map[string]string{"tier": "fast"}
	case 1:
		return map[string]string{"tier": "fast", "gpushare": "true"}
	case 2:
		return map[string]string{"tier": "slow"}
	}
	return nil
}

// modelOf is the model of a GPU of a node whose models take turns; empty if there is only one.
func modelOf(number, models int) string {
	if models < 2 {
		return ""
	}
	return fmt.Sprint("M", number%models)
}

func deviceCount(h Holding) int {
	n := 0
	for _, p := range h.Places() {
		n += len(p.Devices)
	}
	return n
}

func (d *day) learn(j *Job, workers int) {
	seen := train.Config{Workers: workers, Nodes: 1, LocalBatch: 10}
	speed, err := curve.FitStepTime([]curve.StepSample{{Config: seen, StepSeconds: 0.01 + 3*d.dice.Float64()}}, curve.DevicePrior{})
	if err != nil {
		d.t.Fatal(err)
	}
	j.Model = &train.Model{Speed: speed, EpochsSeen: j.EpochsDone}
}

// apply lets the executor get so far with each job of the plan.
func (d *day) apply(p train.Plan) {
	d.state.Memory = p.Memory
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.Planned = nil
		if a, ok := p.Find(j.ID); ok {
			j.Planned = holdingOf(a)
		}
		moves := j.Running != nil && (j.Planned == nil || !j.Running.Same(*j.Planned))
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

func holdingOf(a train.Allocation) *Holding {
	h := HoldingOf(a)
	return &h
}

// checkDevices: each device exists and is given once, or to jobs that share it and together want no more memory than it
// has.
func checkDevices(t *rapid.T, s State, p train.Plan) {
	given, parts := map[string]train.Allocation{}, map[string]unit.Bytes{}
	for _, a := range p.Allocations {
		n := slices.IndexFunc(s.Nodes, func(n train.Node) bool { return n.ID == a.Node })
		if n < 0 {
			t.Fatalf("%s is on node %s, which is gone: %s\n%s\n%s", a.Job, a.Node, train.JoinPlaces(a.Places()), words(p), jobWords(s))
		}
		for _, d := range a.Devices {
			if !slices.ContainsFunc(s.Nodes[n].Devices, func(x train.Device) bool { return x.ID == d }) {
				t.Fatalf("%s gets %s, which %s has not", a.Job, d, a.Node)
			}
			key := string(a.Node) + "/" + string(d)
			if other, taken := given[key]; taken && (a.Memory == 0 || other.Memory == 0) {
				t.Fatalf("%s is given to %s and to %s", key, other.Job, a.Job)
			}
			if _, taken := given[key]; !taken {
				given[key] = a
			}
			parts[key] += a.Memory
			of := s.Nodes[n].Devices[slices.IndexFunc(s.Nodes[n].Devices, func(x train.Device) bool { return x.ID == d })]
			if tenantOf(s, given[key].Job) != tenantOf(s, a.Job) {
				t.Fatalf("%s is shared by jobs of several tenants:\n%s", key, words(p))
			}
			if parts[key] > of.Memory && a.Memory > 0 {
				t.Fatalf("%s of %s is given to jobs that share it:\n%s", parts[key], of.Memory, words(p))
			}
		}
	}
}

func tenantOf(s State, id train.JobID) string {
	return s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == id })].Spec.Tenant
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

// checkHoldings: a job that cannot be asked stays; a resized one keeps a part or all of what it had; young attempts are
// not resized for others of the same priority.
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
		// Where quotas or power are short, nobody is spared.
		spared := s.Quotas == nil && s.PowerBudgetWatts == 0
		if young && !has && spared && !outranked(s, p, j) && !parted(p, j) && !withdrawn(s, j) {
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
		if j.Spec.SharedMemory() > 0 && (!spared || lostRoom(s, p, j)) {
			continue
		}
		// A slow device of its own may be given up for another one.
		if common < min(len(a.Devices), len(j.Planned.Devices))-len(j.Slow) {
			t.Fatalf("%s held %v and gets %v: neither some of them nor more:\n%s", j.ID, j.Planned.Devices, a.Devices, words(p))
		}
		if young && len(a.Devices) != len(j.Planned.Devices) && spared && !outranked(s, p, j) {
			t.Fatalf("%s is resized from %v to %v before its first epoch there", j.ID, j.Planned.Devices, a.Devices)
		}
	}
}

// parted says whether a job that does not run yet is not to come beside those for which it was meant: they were
// measured meanwhile.
func parted(p train.Plan, j Job) bool {
	return j.Running == nil && slices.ContainsFunc(p.Waiting, func(w train.Waiting) bool { return w.Job == j.ID && w.Blockers[0].Code == colocate.SlowTogether })
}

// withdrawn says whether a job that does not run yet was to share a device of a node whose devices jobs no longer
// share.
func withdrawn(s State, j Job) bool {
	shares := func(n train.Node) bool { return n.Has(map[string]string{train.SharingLabel: "true"}) }
	return j.Running == nil && j.Planned.Memory > 0 && slices.ContainsFunc(s.Nodes, shares) &&
		slices.ContainsFunc(s.Nodes, func(n train.Node) bool { return n.ID == j.Planned.Node && !shares(n) })
}

// lostRoom says whether the device of a job that may share went to another job, or was shared before: it may go on
// elsewhere on the node then.
func lostRoom(s State, p train.Plan, j Job) bool {
	lost := slices.ContainsFunc(p.Allocations, func(a train.Allocation) bool {
		return a.Job != j.ID && a.Node == j.Planned.Node && overlap(a.Devices, j.Planned.Devices)
	})
	return lost || slices.ContainsFunc(s.Jobs, func(o Job) bool {
		return o.ID != j.ID && o.Planned != nil && o.Planned.Node == j.Planned.Node && overlap(o.Planned.Devices, j.Planned.Devices)
	})
}

func overlap(a, b []train.DeviceID) bool {
	return slices.ContainsFunc(a, func(d train.DeviceID) bool { return slices.Contains(b, d) })
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

// checkPriorities: no job waits as long as jobs of lower priority that could be asked to leave hold what it needs.
// Behind the head of a line that nobody passes the others wait for the head.
func checkPriorities(t *rapid.T, s State, p train.Plan) {
	for _, w := range p.Waiting {
		if slices.ContainsFunc(w.Blockers, func(r train.Reason) bool { return r.Code == explain.HeadOfLineBlocked }) {
			continue
		}
		j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == w.Job })]
		for _, n := range s.Nodes {
			if !hasLabels(n, j.Spec.NodeLabels) {
				continue
			}
			if len(n.Devices) > 0 && n.Devices[0].Memory > 0 && j.Spec.EstimatedMemory() > n.Devices[0].Memory {
				continue
			}
			room, mine, watts, most := len(n.Devices), 0, s.PowerBudgetWatts, 0.0
			for _, o := range s.Nodes {
				for _, d := range o.Devices {
					watts, most = watts-d.IdleWatts, max(most, d.BusyWatts-d.IdleWatts)
				}
			}
			for _, o := range keeping(s, p) { // what is kept for it is less than it needs
				if o.Priority < j.Priority {
					continue
				}
				less := o.Spec.MinDevices - 1
				room -= less
				watts -= float64(less) * most
				if o.Spec.Tenant == j.Spec.Tenant {
					mine += less
				}
			}
			counted := devicesOnce{}
			for _, a := range p.Allocations {
				o := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })]
				if o.Priority < j.Priority && !silent(o) {
					continue
				}
				for _, id := range a.Devices {
					if counted.before(a.Node, id) {
						continue
					}
					d := s.Nodes[slices.IndexFunc(s.Nodes, func(n train.Node) bool { return n.ID == a.Node })].Devices[0]
					watts -= d.BusyWatts - d.IdleWatts
					if o.Spec.Tenant == j.Spec.Tenant {
						mine++
					}
					if a.Node == n.ID {
						room--
					}
				}
			}
			if quota, has := s.Quotas[j.Spec.Tenant]; has {
				room = min(room, quota-mine)
			}
			if each := n.Devices[0].BusyWatts - n.Devices[0].IdleWatts; s.PowerBudgetWatts > 0 {
				room = min(room, int(watts/each))
			}
			if room >= j.Spec.MinDevices {
				t.Fatalf("%s (priority %d, needs %d) waits, though %s has %d devices for it that are free or held by lower ones\n%s\n%s", j.ID, j.Priority, j.Spec.MinDevices, n.ID, room, words(p), jobWords(s))
			}
		}
	}
}

// keeping are the jobs for which devices are kept while they wait for more.
func keeping(s State, p train.Plan) []Job {
	var jobs []Job
	for _, w := range p.Waiting {
		if w.Blockers[0].Code == explain.DevicesKept {
			jobs = append(jobs, s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == w.Job })])
		}
	}
	return jobs
}

// devicesOnce counts devices that several jobs share once: all of them are of one tenant.
type devicesOnce map[string]bool

func (seen devicesOnce) before(node train.NodeID, device train.DeviceID) bool {
	key := string(node) + "/" + string(device)
	was := seen[key]
	seen[key] = true
	return was
}

func hasLabels(n train.Node, asked map[string]string) bool {
	for key, value := range asked {
		if n.Labels[key] != value {
			return false
		}
	}
	return true
}

// checkWishes: a job is put on nodes that have all the labels that it asks for. Where it has been it may stay, whatever
// has become of the labels.
func checkWishes(t *rapid.T, s State, p train.Plan) {
	for _, a := range p.Allocations {
		j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })]
		for _, part := range a.Places() {
			if j.Planned != nil && j.Planned.Node == part.Node || j.Running != nil && j.Running.Node == part.Node {
				continue
			}
			n := s.Nodes[slices.IndexFunc(s.Nodes, func(n train.Node) bool { return n.ID == part.Node })]
			if !hasLabels(n, j.Spec.NodeLabels) {
				t.Fatalf("%s asks for %v and is put on %s, which has %v", j.ID, j.Spec.NodeLabels, n.ID, n.Labels)
			}
		}
	}
}

// checkTerms: no tenant gets more than its quota, and all devices together draw no more than the budget, unless
// attempts that cannot be asked to leave do.
func checkTerms(t *rapid.T, s State, p train.Plan) {
	stuck, tenants := map[train.JobID]bool{}, map[train.JobID]string{}
	for _, j := range s.Jobs {
		tenants[j.ID], stuck[j.ID] = j.Spec.Tenant, silent(j) && !j.CancelRequested
	}
	watts := map[string]float64{}
	draw, least := 0.0, 0.0
	for _, n := range s.Nodes {
		for _, d := range n.Devices {
			watts[string(n.ID)+"/"+string(d.ID)] = d.BusyWatts - d.IdleWatts
			draw += d.IdleWatts
		}
	}
	least = draw
	holds, must := map[string]int{}, map[string]int{}
	counted, sticking := devicesOnce{}, devicesOnce{}
	for _, a := range p.Allocations {
		for _, part := range a.Places() {
			for _, d := range part.Devices {
				w := watts[string(part.Node)+"/"+string(d)]
				if !counted.before(part.Node, d) {
					draw += w
					holds[tenants[a.Job]]++
				}
				if stuck[a.Job] && !sticking.before(part.Node, d) {
					least += w
					must[tenants[a.Job]]++
				}
			}
		}
	}
	for tenant, quota := range s.Quotas {
		if holds[tenant] > max(quota, must[tenant]) {
			t.Fatalf("%s holds %d devices, its quota is %d", tenant, holds[tenant], quota)
		}
	}
	if budget := s.PowerBudgetWatts; budget > 0 && draw > max(budget, least)+0.001 {
		t.Fatalf("the plan draws %.1f W, the budget is %.1f W", draw, budget)
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

// checkStable: with the plan published, and with it carried out, deciding again without news stops no attempt and moves
// none.
func checkStable(t *rapid.T, s State, policy Policy, p train.Plan) {
	s.Memory = p.Memory
	published, applied := s, s
	published.Jobs, applied.Jobs = slices.Clone(s.Jobs), slices.Clone(s.Jobs)
	for i, j := range s.Jobs {
		published.Jobs[i].Planned, applied.Jobs[i].Planned = nil, nil
		a, has := p.Find(j.ID)
		if !has {
			applied.Jobs[i].Running = nil
			continue
		}
		h := holdingOf(a)
		published.Jobs[i].Planned, applied.Jobs[i].Planned = h, h
		if j.Running == nil || !j.Running.Same(*h) {
			applied.Jobs[i].Running = &Running{Holding: *h}
		}
	}
	for name, next := range map[string]State{"published": published, "applied": applied} {
		again := Decide(next, policy)
		for _, a := range p.Allocations {
			if b, has := again.Find(a.Job); !has || !holdingOf(a).Same(*holdingOf(b)) {
				t.Fatalf("the %s plan is changed at once for %s:\n%s\n%s\n%s", name, a.Job, words(p), words(again), jobWords(next))
			}
		}
	}
}

// jobWords prints what jobs hold.
func jobWords(s State) string {
	var w strings.Builder
	for _, j := range s.Jobs {
		fmt.Fprintf(&w, "%s priority %d, %d to %d, wants %d, shares %s, outgrown %v, slow %d, labels %v, cancelled %v\n", j.ID, j.Priority, j.Spec.MinDevices, j.Spec.MaxDevices, j.WantsDevices,
			j.Spec.SharedMemory(), j.Outgrown, len(j.Slow), j.Spec.NodeLabels, j.CancelRequested)
		if j.Planned != nil {
			fmt.Fprintf(&w, "    planned %+v\n", *j.Planned)
		}
		if r := j.Running; r != nil {
			fmt.Fprintf(&w, "    runs %+v\n", *r)
		}
	}
	return w.String()
}
