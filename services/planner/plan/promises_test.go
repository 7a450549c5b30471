package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// The features of a day. Each day draws a subset, so that every pair of features meets: a promise that holds for each
// alone may break for two together.
const (
	withServers  = "parameter servers"
	withQuota    = "quota"
	withPower    = "power budget"
	withSharing  = "sharing"
	withSizes    = "sizes chosen by experiments"
	withClosed   = "cordons, drains, held devices and failed starts"
	withLinks    = "lossy links"
	withStarving = "starvation"
	withLabels   = "labels"
	withRanks    = "priorities"
	withSpread   = "gangs over several nodes"
	withMemory   = "main memory"
	withRealms   = "several executors"
)

var features = []string{
	withServers, withQuota, withPower, withSharing, withSizes, withClosed, withLinks, withStarving, withLabels, withRanks, withSpread,
	withMemory, withRealms,
}

// TestPromisesOverTheProductOfFeatures plays random days of each live policy on which any features meet, and checks
// each plan from outside: only State goes in, only a train.Plan comes out. `make days` plays more of them.
func TestPromisesOverTheProductOfFeatures(t *testing.T) {
	for _, name := range plan.PolicyNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := plan.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				newProductDay(rapid.Uint64().Draw(t, "day")).play(t, policy, rapid.IntRange(1, 10).Draw(t, "rounds"))
			})
		})
	}
}

// On this day the primary of two jobs that share two devices shrinks to one device and becomes the guest. The devices
// divide their memory into units of different sizes.
func TestAGuestThatShrinksHasThePartOfItsDevices(t *testing.T) {
	policy, err := plan.Find("optimus")
	if err != nil {
		t.Fatal(err)
	}
	newProductDay(0x35122).play(t, policy, 7)
}

func (d *productDay) play(t rapid.TB, policy plan.Policy, rounds int) {
	for range rounds {
		d.turn()
		p := plan.Decide(d.state, policy)
		broken := &promises{t: t, day: d, plan: p, jobs: d.jobsByID()}
		broken.check()
		broken.checkRepeated(policy)
		d.carryOut(p)
	}
}

// productDay is a cluster on which jobs come, learn, stall and end.
type productDay struct {
	dice  *rand.Rand
	has   map[string]bool
	state plan.State
	// nodes are the machines as they are; state.Nodes is what the planner hears of them.
	nodes []train.Node
	born  int
}

func newProductDay(seed uint64) *productDay {
	d := &productDay{dice: rand.New(rand.NewPCG(seed, 7)), has: map[string]bool{}}
	for _, f := range features {
		d.has[f] = d.chance(40)
	}
	d.state = plan.State{Now: time.Unix(100_000, 0), Tuning: plan.Tuning{AtEpochs: true, OneNode: !d.has[withSpread], OneRealm: d.has[withSpread] && d.has[withRealms]}}
	for i := range d.between(1, 4) {
		d.nodes = append(d.nodes, d.node(i))
	}
	if d.has[withQuota] {
		d.state.Quotas = map[string]int{"t0": d.between(0, 4), "t1": d.between(1, 6)}
	}
	if d.has[withPower] {
		idle := 0.0
		for _, n := range d.nodes {
			for _, dev := range n.Devices {
				idle += dev.IdleWatts
			}
		}
		d.state.PowerBudgetWatts = idle + float64(d.between(0, 1500))
	}
	if d.has[withStarving] {
		d.state.Tuning.StarvationSeconds = 60
	}
	if d.has[withLinks] {
		d.state.Links = []plan.Link{{
			ID: "a>b", Loss: []float64{0.0001, 0.01, 0.5}[d.between(0, 2)], DelaySeconds: float64(d.between(0, 1)) / 100,
			From: []train.NodeID{d.nodes[0].ID}, To: []train.NodeID{d.nodes[len(d.nodes)-1].ID},
		}}
	}
	return d
}

func (d *productDay) chance(percent int) bool { return d.dice.IntN(100) < percent }

func (d *productDay) between(low, high int) int { return low + d.dice.IntN(high-low+1) }

