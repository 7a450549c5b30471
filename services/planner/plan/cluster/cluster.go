// Package cluster is the model that every phase of a decision works on: nodes, devices, gangs and where they are, and
// one ledger of what is given to whom. It decides nothing.
package cluster

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Snapshot is the cluster at the moment of a decision. Phases write their answers into its gangs and its ledger; State
// is never altered.
type Snapshot struct {
	State  *state.State
	Tuning state.Tuning
	// Spans says that a gang may be spread over nodes.
	Spans bool
	// Nodes are ordered by id, with the devices that some job may have or keep. Excluded are those that have more, as they
	// are without exclusions.
	Nodes, Excluded []Node
	// Gangs are the jobs that take part, in queue order: by priority, overuse, then submission. Deferred ones wait for
	// cheaper energy.
	Gangs, Deferred []*Gang
	Links           []Link
	Ledger          *Ledger
	// Total is the number of devices, Largest that of the largest node.
	Total, Largest int
	// LeastWatts and MostWatts are what a device of any node draws more with a job, in watts.
	LeastWatts, MostWatts float64
	// TypicalSeconds is the median time of a whole training, of the jobs with an estimate.
	TypicalSeconds float64
	// NoNews says that nothing has changed since the last plan: no gang is stopped, resized or moved then.
	NoNews bool

	byID map[train.JobID]*Gang
	// busy are the devices on which attempts are live, by node.
	busy [][]bool
}

// Node is a machine, or its devices of one kind if some job wants only these: nodes with one id then follow each other,
// and share an account of cores and memory. Phases name its devices by their place in Devices.
type Node struct {
	ID      train.NodeID
	Spec    *train.Node
	Devices []train.Device
	// Model is that of the first device; Watts is what a device draws more with a job, in watts.
	Model string
	Watts float64
	// Memory is that of the smallest device in bytes; 0 if unknown. A job must fit the smallest one.
	Memory int64
	// Realm distinguishes nodes by the executor that serves them, if gangs span nodes of one only (OneRealm).
	Realm string
	// Class distinguishes nodes by the properties that jobs ask for; Island by the realm, and by the lossy links between
	// its nodes. Both are set by feasible.Classify.
	Class, Island string
	// Closed marks the devices that only the jobs on them may keep; nil if there are none.
	Closed []bool
	// Shared: jobs may share its devices.
	Shared bool
	// Cores and RAM are what parameter servers take up. Slots says that the devices are CPU slots, which take up cores
	// themselves.
	Cores int
	RAM   int64
	Slots bool
}

// unbounded is the number of cores of a node that does not report them.
const unbounded = math.MaxInt32

// Bounds are the least and the most devices of a job.
type Bounds func(j *state.Job, spec train.Spec) (least, most int)

// New reads a state. Holdings, classes and predictions are added by the phases that follow.
func New(of *state.State, bounds Bounds) *Snapshot {
	s := &Snapshot{State: of, Tuning: of.Tuning.WithDefaults(), Spans: !of.Tuning.OneNode, Nodes: make([]Node, 0, len(of.Nodes)), byID: make(map[train.JobID]*Gang, len(of.Jobs))}
	for i := range of.Nodes {
		n := newNode(&of.Nodes[i])
		if realm := n.Spec.Realm(); s.Tuning.OneRealm {
			n.Realm = "@" + string(realm.Backend) + string(realm.Machine)
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(x, y Node) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(len(y.Devices), len(x.Devices)))
	})
	// A node that is listed twice has its devices once.
	s.Nodes = slices.CompactFunc(s.Nodes, func(x, y Node) bool { return x.ID == y.ID })
	s.Nodes = divide(s.Nodes, of.Jobs)
	s.exclude()
	var memories []int64
	for i := range s.Nodes {
		n := &s.Nodes[i]
		s.Total += len(n.Devices)
		s.Largest = max(s.Largest, len(n.Devices))
		s.MostWatts = max(s.MostWatts, n.Watts)
		if s.LeastWatts = min(s.LeastWatts, n.Watts); i == 0 {
			s.LeastWatts = n.Watts
		}
		if at, known := slices.BinarySearch(memories, n.Memory); !known && n.Memory > 0 {
			memories = slices.Insert(memories, at, n.Memory)
		}
	}
	s.openForSharing()
	s.busy = marks(s)
	for i := range of.Jobs {
		j := &of.Jobs[i]
		s.occupy(j)
		if !j.CancelRequested {
			g := newGang(j, bounds, of)
			g.MemoryClass, _ = slices.BinarySearch(memories, int64(g.Spec.EstimatedMemory()))
			if j.Running == nil && j.Planned == nil {
				g.Overuse = of.Balances[j.Spec.Tenant].Overuse()
			}
			s.Gangs, s.byID[j.ID] = append(s.Gangs, g), g
		}
	}
	slices.SortFunc(s.Gangs, InQueue)
	for i, g := range s.Gangs {
		g.Rank, g.Turn = i, i
	}
	for _, l := range of.Links {
		s.Links = append(s.Links, Link{l, s.marked(l.From), s.marked(l.To)})
	}
	s.Ledger = newLedger(s)
	return s
}

