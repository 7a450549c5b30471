package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Node is a node, what keeps jobs off it, and what is on it.
type Node struct {
	train.Node
	// Exclusions are everything that keeps jobs off it.
	Exclusions []train.Exclusion `json:"exclusions"`
	// OrdersSequence is the place in the stream of the newest request about the node that the planner follows.
	OrdersSequence uint64 `json:"orders_sequence,omitempty"`
	// Jobs hold devices of it, in the order of their ids.
	Jobs []NodeJob `json:"jobs"`
	// Power is the mean of the last measured interval; nil if none is recent.
	Power *NodePower `json:"power,omitempty"`
}

// NodeJob is a job that holds devices of a node.
type NodeJob struct {
	// ID names the job.
	ID train.JobID `json:"id"`
	// Devices are those on the node.
	Devices []train.DeviceID `json:"devices"`
	// State is the job's state.
	State train.State `json:"state"`
	// EpochsDone and MaxEpochs are how far it has come; 0 if that is unknown.
	EpochsDone int `json:"epochs_done"`
	MaxEpochs  int `json:"max_epochs"`
	// MeanPower is that of the job over its time so far, and Methods are how it was measured.
	MeanPower unit.Power `json:"mean_uw"`
	Methods   []string   `json:"power_methods"`
	// Predicted is when it ends by the newest plan.
	Predicted train.Predicted `json:"predicted,omitzero"`
	// Memory is its part of each device; 0 if it has them alone. MemoryUsed is what it holds of them, if that is known.
	Memory     unit.Bytes `json:"memory_bytes,omitempty"`
	MemoryUsed unit.Bytes `json:"memory_used_bytes,omitempty"`
	// Processors and GPUs are how many of them it kept busy in the last measured interval.
	Processors float64 `json:"processors_busy,omitempty"`
	GPUs       float64 `json:"gpus_busy,omitempty"`
}

// NodePower is the power of a node.
type NodePower struct {
	// Node is that of the whole node, Devices that of devices with a meter of their own.
	Node    unit.Power                    `json:"node_uw"`
	Devices map[train.DeviceID]unit.Power `json:"devices_uw"`
	// Methods are how it was measured.
	Methods []string `json:"methods"`
	// Boards are the states of GPUs whose drivers tell them.
	Boards map[train.DeviceID]event.Board `json:"boards,omitempty"`
}

// Nodes returns a page of the nodes in the order of their ids.
func Nodes(x *index.Index, q Query, now time.Time) Records[Node] {
	records := List(x.Nodes, q)
	page := Records[Node]{Items: []*Node{}, Next: records.Next}
	on := holdings(x)
	for _, n := range records.Items {
		var condition train.NodeCondition
		if c := x.Conditions.Get(string(n.ID)); c != nil {
			condition = *c
		}
		var eligible train.Eligibility
		if e := x.Eligibility.Get(string(n.ID)); e != nil {
			eligible = *e
		}
		v := &Node{
			Node: *n, Exclusions: append([]train.Exclusion{}, n.Exclusions(condition, eligible, now)...), OrdersSequence: eligible.Sequence,
			Jobs: append([]NodeJob{}, on[n.ID]...),
		}
		if v.Devices == nil { // a list all the same
			v.Devices = []train.Device{}
		}
		if measured := x.Power.Get(string(n.ID)); measured != nil {
			v.Power = powerOf(measured, now)
			if v.Power != nil {
				v.used(measured)
			}
		}
		page.Items = append(page.Items, v)
	}
	return page
}

// holdings returns the jobs of each node: those that hold devices of it, and those whose end is not stored yet.
func holdings(x *index.Index) map[train.NodeID][]NodeJob {
	on, plan := map[train.NodeID][]NodeJob{}, x.Plan().Predictions()
	for _, attempt := range x.Attempts.All() {
		if !attempt.Live() && attempt.Published {
			continue
		}
		held := NodeJob{ID: attempt.Job, Methods: []string{}, Predicted: plan[attempt.Job]}
		if j := x.Jobs.Get(string(attempt.Job)); j != nil {
			held.State, held.EpochsDone, held.MaxEpochs = j.State, j.EpochsDone, j.Spec.MaxEpochs
		}
		if account := x.Accounts.Get(string(attempt.Job)); account != nil {
			held.MeanPower, held.Methods = account.MeanPower, append(held.Methods, account.Methods...)
		}
		for _, part := range attempt.Places() {
			held.Devices, held.Memory = part.Devices, part.Memory
			on[part.Node] = append(on[part.Node], held)
		}
	}
	for _, jobs := range on {
		slices.SortFunc(jobs, func(a, b NodeJob) int { return cmp.Compare(a.ID, b.ID) })
	}
	return on
}

// used adds what the jobs used in an interval.
func (v *Node) used(m *event.Measured) {
	seconds := m.To.Sub(m.From).Seconds()
	for i := range v.Jobs {
		j := &v.Jobs[i]
		for _, use := range m.Users {
			if use.Job != j.ID {
				continue
			}
			switch use.Component {
			case event.ComponentCPU:
				j.Processors += use.Work / seconds
			case event.ComponentGPU:
				j.GPUs += use.Work / seconds
			}
			j.MemoryUsed += use.MemoryBytes
		}
	}
}

// powerStale is the age at which the last reading of a meter says nothing about the present.
const powerStale = time.Minute

// powerOf returns the mean power of an interval, or nil if it is too old.
func powerOf(m *event.Measured, now time.Time) *NodePower {
	seconds := m.To.Sub(m.From).Seconds()
	if seconds <= 0 || now.Sub(m.To) >= powerStale {
		return nil
	}
	p, total := &NodePower{Devices: map[train.DeviceID]unit.Power{}, Methods: []string{}}, unit.Energy(0)
	for _, meter := range m.Meters {
		if meter.Component == event.ComponentNode { // the others are part of it
			continue
		}
		total += meter.Energy
		if meter.Device != "" {
			p.Devices[meter.Device] += unit.Watts(meter.Energy.Joules() / seconds)
			if meter.Board != nil {
				if p.Boards == nil {
					p.Boards = map[train.DeviceID]event.Board{}
				}
				p.Boards[meter.Device] = *meter.Board
			}
		}
		p.Methods = append(p.Methods, meter.Method)
	}
	p.Node = unit.Watts(total.Joules() / seconds)
	slices.Sort(p.Methods)
	p.Methods = slices.Compact(p.Methods)
	return p
}