func (d *productDay) node(i int) train.Node {
	n := train.Node{ID: train.NodeID(fmt.Sprint("n", i)), Cores: d.between(2, 12), Memory: unit.Bytes(d.between(8, 64)) * unit.GiB}
	switch {
	case d.has[withSpread] && d.has[withRealms] && d.chance(60):
		n.Machine = []train.NodeID{"m0", "m1"}[d.between(0, 1)]
	case d.has[withSpread]:
		n.Backend = train.BackendKubernetes
	}
	if d.has[withLabels] && d.chance(50) {
		n.Labels = map[string]string{"tier": "fast"}
	}
	if d.has[withSharing] && d.chance(40) {
		labels := map[string]string{train.SharingLabel: "true"}
		maps.Copy(labels, n.Labels)
		n.Labels = labels
	}
	busy := float64(50 + 25*d.between(0, 8))
	memory := unit.Bytes(8*d.between(1, 3)) * unit.GiB
	slots := d.has[withServers] && d.chance(30)
	for k := range d.between(1, 5) {
		if slots { // servers take their cores
			n.Devices = append(n.Devices, train.Device{
				ID: train.DeviceID(fmt.Sprint("cpu:", k)), Kind: train.KindCPU, Model: "cpu", Core: k, BusyWatts: busy, IdleWatts: busy / 5,
			})
			continue
		}
		n.Devices = append(n.Devices, train.Device{
			ID: train.DeviceID(fmt.Sprint("gpu:", k)), Kind: train.KindGPU, Memory: memory, BusyWatts: busy, IdleWatts: busy / 5, Units: 16 * d.between(0, 1),
		})
	}
	return n
}

// realms are those of the nodes of an allocation.
func (d *productDay) realms(a train.Allocation) map[train.Realm]bool {
	of := map[train.Realm]bool{}
	for _, part := range a.Places() {
		for _, n := range d.nodes {
			if n.ID == part.Node {
				of[n.Realm()] = true
			}
		}
	}
	return of
}

func (d *productDay) job() plan.Job {
	d.born++
	least := d.between(1, 3)
	if d.has[withSpread] && d.chance(30) {
		least += d.between(1, 5)
	}
	spec := train.Spec{
		MinDevices: least, MaxDevices: least + d.between(0, 3), BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: d.between(1, 30),
		Tenant: fmt.Sprint("t", d.between(0, 2)), EstimatedHours: float64(d.between(0, 2)), Command: []string{fmt.Sprint("program", d.between(0, 3))},
	}
	j := plan.Job{
		ID: train.JobID(fmt.Sprintf("j%d-%d", d.between(0, 9), d.born)), Priority: 50,
		// Jobs come at half seconds: no bound of whole seconds passes until a plan is decided again.
		SubmittedAt: d.state.Now.Add(-time.Duration(d.between(0, 120))*time.Second - time.Second/2),
	}
	if d.has[withRanks] {
		j.Priority = 20 + 30*d.between(0, 2)
	}
	if d.has[withLabels] && d.chance(40) {
		spec.NodeLabels = map[string]string{"tier": "fast"}
	}
	switch {
	case d.has[withServers] && d.chance(40):
		spec.Strategy = train.StrategyParameterServer
		spec.ParameterServers = &train.ServersSpec{Max: d.between(1, 4), Cores: d.between(1, 2), MemoryMiB: 1024 * int64(d.between(0, 2)), Async: d.chance(40)}
	case d.has[withSharing] && d.chance(60):
		spec.AllowSharing, spec.EstimatedMemoryMiB, spec.ShareAcrossTenants = true, 1024*int64(d.between(1, 10)), d.chance(50)
		if d.chance(70) {
			spec.MaxDevices = least
		}
	case d.chance(20):
		spec.EstimatedMemoryMiB = 1024 * int64(d.between(1, 20))
	}
	if d.has[withMemory] && d.chance(50) {
		spec.MainMemoryMiB = 1024 * int64(d.between(1, 24))
		spec.Launch = []train.Launch{train.LaunchPerNode, train.LaunchPerDevice}[d.between(0, 1)]
	}
	if d.has[withSizes] && d.chance(30) && spec.ParameterServers == nil {
		j.WantsDevices = d.between(1, 4)
	}
	if d.has[withClosed] && d.chance(15) {
		j.OnlyNodes = []train.NodeID{d.nodes[d.dice.IntN(len(d.nodes))].ID}
	}
	j.Spec = spec
	return j
}

// turn lets half a minute pass.
func (d *productDay) turn() {
	d.state.Now = d.state.Now.Add(30 * time.Second)
	for range d.between(0, 4) {
		d.state.Jobs = append(d.state.Jobs, d.job())
	}
	d.state.Jobs = slices.DeleteFunc(d.state.Jobs, func(plan.Job) bool { return d.chance(8) })
	for i := range d.state.Jobs {
		d.live(&d.state.Jobs[i])
	}
	d.interfere()
	d.hear()
}