// InQueue orders gangs by priority, then by the overuse of their tenants, then by submission.
func InQueue(x, y *Gang) int {
	if x.Priority != y.Priority {
		return cmp.Compare(y.Priority, x.Priority)
	}
	if x.Overuse != y.Overuse {
		return cmp.Compare(x.Overuse, y.Overuse)
	}
	if order := x.SubmittedAt.Compare(y.SubmittedAt); order != 0 {
		return order
	}
	return cmp.Compare(x.ID, y.ID)
}

func newNode(n *train.Node) Node {
	fresh := Node{ID: n.ID, Spec: n, Devices: inOrder(n.Devices), Cores: cmp.Or(n.Cores, unbounded), RAM: cmp.Or(int64(n.Memory), math.MaxInt64>>20)}
	if len(fresh.Devices) > 0 {
		fresh.Model, fresh.Slots = fresh.Devices[0].Model, fresh.Devices[0].ID.Kind() == train.KindCPU
	}
	if fresh.Slots {
		fresh.Cores = max(fresh.Cores, len(fresh.Devices)) // more slots than cores are no lack of cores
	}
	for i := range fresh.Devices {
		d := &fresh.Devices[i]
		fresh.Watts = max(fresh.Watts, d.BusyPower().Watts()-d.IdlePower().Watts())
		if m := int64(d.Memory); m > 0 && (fresh.Memory == 0 || m < fresh.Memory) {
			fresh.Memory = m
		}
	}
	return fresh
}

// inOrder sorts devices by kind and number; mostly they are.
func inOrder(devices []train.Device) []train.Device {
	less := func(x, y train.Device) int {
		return cmp.Or(cmp.Compare(x.ID.Kind(), y.ID.Kind()), cmp.Compare(number(x.ID), number(y.ID)), cmp.Compare(x.ID, y.ID))
	}
	if slices.IsSortedFunc(devices, less) {
		return devices
	}
	return slices.SortedFunc(slices.Values(devices), less)
}

// number orders cpu:2 before cpu:10.
func number(d train.DeviceID) int {
	if i, err := strconv.Atoi(d.Index()); err == nil {
		return i
	}
	return math.MaxInt
}

// openForSharing marks the nodes whose devices may be shared: those with the label, or all if no node has it.
func (s *Snapshot) openForSharing() {
	sharing := map[string]string{train.SharingLabel: "true"}
	chosen := slices.ContainsFunc(s.State.Nodes, func(n train.Node) bool { return n.Has(sharing) })
	for i := range s.Nodes {
		s.Nodes[i].Shared = !chosen || s.Nodes[i].Spec.Has(sharing)
	}
}

// FindNodes yields the places of the nodes with an id.
func (s *Snapshot) FindNodes(id train.NodeID) iter.Seq[int] { return withID(s.Nodes, id) }

func withID(nodes []Node, id train.NodeID) iter.Seq[int] {
	return func(yield func(int) bool) {
		at, _ := slices.BinarySearchFunc(nodes, id, func(n Node, id train.NodeID) int { return cmp.Compare(n.ID, id) })
		for at < len(nodes) && nodes[at].ID == id && yield(at) {
			at++
		}
	}
}

// findDevice finds a device by its name.
func (s *Snapshot) findDevice(node train.NodeID, id train.DeviceID) (Spot, bool) {
	for at := range s.FindNodes(node) {
		if d := s.Nodes[at].find(id); d >= 0 {
			return Spot{at, d}, true
		}
	}
	return Spot{}, false
}

