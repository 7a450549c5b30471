// Package whatif answers what another policy, another cluster or other limits would have made of the jobs that a
// cluster has recorded. It decides what to simulate and turns the results into rows; package sim simulates. The
// planner answers questions from what it knows, and the command line answers them from a bundle, by the same
// functions.
package whatif

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/history"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Subject is where the planner answers a Question with an Answer.
const Subject = "switchyard.planner.whatif"

// Question is what a user asks. Zero values leave things as they were.
type Question struct {
	// SinceSeconds is how far back the recorded jobs go; 0 is as far as the bus remembers.
	SinceSeconds float64 `json:"since_seconds,omitempty"`
	// Clusters are nodes instead of the recorded ones, as nodes=N,gpus=M[,type=T].
	Clusters []string `json:"clusters,omitempty"`
	// AddNodes is the number of nodes to add, Like the node that they are like (default: the one with the most
	// devices).
	AddNodes int    `json:"add_nodes,omitempty"`
	Like     string `json:"like,omitempty"`
	// Policies are simulated one by one (default: the one that decided).
	Policies []string `json:"policies,omitempty"`
	// Quotas are the most devices of each tenant, PowerBudgetWatts the most that all devices may draw, instead of
	// the recorded limits. A budget of 0 is no bound.
	Quotas           map[string]int `json:"quotas,omitempty"`
	PowerBudgetWatts *float64       `json:"power_budget_watts,omitempty"`
	// IntervalSeconds is the time between decisions (default: a hundredth of the median completion time).
	IntervalSeconds float64 `json:"interval_seconds,omitempty"`
	// Seed is for policies that search at random.
	Seed *uint64 `json:"seed,omitempty"`
	// Timeline asks for each change of an allocation.
	Timeline bool `json:"timeline,omitempty"`
}