// live lets an attempt go on for a while: mostly it speaks, ends an epoch and is measured.
func (d *productDay) live(j *plan.Job) {
	j.CancelRequested = j.CancelRequested || d.chance(3)
	if d.has[withSizes] && j.WantsDevices > 0 && d.chance(20) {
		j.WantsDevices = d.between(1, 4)
	}
	r := j.Running
	if r == nil || d.chance(35) {
		return
	}
	r.Spoke, r.Epochs, r.Seconds, j.RunSeconds = true, r.Epochs+1, r.Seconds+30, j.RunSeconds+30
	j.EpochsDone = min(j.EpochsDone+1, j.Spec.MaxEpochs)
	speed, err := curve.FitStepTime([]curve.StepSample{{Config: train.Config{Workers: sizeOf(r.Holding), Nodes: 1, LocalBatch: 10}, StepSeconds: 0.01 + 3*d.dice.Float64()}}, curve.DevicePrior{})
	if err == nil && j.Spec.ParameterServers == nil {
		j.Model = &train.Model{Speed: speed, EpochsSeen: j.EpochsDone}
	}
	if r.Memory > 0 && d.chance(10) {
		j.Outgrown, j.Spec.EstimatedMemoryMiB = true, j.Spec.EstimatedMemoryMiB+1024*int64(d.between(1, 4))
	}
	if len(r.Devices) > 1 && d.chance(5) && len(j.Slow) < train.MaxStragglers {
		j.Slow = append(j.Slow, train.Straggler{Attempt: len(j.Slow) + 1, Node: r.Node, Device: r.Devices[0], Slowdown: float64(d.between(2, 5)), FoundAt: d.state.Now})
	}
}

// interfere measures jobs beside each other.
func (d *productDay) interfere() {
	if !d.has[withSharing] || len(d.state.Jobs) < 2 {
		return
	}
	key := curve.InterferenceKey(&train.Device{Kind: train.KindGPU})
	if d.state.Interference == nil {
		d.state.Interference = map[string]*curve.Interference{key: curve.NewInterference("", nil)}
	}
	kind := func() curve.Kind {
		return curve.KindOf(d.state.Jobs[d.dice.IntN(len(d.state.Jobs))].Spec).On(d.between(1, 3), d.between(1, 2))
	}
	for range d.between(0, 3) {
		d.state.Interference[key].Measured(kind(), []curve.Kind{kind()}, 0.05+0.95*d.dice.Float64())
	}
}

// hear is what the planner knows about nodes: some are cordoned, drained or not heard, and some devices are another's.
func (d *productDay) hear() {
	d.state.Nodes, d.state.Exclusions = d.nodes, nil
	if !d.has[withClosed] {
		return
	}
	for _, n := range d.nodes {
		if d.chance(75) {
			continue
		}
		e := train.Exclusion{Node: n.ID, Reason: train.Reason{Code: train.NodeCordoned, Message: fmt.Sprintf("node %s is cordoned", n.ID)}, Leave: d.chance(40)}
		if d.chance(50) {
			e.Devices = []train.DeviceID{n.Devices[d.dice.IntN(len(n.Devices))].ID}
		}
		d.state.Exclusions = append(d.state.Exclusions, e)
	}
	for _, j := range d.state.Jobs {
		if j.Running != nil || d.chance(80) {
			continue
		}
		n := d.nodes[d.dice.IntN(len(d.nodes))].ID
		d.state.Exclusions = append(d.state.Exclusions, train.Exclusion{Node: n, Job: j.ID, Reason: train.Reason{Code: train.StartFailed, Message: fmt.Sprintf("its start on node %s failed", n)}})
	}
}

func holdings(j plan.Job) []plan.Holding {
	var all []plan.Holding
	if j.Planned != nil {
		all = append(all, *j.Planned)
	}
	if j.Running != nil {
		all = append(all, j.Running.Holding)
	}
	return all
}

func devicesOf(h plan.Holding) map[train.NodeID][]train.DeviceID {
	return byNode(train.Allocation{Node: h.Node, Devices: h.Devices, Parts: h.Parts, Memory: h.Memory})
}

func sizeOf(h plan.Holding) int {
	size := 0
	for _, devices := range devicesOf(h) {
		size += len(devices)
	}
	return size
}

func byNode(a train.Allocation) map[train.NodeID][]train.DeviceID {
	m := map[train.NodeID][]train.DeviceID{}
	for _, part := range a.Places() {
		m[part.Node] = append(m[part.Node], part.Devices...)
	}
	return m
}

// carryOut lets the executor get so far with a plan.
func (d *productDay) carryOut(p train.Plan) {
	d.state.Memory = p.Memory
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.Planned = nil
		if a, ok := p.Find(j.ID); ok {
			h := plan.HoldingOf(a)
			j.Planned = &h
		}
		if j.Running != nil && (j.Planned == nil || !sameHolding(j.Running.Holding, *j.Planned)) {
			if j.Running.StopPending = true; d.chance(70) {
				j.Running = nil
			}
		}
		if j.Running == nil && j.Planned != nil && d.chance(80) {
			j.Running = &plan.Running{Holding: *j.Planned}
		}
	}
}

