package cluster

import (
	"cmp"
	"math"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Gang is a job with what the phases of a decision find out about it: constraints, what it holds, and what it is given.
type Gang struct {
	*state.Job
	// Rank is the place in the queue, Turn the place in which the policy served it.
	Rank, Turn int
	// Least and Most bound its devices. Wanted is another number that its experiment asks for; 0 if none.
	Least, Most, Wanted int
	// Servers says which parameter servers it needs; nil for a job without.
	Servers *train.ServersSpec
	// Class is the place in Node.Class that says whether a node suits it; Anywhere if every node does.
	Class int
	// Need is what it asks of each of its devices.
	Need train.DeviceNeed
	// RAM is the main memory that each of its processes may use, in bytes; 0 is not said. EachDevice says that it runs one
	// process per device, not one per node.
	RAM        int64
	EachDevice bool
	// MemoryClass is equal for gangs whose devices must have so much memory that the same nodes have enough.
	MemoryClass int
	// Slow are the devices that it avoids.
	Slow []train.Straggler

	// Silent: its attempt has not called the job API, so it cannot be asked to leave. Unsaved: it would lose all its work.
	// Pinned: it keeps all that it holds.
	Silent, Unsaved, Pinned bool
	// MayMove says that it may be resized or moved for the sake of speed; Stay says why not, and Beside who is the reason.
	MayMove bool
	Stay    Stay
	Beside  *Gang
	// Level is the priority that a job must exceed to take its devices: the highest among the gangs that share them.
	Level int

	// Former is the placement that it held when the decision began. Held is the part of it that it may keep, or where a
	// migration sends it. Got is its placement in this plan.
	Former, Held, Got Placement
	// Nominated is the place where it is to become a guest.
	Nominated Placement
	// Primary is the gang whose device it shares; nil if it came first. Guests are the gangs that share its devices.
	Primary *Gang
	Guests  []*Gang
	// Overuse is that of its tenant while the gang waits. A gang that holds devices has none: shares stop no job.
	Overuse float64
	// Starved: it has waited longer than the starvation bound. Late: it is served before all others of its priority.
	Starved bool
	// Head is the job behind which it waits in line.
	Head *Gang
	// Signature is equal for jobs that run the same training, Family for variants of it. Only jobs that leave their batch
	// to the planner have them.
	Signature, Family string
	// Batch is chosen by policies that do so.
	Batch train.Batch
	// Shed says that it holds less than the last plan gave it, since its experiment wants fewer devices.
	Shed bool
	// Overused is the placement where it uses more memory than its part, until it has left. Parted is the placement from
	// which it was separated from its co-runners.
	Overused, Parted Placement

	Notes Notes

	// starts are its OnlyNodes; nil if it may start on any node.
	starts    map[train.NodeID]bool
	predicted predicted
	kind      *curve.Kind
	// claim is the part of its holding that no other gang may take before this one is served.
	claim Placement
	// named says that Got has named devices which the ledger has entered.
	named bool
}

// Stay says why a gang is not moved for the sake of speed.
type Stay int

// The reasons to stay.
const (
	StayNot Stay = iota
	StaySilent
	StayYoung
	StayCoRunner
	StayRestarts
	StayApplying
	StayClosed
)

// Notes hold the reasons that phases give when they decide about a gang.
type Notes struct {
	// Reason replaces the usual words.
	Reason *train.Reason
	// Replaced and Links are the slow devices and the bad links that it leaves.
	Replaced []Replacement
	Links    []*Link
	// Sampled: it goes to a size for an epoch, to learn. ByGain: the policy grew it by marginal gain. MayGrow: the policy
	// would grow it if that paid.
	Sampled, ByGain, MayGrow bool
	// Reserved are the idle devices that are reserved for it.
	Reserved []Reservation
	// Separated says why it leaves its co-runners.
	Separated *train.Reason
	// Batch says why it got its batch; nil if the policy did not choose it.
	Batch *BatchNotes
}

// BatchNotes are what a policy says of the batch that it chose.
type BatchNotes struct {
	// Options are the chosen batch and its neighbours, the smallest first.
	Options []train.BatchOption
	// NoiseUnknown: nothing is known by which a larger batch could be compared. Tried: it is larger than what is predicted
	// to be best, since no job has run with it.
	NoiseUnknown, Tried bool
	// AtMost: a larger batch is not allowed. AtLeast: a smaller one is not.
	AtMost, AtLeast bool
}

// Replacement is a slow device that a gang leaves, and the device or node with which it goes on.
type Replacement struct {
	Slow train.Straggler
	With string
}

// Anywhere is the class of a gang that suits every node.
const Anywhere = -1

func newGang(j *state.Job, bounds Bounds, of *state.State) *Gang {
	spec := j.Spec.WithDefaults()
	g := &Gang{Job: j, Need: spec.DeviceNeed(), Class: Anywhere, Level: j.Priority, Slow: avoided(j, of.Now)}
	if spec.AdaptiveBatch != nil {
		g.Signature, g.Family = cmp.Or(spec.Signature(), string(j.ID)), spec.FamilyKey()
	}
	g.Least, g.Most = bounds(j, spec)
	g.RAM, g.EachDevice = min(spec.MainMemoryMiB, mostMiB)<<20, spec.Launch == train.LaunchPerDevice
	if spec.Strategy == train.StrategyParameterServer {
		g.Servers = spec.ParameterServers
	}
	if len(j.OnlyNodes) > 0 {
		g.starts = make(map[train.NodeID]bool, len(j.OnlyNodes))
	}
	for _, id := range j.OnlyNodes {
		g.starts[id] = true
	}
	if r := j.Running; r != nil && !r.StopPending {
		g.Silent = !r.Spoke
		g.Unsaved = j.WouldLoseAll(&of.Tuning)
	}
	return g
}

// AnyStep says that the code of the gang runs and can stop after any step.
func (g *Gang) AnyStep() bool { return g.Running != nil && g.Running.AnyStep }

// Stuck says that the gang must not be asked to leave what it holds.
func (g *Gang) Stuck() bool { return g.Silent || g.Unsaved }

// ServersLeast is the least number of parameter servers.
func (g *Gang) ServersLeast() int {
	if g.Servers == nil {
		return 0
	}
	return 1
}

// ServersMost is the most parameter servers that it can use.
func (g *Gang) ServersMost() int {
	if g.Servers == nil {
		return 0
	}
	return max(g.Servers.Max, 1)
}

// ServersFor is how many parameter servers go with the given workers if the policy does not choose: one for each
// worker, as far as the user wants.
func (g *Gang) ServersFor(workers int) int { return min(workers, g.ServersMost()) }

// mostMiB is more main memory than any node has, and still more is not told apart: sums of it stay numbers.
const mostMiB = math.MaxInt64 >> 41

// Needs is what the given workers and parameter servers of the gang take up on one node besides devices: the servers'
// cores, and the main memory of all.
func (g *Gang) Needs(workers, servers int) (cores int, ram int64) {
	processes := workers
	if !g.EachDevice {
		processes = min(workers, 1)
	}
	ram = int64(processes) * g.RAM
	if g.Servers != nil {
		const mostCores = math.MaxInt32
		cores = servers * min(g.Servers.Cores, mostCores)
		ram += int64(servers) * min(g.Servers.MemoryMiB, mostMiB) << 20
	}
	return cores, ram
}

// Within is how many workers, at most the given ones, go into so much main memory of one node.
func (g *Gang) Within(ram int64, workers int) int {
	switch {
	case g.RAM == 0:
		return workers
	case g.EachDevice:
		return int(min(max(ram, 0)/g.RAM, int64(workers)))
	case ram < g.RAM:
		return min(workers, 0)
	}
	return workers
}

// Fits says whether devices of so much memory in bytes are enough; 0 is unknown.
func (g *Gang) Fits(memory int64) bool {
	return memory == 0 || int64(g.Spec.EstimatedMemory()) <= memory
}

// Asks says in words which devices the gang needs at least.
func (g *Gang) Asks() string { return g.Need.Count(g.Least) }

// Suits says whether the gang may have devices of a node.
func (g *Gang) Suits(n *Node) bool {
	return g.StartsOn(n.ID) && g.SuitsKind(n.Memory, n.Class)
}

// SuitsKind is Suits for nodes of one class and memory.
func (g *Gang) SuitsKind(memory int64, class string) bool {
	return g.Fits(memory) && (g.Class == Anywhere || class[g.Class] == '1')
}

// StartsOn says whether the gang may start on a node by its OnlyNodes.
func (g *Gang) StartsOn(node train.NodeID) bool { return g.starts == nil || g.starts[node] }

// Avoids says whether a worker of it was slow on a node.
func (g *Gang) Avoids(n *Node) bool {
	for i := range g.Slow {
		if g.Slow[i].Node == n.ID {
			return true
		}
	}
	return false
}

// IsSlow says whether a device of a node held up the gang.
func (g *Gang) IsSlow(n *Node, device int) bool {
	for i := range g.Slow {
		if g.Slow[i].Node == n.ID && g.Slow[i].Device == n.Devices[device].ID {
			return true
		}
	}
	return false
}

// RestartSeconds is the price of a restart of a gang, in seconds: no less than what its own starts took.
func (s *Snapshot) RestartSeconds(g *Gang) float64 {
	if g.Model == nil {
		return s.Tuning.RestartSeconds
	}
	return max(s.Tuning.RestartSeconds, g.Model.StartSeconds)
}

// Ran are the configurations that the job has run on.
func (g *Gang) Ran() []train.Ran {
	if g.Model == nil {
		return nil
	}
	return g.Model.Ran
}

// Noise is the gradient noise of the job as measured of late; nil if nothing was reported.
func (g *Gang) Noise() *train.Efficiency {
	if g.Model == nil {
		return nil
	}
	return g.Model.Efficiency
}

// Progress is the training done so far, in steps at the base batch.
func (g *Gang) Progress() float64 {
	if g.Model == nil {
		return 0
	}
	return g.Model.Progress
}

// Shares says whether a gang may have its devices together with others.
func (g *Gang) Shares() bool { return g.Spec.SharedMemory() > 0 }

// SharesWith says whether a gang and another may have devices together as far as their tenants go: a fault of one may
// reach the other, so two tenants must both allow it.
func (g *Gang) SharesWith(o *Gang) bool {
	return g.Spec.Tenant == o.Spec.Tenant || g.Spec.ShareAcrossTenants && o.Spec.ShareAcrossTenants
}

// Kind is the gang's kind on one device. It is computed when first asked for: it is a digest.
func (g *Gang) Kind() curve.Kind {
	if g.kind == nil {
		g.kind = new(curve.KindOf(g.Spec))
	}
	return *g.kind
}

// LocalBatch is the number of samples on each device: more than submitted if the experiment keeps the step on fewer
// devices.
func (g *Gang) LocalBatch() int {
	meant := train.Setting{BatchDevices: g.BatchDevices}
	return max(meant.BatchOn(g.Least, g.Spec.BatchSize), g.Spec.BatchSize)
}

// DeviceMemory is the memory of a device that a gang needs if it shares it: the user's estimate until it is measured,
// for the batch that was submitted; a larger batch is taken to need as much more. What jobs like it needed with one
// other batch is no measurement; with several, their slope is. A gang that has outgrown its part asks for what it was
// seen to use: what its model knows may be the peak of another job of its program.
func (g *Gang) DeviceMemory() unit.Bytes {
	asked, batch := g.Spec.SharedMemory(), g.LocalBatch()
	if g.Job.Outgrown {
		return asked
	}
	if batch > g.Spec.BatchSize {
		asked = unit.Bytes(float64(asked) * float64(batch) / float64(g.Spec.BatchSize))
	}
	if g.Model == nil || g.Model.Memory == nil {
		return asked
	}
	m := g.Model.Memory
	measured := m.Reserved(batch)
	if m.Points < 2 && g.EpochsDone == 0 {
		return max(asked, measured)
	}
	return measured
}

// PartOf is how much of each of some devices a gang has: what it runs with there, else what it needs; 0 if it has them
// as a whole.
func (s *Snapshot) PartOf(g *Gang, at []Spot) unit.Bytes {
	if r := g.Running; r != nil && !r.StopPending && (g.Overused.Empty() || g.Silent) {
		if on, ok := s.Locate(&r.Holding); ok && on.Size() == len(at) && Within(at, on.Spots()) {
			return r.Memory
		}
	}
	return s.PartFor(g.DeviceMemory(), at)
}

// GuestPart is PartOf beside others: a guest does not go on with whole devices.
func (s *Snapshot) GuestPart(g *Gang, at []Spot) unit.Bytes {
	return cmp.Or(s.PartOf(g, at), s.PartFor(g.DeviceMemory(), at))
}

// PartFor is the least part with so much memory that can be accounted for on each of some devices; 0 if they cannot be
// shared, or are of several types.
func (s *Snapshot) PartFor(memory unit.Bytes, at []Spot) unit.Bytes {
	if len(at) == 0 {
		return 0
	}
	first := s.Device(at[0])
	for before := unit.Bytes(-1); before != memory; { // the part of one device may be no part of another
		before = memory
		for _, d := range at {
			device := s.Device(d)
			if !s.Nodes[d.Node].Shared || device.Type() != first.Type() || device.Driver != first.Driver {
				return 0
			}
			memory = device.Share(memory)
		}
	}
	return memory
}