// Answer is what was measured, then simulated.
type Answer struct {
	Rows []Row `json:"rows,omitempty"`
	// Nodes is how many nodes were ever there; CameAndWent of them were not there all the time, or not with all
	// their devices.
	Nodes       int `json:"nodes"`
	CameAndWent int `json:"came_and_went,omitempty"`
	// Unreadable says why some recorded decisions could not be read.
	Unreadable []string `json:"unreadable,omitempty"`
	// Timeline is a CSV text with each change of an allocation, if asked for.
	Timeline string `json:"timeline,omitempty"`
	// Refusal is set instead of all this if the question has no answer.
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Refusal says why a question has no answer. Usage says that the question is wrong; else the records do not allow
// an answer.
type Refusal struct {
	Usage   bool   `json:"usage,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

func wrong(fix, format string, args ...any) error {
	return &Refusal{Usage: true, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// Plan returns the simulations that answer a question: first the policy that decided on the cluster as it was,
// which shows how far simulations of this cluster can be trusted, and then what the user asks for, if that is
// something else. An error is a Refusal.
func (q Question) Plan(live history.Live) ([]sim.Config, error) {
	decided, err := plan.Find(live.Policy)
	if err != nil {
		return nil, &Refusal{Message: fmt.Sprintf("the recorded plans are of policy %q, which this program does not have", live.Policy), Fix: knownPolicies()}
	}
	policies, err := q.policies()
	if err != nil {
		return nil, err
	}
	nodes, changed, err := q.nodes(live.Nodes)
	if err != nil {
		return nil, err
	}
	limited, err := q.limits()
	if err != nil {
		return nil, err
	}
	changed = changed || limited
	if len(policies) == 0 && changed {
		policies = []plan.Policy{decided}
	}
	if !changed {
		policies = slices.DeleteFunc(policies, func(p plan.Policy) bool { return p.Name() == live.Policy })
	}
	interval, err := q.interval(live)
	if err != nil {
		return nil, err
	}
	c := sim.Config{
		Workload: live.Workload, Nodes: live.Nodes, Absences: live.Absences, State: live.State, Policy: decided, IntervalSeconds: interval,
	}
	if q.Seed != nil {
		c.State.Seed = *q.Seed
	}
	all := []sim.Config{c}
	if len(q.Clusters) > 0 {
		c.Absences = nil
	}
	c.Nodes = nodes
	if q.Quotas != nil {
		c.State.Quotas = q.Quotas
	}
	if q.PowerBudgetWatts != nil {
		c.State.PowerBudgetWatts = *q.PowerBudgetWatts
	}
	for _, c.Policy = range policies {
		all = append(all, c)
	}
	return all, nil
}

func knownPolicies() string {
	return "policies of a live planner are " + strings.Join(plan.PolicyNames(), ", ")
}

func (q Question) policies() ([]plan.Policy, error) {
	var policies []plan.Policy
	for _, name := range q.Policies {
		p, err := plan.Find(name)
		if err != nil {
			return nil, wrong(knownPolicies(), "--policy %q: no such policy", name)
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// limits checks quotas and power budget, and reports whether any is asked for.
func (q Question) limits() (bool, error) {
	for tenant, devices := range q.Quotas {
		if devices < 0 {
			return false, wrong("", "--quota %s=%d: want 0 or more", tenant, devices)
		}
	}
	if b := q.PowerBudgetWatts; b != nil && (!(*b >= 0) || math.IsInf(*b, 0)) {
		return false, wrong("", "--power-budget-watts %v: want 0 or more", *b)
	}
	return q.Quotas != nil || q.PowerBudgetWatts != nil, nil
}

// interval is a hundredth of the usual completion time, within bounds: the live planner decides at each event, so
// the time that a job waits for the next decision must not matter.
func (q Question) interval(live history.Live) (float64, error) {
	const shortest, longest, decisions = 0.05, 60, 100_000
	if q.IntervalSeconds != 0 {
		if !(q.IntervalSeconds >= shortest) {
			return 0, wrong("", "--interval %vs: want 50ms or more", q.IntervalSeconds)
		}
		return q.IntervalSeconds, nil
	}
	var jcts []float64
	for _, h := range live.Happened {
		jcts = append(jcts, h.JCTSeconds)
	}
	slices.Sort(jcts)
	wanted := 1.0
	if len(jcts) > 0 {
		wanted = sim.Percentile(jcts, 0.5) / 100
	}
	return min(max(wanted, shortest, live.Seconds/decisions), longest), nil
}

// mostNodes bounds a simulated cluster.
const mostNodes = 10_000

// nodes returns the cluster asked for, and whether it differs from the recorded one.
func (q Question) nodes(recorded []train.Node) ([]train.Node, bool, error) {
	if len(recorded) == 0 {
		return nil, false, &Refusal{Message: "no node is recorded"}
	}
	nodes := recorded
	model := slices.MaxFunc(nodes, func(x, y train.Node) int { return len(x.Devices) - len(y.Devices) })
	if q.Like != "" {
		i := slices.IndexFunc(nodes, func(n train.Node) bool { return string(n.ID) == q.Like })
		if i < 0 {
			return nil, false, wrong("nodes are "+strings.Join(nodeNames(nodes), ", "), "--like %q: no such node", q.Like)
		}
		model = nodes[i]
	}
	changed := false
	if len(q.Clusters) > 0 {
		if len(model.Devices) == 0 {
			return nil, false, &Refusal{Message: "no recorded node has a device, and those of --cluster are like one of them"}
		}
		var err error
		if nodes, err = q.otherNodes(model); err != nil {
			return nil, false, err
		}
		changed = true
	}
	if q.AddNodes < 0 || q.AddNodes > mostNodes {
		return nil, false, wrong("", "--add-nodes %d: want 0 to %d", q.AddNodes, mostNodes)
	}
	nodes = slices.Clone(nodes)
	for i := range q.AddNodes {
		more := model
		more.ID = train.NodeID(fmt.Sprintf("added-%d-%s", i+1, model.ID))
		nodes, changed = append(nodes, more), true
	}
	return nodes, changed, nil
}

// otherNodes are those of --cluster. They have the labels, the cores and the main memory of a recorded one, and its
// device but for the type.
func (q Question) otherNodes(like train.Node) ([]train.Node, error) {
	device := like.Devices[0]
	var nodes []train.Node
	devices := 0
	for _, text := range q.Clusters {
		p, err := sim.ParsePool(text)
		if err != nil {
			return nil, wrong("for example --cluster nodes=16,gpus=4", "--cluster %v", err)
		}
		if devices += p.Nodes * p.Devices; devices > sim.MostDevices {
			return nil, wrong("", "--cluster given %d times: want at most %d GPUs together", len(q.Clusters), sim.MostDevices)
		}
		for range p.Nodes {
			n := like
			n.ID, n.Machine, n.Devices = train.NodeID(fmt.Sprintf("node-%05d", len(nodes))), "", nil
			for i := range p.Devices {
				d := device
				d.ID, d.UUID, d.Core = train.DeviceID(fmt.Sprintf("%s:%d", device.Kind, i)), "", i
				if p.Model != "" && p.Model != device.Model {
					d.Model, d.Memory = p.Model, unit.Bytes(0)
				}
				n.Devices = append(n.Devices, d)
			}
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

func nodeNames(nodes []train.Node) []string {
	var ids []string
	for _, n := range nodes {
		ids = append(ids, string(n.ID))
	}
	slices.Sort(ids)
	return ids
}