// sameHolding says whether two holdings are the same devices and as much of them, and as many servers on each node.
func sameHolding(x, y plan.Holding) bool {
	allocation := func(h plan.Holding) train.Allocation {
		return train.Allocation{Node: h.Node, Devices: h.Devices, Parts: h.Parts, Memory: h.Memory}
	}
	return train.SamePlaces(allocation(x).Places(), allocation(y).Places()) && slices.Equal(x.Servers, y.Servers)
}

func (d *productDay) jobsByID() map[train.JobID]*plan.Job {
	jobs := make(map[train.JobID]*plan.Job, len(d.state.Jobs))
	for i := range d.state.Jobs {
		jobs[d.state.Jobs[i].ID] = &d.state.Jobs[i]
	}
	return jobs
}

// promises are checked on one plan.
type promises struct {
	t    rapid.TB
	day  *productDay
	plan train.Plan
	jobs map[train.JobID]*plan.Job
}

func (c *promises) fail(format string, args ...any) {
	c.t.Helper()
	var on []string
	for _, f := range features {
		if c.day.has[f] {
			on = append(on, f)
		}
	}
	c.t.Fatalf("%s\nwith %s\n%s%s", fmt.Sprintf(format, args...), strings.Join(on, ", "), describeState(c.day.state), describePlan(c.plan))
}

