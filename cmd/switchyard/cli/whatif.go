package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/history"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// whatIfOptions are the flags of simulate that are about a live cluster.
type whatIfOptions struct {
	fromBus  bool
	bundle   string
	since    time.Duration
	addNodes int
	like     string
}

func (o *whatIfOptions) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&o.fromBus, "from-bus", false, "simulate what the live cluster has recorded")
	fs.StringVar(&o.bundle, "bundle", "", "simulate what is recorded in this file of `switchyard bundle`")
	fs.DurationVar(&o.since, "since", 0, "with --from-bus: how far back to go (0: as far as the bus remembers)")
	fs.IntVar(&o.addNodes, "add-nodes", 0, "with a recorded cluster: so many nodes more")
	fs.StringVar(&o.like, "like", "", "the node that those of --add-nodes are like (default: the one with the most devices)")
}

func (o *whatIfOptions) wanted() bool { return o.fromBus || o.bundle != "" }

// whatIf simulates a recorded workload: by the policy that decided, on the cluster as it was, and then as asked.
func (a *app) whatIf(cmd *cobra.Command, o simulateOptions) error {
	for _, name := range []string{"traces", "workload", "interference"} {
		if cmd.Flags().Changed(name) {
			return failure(ExitUsage, "", "--%s: with --from-bus or --bundle the workload is what was recorded", name)
		}
	}
	h, err := a.findHistory(cmd, o.whatIf)
	if err != nil {
		return err
	}
	live, err := h.Live()
	if err != nil {
		return runtime(err)
	}
	s, err := o.liveSimulations(cmd, live)
	if err != nil {
		return err
	}
	result := whatIfResult{live: live, rows: []whatIfRow{measuredRow(live)}}
	for _, one := range s {
		runs, err := a.simulate(cmd.Context(), one)
		if err != nil {
			return runtime(err)
		}
		for _, r := range runs {
			result.rows = append(result.rows, simulatedRow(live, one, r, len(result.rows) == 1))
		}
		result.runs = append(result.runs, runs...)
	}
	if o.timeline != "" {
		if err := writeTimeline(o.timeline, result.runs); err != nil {
			return runtime(err)
		}
	}
	return a.writeWhatIf(result)
}

func (a *app) findHistory(cmd *cobra.Command, o whatIfOptions) (h history.History, err error) {
	if o.bundle != "" {
		if o.fromBus || o.since != 0 {
			return h, failure(ExitUsage, "", "--bundle goes without --from-bus and --since")
		}
		return a.readBundle(o.bundle, 0)
	}
	err = a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
		var err error
		now := time.Now()
		h, err = history.FromBus(ctx, b, sinceTime(now, o.since), now.UTC())
		return err
	})
	a.tellUnreadable(h)
	return h, err
}

// liveSimulations are two: that of the policy that decided on the cluster as it was, and what was asked for, as far as that is something else.
func (o *simulateOptions) liveSimulations(cmd *cobra.Command, live history.Live) ([]simulation, error) {
	decided, err := plan.Find(live.Policy)
	if err != nil {
		return nil, failure(ExitError, "policies of a live planner are "+strings.Join(plan.PolicyNames(), ", "), "the recorded plans are of policy %q, which this program does not have", live.Policy)
	}
	var policies []plan.Policy
	for _, name := range o.policies {
		p, err := plan.Find(name)
		if err != nil {
			return nil, failure(ExitUsage, "policies of a live planner are "+strings.Join(plan.PolicyNames(), ", "), "--policy %q: no such policy", name)
		}
		policies = append(policies, p)
	}
	nodes, changed, err := o.changedNodes(cmd, live.Nodes)
	if err != nil {
		return nil, err
	}
	if len(policies) == 0 && changed {
		policies = []plan.Policy{decided}
	}
	if !changed {
		policies = slices.DeleteFunc(policies, func(p plan.Policy) bool { return p.Name() == live.Policy })
	}
	interval, err := o.liveInterval(cmd, live)
	if err != nil {
		return nil, err
	}
	config := sim.Config{IntervalSeconds: interval, Seed: o.seed, State: live.State, Nodes: live.Nodes, Absences: live.Absences}
	all := []simulation{{config, []sim.Workload{live.Workload}, []plan.Policy{decided}}}
	if cmd.Flags().Changed("cluster") {
		config.Absences = nil
	}
	if config.Nodes = nodes; len(policies) > 0 {
		all = append(all, simulation{config, []sim.Workload{live.Workload}, policies})
	}
	return all, nil
}

// liveInterval is a hundredth of the usual completion time, within bounds: the live planner decides at each event, and so the time that a job waits for
// the next decision must not matter.
func (o *simulateOptions) liveInterval(cmd *cobra.Command, live history.Live) (float64, error) {
	const shortest, longest, decisions = 0.05, 60, 100_000
	if cmd.Flags().Changed("interval") {
		if o.interval.Seconds() < shortest {
			return 0, failure(ExitUsage, "", "--interval %s: want 50ms or more", o.interval)
		}
		return o.interval.Seconds(), nil
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

// changedNodes is the cluster that was asked for, and whether it is another than the recorded one.
func (o *simulateOptions) changedNodes(cmd *cobra.Command, nodes []train.Node) ([]train.Node, bool, error) {
	if len(nodes) == 0 {
		return nil, false, failure(ExitError, "", "no node is recorded")
	}
	model := slices.MaxFunc(nodes, func(x, y train.Node) int { return len(x.Devices) - len(y.Devices) })
	if o.whatIf.like != "" {
		i := slices.IndexFunc(nodes, func(n train.Node) bool { return string(n.ID) == o.whatIf.like })
		if i < 0 {
			return nil, false, failure(ExitUsage, "nodes are "+strings.Join(nodeNames(nodes), ", "), "--like %q: no such node", o.whatIf.like)
		}
		model = nodes[i]
	}
	changed := false
	if cmd.Flags().Changed("cluster") {
		var err error
		if nodes, err = o.otherNodes(model.Devices[0]); err != nil {
			return nil, false, err
		}
		changed = true
	}
	if n := o.whatIf.addNodes; n < 0 || n > 10_000 {
		return nil, false, failure(ExitUsage, "", "--add-nodes %d: want 0 to 10000", n)
	}
	for i := range o.whatIf.addNodes {
		more := model
		more.ID = train.NodeID(fmt.Sprintf("added-%d-%s", i+1, model.ID))
		nodes, changed = append(slices.Clone(nodes), more), true
	}
	return nodes, changed, nil
}

// otherNodes are those of --cluster, with devices like a recorded one but for the type.
func (o *simulateOptions) otherNodes(device train.Device) ([]train.Node, error) {
	var nodes []train.Node
	for _, text := range o.clusters {
		p, err := parsePool(text)
		if err != nil {
			return nil, err
		}
		for range p.Nodes {
			n := train.Node{ID: train.NodeID(fmt.Sprintf("node-%05d", len(nodes))), Memory: math.MaxInt64, Cores: p.Devices}
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