// Find is the gang of a job; nil if it takes no part.
func (s *Snapshot) Find(id train.JobID) *Gang { return s.byID[id] }

// marks has a mark for each device, by node.
func marks(s *Snapshot) [][]bool {
	all := make([]bool, s.Total)
	by := make([][]bool, len(s.Nodes))
	for i := range s.Nodes {
		n := len(s.Nodes[i].Devices)
		by[i], all = all[:n:n], all[n:]
	}
	return by
}

// occupy marks the devices of a live attempt: a job that gets one of them waits until the attempt has left.
func (s *Snapshot) occupy(j *state.Job) {
	if j.Running == nil {
		return
	}
	for _, part := range j.Running.Places() {
		for _, id := range part.Devices {
			if d, known := s.findDevice(part.Node, id); known {
				s.busy[d.Node][d.Device] = true
			}
		}
	}
}

// Busy says whether an attempt is live on a device.
func (s *Snapshot) Busy(node, device int) bool { return s.busy[node][device] }

// Locate finds a holding among the nodes; false if any of it is gone, or it spans nodes and gangs must not.
func (s *Snapshot) Locate(h *state.Holding) (Placement, bool) {
	if h == nil {
		return Placement{}, false
	}
	places := h.Places()
	if len(places) > 1 && !s.Spans {
		return Placement{}, false
	}
	p := Placement{Memory: h.Memory}
	for _, part := range places {
		at, ok := s.locatePart(part)
		if !ok {
			return Placement{}, false
		}
		for _, servers := range h.Servers {
			if servers.Node == part.Node {
				at[0].Servers = servers.Count
			}
		}
		p.Parts = append(p.Parts, at...)
	}
	return p, true
}

// locatePart finds what a gang has of a machine: a part of each node with its devices.
func (s *Snapshot) locatePart(h train.Part) (parts []Part, found bool) {
	for _, id := range h.Devices {
		d, known := s.findDevice(h.Node, id)
		if !known {
			return nil, false
		}
		at := slices.IndexFunc(parts, func(p Part) bool { return p.Node == d.Node })
		if at < 0 {
			at, parts = len(parts), append(parts, Part{Node: d.Node, Devices: make([]int, 0, len(h.Devices))})
		}
		p := &parts[at]
		if slices.Contains(p.Devices, d.Device) {
			return nil, false
		}
		p.Devices, p.Count = append(p.Devices, d.Device), p.Count+1
	}
	for i := range parts {
		slices.Sort(parts[i].Devices)
	}
	return parts, len(parts) > 0
}

// Named translates a placement into machines and devices by name.
func (s *Snapshot) Named(p Placement) []train.Part {
	parts := make([]train.Part, 0, len(p.Parts))
	for _, part := range p.Parts {
		n := &s.Nodes[part.Node]
		ids := make([]train.DeviceID, len(part.Devices))
		for k, d := range part.Devices {
			ids[k] = n.Devices[d].ID
		}
		if last := len(parts) - 1; last >= 0 && parts[last].Node == n.ID {
			parts[last].Devices = append(parts[last].Devices, ids...)
			continue
		}
		parts = append(parts, train.Part{Node: n.ID, Devices: ids})
	}
	for i := range parts {
		parts[i].Memory = p.Memory
	}
	return parts
}

// Device is a device by its node and its place there.
func (s *Snapshot) Device(d Spot) *train.Device { return &s.Nodes[d.Node].Devices[d.Device] }

// Age returns the seconds since a job was submitted.
func (s *Snapshot) Age(g *Gang) float64 {
	return math.Max(s.State.Now.Sub(g.SubmittedAt).Seconds(), 0)
}

// avoidFor is how long a job keeps off a device on which its worker held up the others: what was wrong there may be
// over by then.
const avoidFor = time.Hour

// avoided are the slow devices that still count: those of the attempt that runs, and others for avoidFor.
func avoided(j *state.Job, now time.Time) []train.Straggler {
	var count []train.Straggler
	for _, s := range j.Slow {
		age := now.Sub(s.FoundAt)
		if s.FoundAt.IsZero() || age < avoidFor || j.Running != nil && age.Seconds() < j.Running.Seconds {
			count = append(count, s)
		}
	}
	return count
}