func describeState(s plan.State) string {
	var b strings.Builder
	for _, n := range s.Nodes {
		fmt.Fprintf(&b, "node %s %v, %d cores, %s", n.ID, n.Labels, n.Cores, n.Memory)
		for _, d := range n.Devices {
			fmt.Fprintf(&b, ", %s %s %d units %.0f-%.0f W", d.ID, d.Memory, d.Units, d.IdleWatts, d.BusyWatts)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "quotas %v, budget %.0f W, excluded %+v, links %+v\n", s.Quotas, s.PowerBudgetWatts, s.Exclusions, s.Links)
	for _, j := range s.Jobs {
		fmt.Fprintf(&b, "job %s of %s, priority %d, waited %s, devices %d to %d wants %d, memory %s shares %v, %s %+v, labels %v, epochs %d/%d, slow %d, outgrown %v, cancelled %v\n",
			j.ID, j.Spec.Tenant, j.Priority, s.Now.Sub(j.SubmittedAt), j.Spec.MinDevices, j.Spec.MaxDevices, j.WantsDevices, j.Spec.EstimatedMemory(), j.Spec.AllowSharing,
			j.Spec.Strategy, j.Spec.ParameterServers, j.Spec.NodeLabels, j.EpochsDone, j.Spec.MaxEpochs, len(j.Slow), j.Outgrown, j.CancelRequested)
		if j.Planned != nil {
			fmt.Fprintf(&b, "    planned %+v\n", *j.Planned)
		}
		if r := j.Running; r != nil {
			fmt.Fprintf(&b, "    running %+v, spoke %v, epochs %d, stop pending %v\n", r.Holding, r.Spoke, r.Epochs, r.StopPending)
		}
	}
	return b.String()
}

func describePlan(p train.Plan) string {
	var b strings.Builder
	for _, a := range p.Allocations {
		fmt.Fprintf(&b, "%s gets %s of %s beside %q servers %v: %s\n", a.Job, train.JoinPlaces(a.Places()), a.Node, a.Beside, a.Servers, a.Reason.Message)
	}
	for _, w := range p.Waiting {
		fmt.Fprintf(&b, "%s waits: %v\n", w.Job, w.Blockers)
	}
	return b.String()
}

func (c *promises) check() {
	c.complete()
	c.devices()
	c.servers()
	c.quotas()
	c.power()
	c.unspoken()
	c.feasible()
	c.excluded()
	c.links()
}

// unasked says whether an attempt cannot be asked to leave.
func unasked(j *plan.Job) bool {
	return j.Running != nil && !j.Running.Spoke && !j.Running.StopPending && !j.CancelRequested
}

// complete: each job that goes on is in the plan once and with a reason; gangs are whole.
func (c *promises) complete() {
	places := map[train.JobID]int{}
	for _, w := range c.plan.Waiting {
		if places[w.Job]++; len(w.Blockers) == 0 || w.Blockers[0].Code == "" || w.Blockers[0].Message == "" {
			c.fail("%s waits without a reason", w.Job)
		}
	}
	for _, a := range c.plan.Allocations {
		j := c.jobs[a.Job]
		if places[a.Job]++; j == nil {
			c.fail("%s is nobody", a.Job)
		}
		if a.Reason.Code == "" || a.Reason.Message == "" {
			c.fail("%s has devices without a reason", a.Job)
		}
		spec, size := j.Spec.WithDefaults(), len(train.AllDevices(a.Places()))
		least, most := spec.MinDevices, spec.MaxDevices
		if j.WantsDevices > 0 { // what its experiment chooses goes beyond the bounds of the job itself
			least, most = min(least, j.WantsDevices), max(most, j.WantsDevices)
			for _, h := range holdings(*j) { // and until it can be had the job goes on as it is
				held := sizeOf(h)
				least, most = min(least, held), max(most, held)
			}
		}
		if (size < least || size > most) && !unasked(j) {
			c.fail("%s has %d devices, not %d to %d", a.Job, size, least, most)
		}
		if c.day.state.Tuning.OneNode && len(a.Places()) > 1 {
			c.fail("%s is spread over nodes", a.Job)
		}
		if c.day.state.Tuning.OneRealm && len(c.day.realms(a)) > 1 {
			c.fail("%s is spread over realms", a.Job)
		}
	}
	for id, j := range c.jobs {
		if want := map[bool]int{true: 0, false: 1}[j.CancelRequested]; places[id] != want {
			c.fail("%s is in the plan %d times, not %d", id, places[id], want)
		}
	}
}

// devices: each one exists and is given whole to one job, or in parts to jobs that agree to share and fit together. A
// job has as much of each of its devices, which are alike.
func (c *promises) devices() {
	type use struct {
		whole int
		parts unit.Bytes
		jobs  []train.JobID
		first int
	}
	used := map[string]*use{}
	for _, a := range c.plan.Allocations {
		for _, part := range a.Places() {
			for _, id := range part.Devices {
				dev := c.device(part.Node, id)
				if dev == nil {
					c.fail("%s has %s of %s, which does not exist", a.Job, id, part.Node)
				}
				key := string(part.Node) + "/" + string(id)
				if used[key] == nil {
					used[key] = &use{}
				}
				u := used[key]
				for _, other := range u.jobs {
					if x, y := c.jobs[other].Spec, c.jobs[a.Job].Spec; x.Tenant != y.Tenant && !(x.ShareAcrossTenants && y.ShareAcrossTenants) {
						c.fail("%s is given to %s of tenant %s and to %s of tenant %s", key, other, x.Tenant, a.Job, y.Tenant)
					}
				}
				u.jobs = append(u.jobs, a.Job)
				if a.Beside == "" {
					u.first++
				}
				if u.first > 1 {
					c.fail("%v share %s, and %d of them beside nobody", u.jobs, key, u.first)
				}
				if part.Memory == 0 {
					u.whole++
				} else if u.parts += part.Memory; u.parts > dev.Memory {
					c.fail("jobs %v have %s of the %s of %s", u.jobs, u.parts, dev.Memory, key)
				}
				if first := a.Places()[0]; part.Memory != first.Memory || part.Memory > 0 && dev.Type() != c.device(first.Node, first.Devices[0]).Type() {
					c.fail("%s has unlike parts: %s", a.Job, train.JoinPlaces(a.Places()))
				}
				if part.Memory > 0 && !c.jobs[a.Job].Spec.AllowSharing {
					c.fail("%s shares %s and has not agreed to", a.Job, key)
				}
				if len(u.jobs) > 1 && u.whole > 0 {
					c.fail("%s is given to %v", key, u.jobs)
				}
			}
		}
	}
}

func (c *promises) device(node train.NodeID, id train.DeviceID) *train.Device {
	for i := range c.day.state.Nodes {
		for k := range c.day.state.Nodes[i].Devices {
			if c.day.state.Nodes[i].ID == node && c.day.state.Nodes[i].Devices[k].ID == id {
				return &c.day.state.Nodes[i].Devices[k]
			}
		}
	}
	return nil
}

// servers: a job that needs them has some, and no node gives more cores or main memory than it has, CPU slots and
// workers included.
func (c *promises) servers() {
	cores, memory := map[train.NodeID]int{}, map[train.NodeID]unit.Bytes{}
	for _, a := range c.plan.Allocations {
		for node, devices := range byNode(a) {
			for _, id := range devices {
				if id.Kind() == train.KindCPU {
					cores[node]++
				}
			}
		}
		spec := c.jobs[a.Job].Spec.WithDefaults()
		for node, devices := range byNode(a) {
			processes := 1
			if spec.Launch == train.LaunchPerDevice {
				processes = len(devices)
			}
			memory[node] += unit.Bytes(processes) * unit.Bytes(spec.MainMemoryMiB) * unit.MiB
		}
		if spec.ParameterServers == nil {
			if len(a.Servers) > 0 {
				c.fail("%s has servers and asks for none", a.Job)
			}
			continue
		}
		if n := a.ServerCount(); n < 1 || n > spec.ParameterServers.Max {
			c.fail("%s has %d servers and wants 1 to %d", a.Job, n, spec.ParameterServers.Max)
		}
		for _, s := range a.Servers {
			if len(byNode(a)[s.Node]) == 0 {
				c.fail("%s has a server on %s and no worker there", a.Job, s.Node)
			}
			cores[s.Node] += s.Count * spec.ParameterServers.Cores
			memory[s.Node] += unit.Bytes(s.Count) * unit.Bytes(spec.ParameterServers.MemoryMiB) * unit.MiB
		}
	}
	for _, n := range c.day.nodes {
		has := n.Cores
		if n.Devices[0].Kind == train.KindCPU {
			has = max(has, len(n.Devices)) // more slots than cores are no lack of cores
		}
		if cores[n.ID] > has || memory[n.ID] > n.Memory {
			c.fail("workers, servers and slots take %d of %d cores and %s of %s of %s", cores[n.ID], has, memory[n.ID], n.Memory, n.ID)
		}
	}
}

// charged counts the devices that some jobs have, each once, and apart those of attempts that cannot be asked to leave.
func (c *promises) charged(counts func(train.Spec) bool) (devices, stuck map[string]train.Device) {
	devices, stuck = map[string]train.Device{}, map[string]train.Device{}
	for _, a := range c.plan.Allocations {
		for _, part := range a.Places() {
			for _, id := range part.Devices {
				key := string(part.Node) + "/" + string(id)
				if !counts(c.jobs[a.Job].Spec) {
					continue
				}
				devices[key] = *c.device(part.Node, id)
				if unasked(c.jobs[a.Job]) {
					stuck[key] = devices[key]
				}
			}
		}
	}
	return devices, stuck
}

// quotas: a device counts once for each tenant that has jobs on it.
func (c *promises) quotas() {
	has, must := map[string]int{}, map[string]int{}
	for t := range c.day.state.Quotas {
		devices, stuck := c.charged(func(s train.Spec) bool { return s.Tenant == t })
		has[t], must[t] = len(devices), len(stuck)
	}
	for t, quota := range c.day.state.Quotas {
		if has[t] > max(quota, must[t]) {
			c.fail("tenant %s has %d devices, its quota is %d", t, has[t], quota)
		}
	}
}

func (c *promises) power() {
	budget := c.day.state.PowerBudgetWatts
	if budget == 0 {
		return
	}
	devices, stuck := c.charged(func(train.Spec) bool { return true })
	idle, draw, least := 0.0, 0.0, 0.0
	for _, n := range c.day.state.Nodes {
		for _, d := range n.Devices {
			idle += d.IdleWatts
		}
	}
	for _, d := range devices {
		draw += d.BusyWatts - d.IdleWatts
	}
	for _, d := range stuck {
		least += d.BusyWatts - d.IdleWatts
	}
	if draw > math.Max(budget-idle, least)+1e-6*budget+0.01 {
		c.fail("the plan draws %.1f W, the budget is %.1f W", idle+draw, budget)
	}
}

// unspoken: an attempt that cannot be asked to leave keeps what it runs on, as long as that exists.
func (c *promises) unspoken() {
	for id, j := range c.jobs {
		if !unasked(j) || !c.exists(j.Running.Holding) {
			continue
		}
		if a, has := c.plan.Find(id); !has || !sameDevices(a, j.Running.Holding) {
			c.fail("%s cannot be asked to leave %+v", id, j.Running.Holding)
		}
	}
}

func (c *promises) exists(h plan.Holding) bool {
	for node, devices := range devicesOf(h) {
		for _, id := range devices {
			if c.device(node, id) == nil {
				return false
			}
		}
	}
	return true
}

func sameDevices(a train.Allocation, h plan.Holding) bool {
	return maps.EqualFunc(byNode(a), devicesOf(h), train.SameDevices)
}

// feasible: where a job was not before, the node has the labels that it asks for, and its devices have the memory.
func (c *promises) feasible() {
	for _, a := range c.plan.Allocations {
		j := c.jobs[a.Job]
		for node, devices := range byNode(a) {
			had := false
			for _, h := range holdings(*j) {
				had = had || len(devicesOf(h)[node]) > 0
			}
			if had {
				continue
			}
			n := c.day.state.Nodes[slices.IndexFunc(c.day.state.Nodes, func(n train.Node) bool { return n.ID == node })]
			if len(j.OnlyNodes) > 0 && !slices.Contains(j.OnlyNodes, node) {
				c.fail("%s may start on %v and comes to %s", a.Job, j.OnlyNodes, node)
			}
			if !n.Has(j.Spec.NodeLabels) {
				c.fail("%s asks for %v and comes to %s with %v", a.Job, j.Spec.NodeLabels, node, n.Labels)
			}
			for _, id := range devices {
				if d := c.device(node, id); d.Memory > 0 && j.Spec.EstimatedMemory() > d.Memory {
					c.fail("%s needs %s and comes to %s of %s with %s", a.Job, j.Spec.EstimatedMemory(), id, node, d.Memory)
				}
			}
		}
	}
}

// excluded: on an excluded device is only the job whose attempt runs there, and if jobs are to leave, only one that
// cannot be asked to.
func (c *promises) excluded() {
	for _, a := range c.plan.Allocations {
		j := c.jobs[a.Job]
		for node, devices := range byNode(a) {
			for _, id := range devices {
				for _, e := range c.day.state.Exclusions {
					if e.Node != node || !e.Covers(id) || !e.Concerns(a.Job) {
						continue
					}
					runs := j.Running != nil && slices.Contains(devicesOf(j.Running.Holding)[node], id)
					if !runs || e.Leave && !unasked(j) {
						c.fail("%s gets %s of %s, and %s", a.Job, id, node, e.Reason.Message)
					}
				}
			}
		}
	}
}

// links: no gang comes to lie across a link above the bound.
func (c *promises) links() {
	for _, a := range c.plan.Allocations {
		on := byNode(a)
		for _, h := range holdings(*c.jobs[a.Job]) {
			if slices.Equal(slices.Sorted(maps.Keys(devicesOf(h))), slices.Sorted(maps.Keys(on))) {
				on = nil
			}
		}
		for _, l := range c.day.state.Links {
			if l.Loss < 0.001 || l.From[0] == l.To[0] {
				continue
			}
			if len(on[l.From[0]]) > 0 && len(on[l.To[0]]) > 0 {
				c.fail("%s comes to lie across %s", a.Job, l.ID)
			}
		}
	}
}

// checkRepeated: the same state in any order gives the same bytes, Decide leaves its state alone, and deciding again
// without news stops and moves no attempt, neither as soon as the plan is published nor when it is carried out.
func (c *promises) checkRepeated(policy plan.Policy) {
	want, _ := json.Marshal(c.plan)
	before, _ := json.Marshal(c.day.state)
	mixed := c.day.state
	mixed.Jobs, mixed.Nodes = slices.Clone(mixed.Jobs), slices.Clone(mixed.Nodes)
	slices.Reverse(mixed.Jobs)
	slices.Reverse(mixed.Nodes)
	if got, _ := json.Marshal(plan.Decide(mixed, policy)); string(got) != string(want) {
		c.fail("another order gives another plan: %s", got)
	}
	if after, _ := json.Marshal(c.day.state); string(after) != string(before) {
		c.fail("the decision changed the state: %s", after)
	}
	published, applied := c.day.state, c.day.state
	published.Memory, applied.Memory = c.plan.Memory, c.plan.Memory
	published.Now, applied.Now = published.Now.Add(time.Second/4), applied.Now.Add(time.Second/4)
	published.Jobs, applied.Jobs = slices.Clone(published.Jobs), slices.Clone(applied.Jobs)
	for i := range published.Jobs {
		now, then := &published.Jobs[i], &applied.Jobs[i]
		now.Planned, then.Planned = nil, nil
		a, has := c.plan.Find(now.ID)
		if !has {
			then.Running = nil
			continue
		}
		h := plan.HoldingOf(a)
		now.Planned, then.Planned = &h, &h
		if then.Running == nil || !sameHolding(then.Running.Holding, h) {
			then.Running = &plan.Running{Holding: h}
		}
	}
	c.unmoved("published", plan.Decide(published, policy))
	c.unmoved("carried out", plan.Decide(applied, policy))
}

func (c *promises) unmoved(what string, again train.Plan) {
	for _, a := range c.plan.Allocations {
		if b, has := again.Find(a.Job); !has || !sameHolding(plan.HoldingOf(a), plan.HoldingOf(b)) {
			c.fail("with the plan %s, %s is moved without news:\n%s", what, a.Job, describePlan(again))
		}
	}
}

// TestNobodyStarvesWhateverItAsksFor: two small jobs come in each step, for ever, so that no device is idle for long. A
// job that wants several devices, or one for itself, with parameter servers or without, within a quota or a power
// budget, gets them once the bound has passed and the jobs of then have ended.
func TestNobodyStarvesWhateverItAsksFor(t *testing.T) {
	for _, name := range plan.PolicyNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := plan.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) { newFlood(t, policy).play() })
		})
	}
}

const (
	floodStep  = time.Minute
	floodBound = 5 * floodStep
	// floodLongest is how long a small job runs at most.
	floodLongest = 5 * floodStep
	// floodWatts is what a device draws more with a job.
	floodWatts = 100
)

// flood is a cluster to which small jobs come for ever.
type flood struct {
	t             *rapid.T
	policy        plan.Policy
	state         plan.State
	devices, most int
	shares        bool
	born          int
	ends          map[train.JobID]time.Time
}

func newFlood(t *rapid.T, policy plan.Policy) *flood {
	f := &flood{t: t, policy: policy, shares: rapid.Bool().Draw(t, "small jobs share"), ends: map[train.JobID]time.Time{}}
	f.state = plan.State{Now: time.Unix(0, 0), Tuning: plan.Tuning{AtEpochs: true, StarvationSeconds: floodBound.Seconds(), OneNode: rapid.Bool().Draw(t, "one node")}}
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := train.Node{ID: train.NodeID(fmt.Sprint("n", i)), Cores: 8, Memory: 64 * unit.GiB}
		if !f.state.Tuning.OneNode {
			n.Backend = train.BackendKubernetes
		}
		for d := range rapid.IntRange(1, 3).Draw(t, "devices") {
			n.Devices = append(n.Devices, train.Device{
				ID: train.DeviceID(fmt.Sprint("gpu:", d)), Kind: train.KindGPU, Memory: 16 * unit.GiB, BusyWatts: floodWatts + 1, IdleWatts: 1,
			})
		}
		f.state.Nodes = append(f.state.Nodes, n)
		f.devices += len(n.Devices)
		if f.most = max(f.most, len(n.Devices)); !f.state.Tuning.OneNode {
			f.most = f.devices
		}
	}
	return f
}

func (f *flood) submit(id string, spec train.Spec) {
	spec.MaxDevices, spec.EstimatedMemoryMiB = spec.MinDevices, 4<<10
	spec.BatchSize, spec.TrainingSetSize, spec.MaxEpochs = 10, 1000, 100
	f.state.Jobs = append(f.state.Jobs, plan.Job{ID: train.JobID(id), Priority: 50, SubmittedAt: f.state.Now, Spec: spec})
}

func (f *flood) small() {
	f.born++
	f.submit(fmt.Sprint("small", f.born), train.Spec{MinDevices: 1, AllowSharing: f.shares})
}

// play fills the cluster, submits the patient job and waits for its start.
func (f *flood) play() {
	begun := f.devices
	if allowed := rapid.IntRange(0, f.devices).Draw(f.t, "allowed"); allowed > 0 {
		begun, f.most = allowed, min(f.most, allowed)
		if rapid.Bool().Draw(f.t, "by power") {
			f.state.PowerBudgetWatts = float64(allowed*floodWatts + f.devices)
		} else {
			f.state.Quotas = map[string]int{"": allowed}
		}
	}
	for range begun {
		f.small()
		f.step()
	}
	patient := train.Spec{MinDevices: rapid.IntRange(1, f.most).Draw(f.t, "needs")}
	if !f.state.Tuning.OneNode && rapid.Bool().Draw(f.t, "servers") {
		patient.Strategy, patient.ParameterServers = train.StrategyParameterServer, &train.ServersSpec{Max: 2, Cores: 1}
	} else {
		patient.AllowSharing = rapid.Bool().Draw(f.t, "would share")
	}
	f.submit("patient", patient)
	// While it waits for devices of one node, more of another node may come free: once for each that it needs.
	latest := f.state.Now.Add(floodBound + time.Duration(patient.MinDevices+1)*floodLongest + 2*floodStep)
	for f.ends["patient"].IsZero() {
		if f.state.Now.After(latest) {
			f.t.Fatalf("the job that needs %d devices has waited until %v\n%s%s", patient.MinDevices, f.state.Now, describeState(f.state), describePlan(plan.Decide(f.state, f.policy)))
		}
		f.small()
		f.small()
		f.step()
	}
}

// step decides, lets jobs run, and ends those whose time has come.
func (f *flood) step() {
	f.state.Now = f.state.Now.Add(floodStep)
	p := plan.Decide(f.state, f.policy)
	var left []plan.Job
	for _, j := range f.state.Jobs {
		a, has := p.Find(j.ID)
		if _, begun := f.ends[j.ID]; has && !begun {
			f.ends[j.ID] = f.state.Now.Add(floodStep * time.Duration(rapid.IntRange(1, int(floodLongest/floodStep)).Draw(f.t, "steps")))
		}
		if j.Planned, j.Running = nil, nil; has {
			h := plan.HoldingOf(a)
			j.Planned, j.Running = &h, &plan.Running{Holding: h, Seconds: 60, Spoke: true, Epochs: 1}
		}
		if !has || f.state.Now.Before(f.ends[j.ID]) {
			left = append(left, j)
		}
	}
	f.state.Jobs, f.state.Memory = left, p.Memory
}
