package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func nodeCommand(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Keep jobs off nodes and devices, and show what is kept off",
	}
	cmd.AddCommand(nodeListCommand(a))
	for _, o := range []order{
		{
			verb: "cordon", fact: event.FactCordonRequested, done: "takes no more jobs",
			short: "Give no more jobs to nodes; those there stay until they end",
			body:  func(r event.NodeRequest, _ bool) any { return event.CordonRequested{NodeRequest: r} },
		},
		{
			verb: "drain", fact: event.FactDrainRequested, done: "takes no more jobs, and those there leave at their next save",
			short: "Give no more jobs to nodes; those there leave at their next save, not before their first",
			body:  func(r event.NodeRequest, now bool) any { return event.DrainRequested{NodeRequest: r, Now: now} },
		},
		{
			verb: "resume", fact: event.FactResumeRequested, done: "takes jobs again",
			short: "Give jobs to nodes again",
			body:  func(r event.NodeRequest, _ bool) any { return event.ResumeRequested{NodeRequest: r} },
		},
	} {
		cmd.AddCommand(o.command(a))
	}
	cmd.AddCommand(nodeRemoveCommand(a))
	return cmd
}

func nodeRemoveCommand(a *console.Console) *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "remove NODE..",
		Short: "Forget nodes whose agents are gone for good",
		Long: `Forgets nodes that are silent, with the orders about them: their devices count no more, and no alert is about them. A node on which a job
has devices is not removed. If the agent of a removed node starts again, the node is back.

Exit codes: 0 the nodes are removed, 1 a node is unknown, not silent or in use, or the planner did not follow in time.`,
		Example: "  switchyard node remove n2",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return removeNodes(ctx, a, y, names, reason) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown by `switchyard events --audit`")
	return cmd
}

// removeNodes asks the planner to remove silent nodes, and waits until it has.
func removeNodes(ctx context.Context, a *console.Console, y console.Yard, names []string, reason string) error {
	nodes, err := findNodes(ctx, y, names)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if row := newNodeRow(n, time.Now()); row.State != silentState {
			return exit.Errorf(exit.Failed, "stop its node agent first; `switchyard node cordon` keeps jobs off it", "node %s is not silent", n.ID)
		} else if len(row.Jobs) > 0 {
			return exit.Errorf(exit.Failed, "cancel them, or start its node agent again", "jobs %v have devices of node %s", row.Jobs, n.ID)
		}
	}
	o := order{verb: "remove", fact: event.FactRemoveRequested}
	waiting, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	for _, n := range nodes {
		if err := o.giveOne(waiting, y, n, event.RemoveRequested{By: installation.CurrentUser(), Reason: reason}); err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "node %s is removed\n", n.ID)
	}
	return nil
}

// silentState is the state of a node whose agent is not heard of.
const silentState = "silent"

// order is one verb of an operator about nodes.
type order struct {
	verb, fact, short, done string
	body                    func(r event.NodeRequest, now bool) any
}

// orderFlags are the flags of an order.
type orderFlags struct {
	devices []string
	reason  string
	now     bool
	wait    time.Duration
}

// orderTimeout bounds the wait for the planner.
const orderTimeout = 10 * time.Second

func (o order) command(a *console.Console) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:   o.verb + " NODE..",
		Short: o.short,
		Long: o.short + `. The order holds until another one about the same node or device, also after restarts. On Kubernetes it
is about jobs alone: other pods follow kubectl cordon and kubectl drain, which the planner obeys, too.

Exit codes: 0 the planner follows the order, 1 a node is unknown, or the planner or the jobs did not follow in time.`,
		Example: "  switchyard node " + o.verb + " n1\n  switchyard node " + o.verb + " n1 --device gpu:3",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, nodes []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return o.give(ctx, a, y, nodes, f) })
		},
	}
	cmd.Flags().StringSliceVar(&f.devices, "device", nil, "only this device of each node (repeatable)")
	if o.fact != event.FactResumeRequested {
		cmd.Flags().StringVar(&f.reason, "reason", "", "reason, shown wherever a job waits for it")
	}
	if o.fact == event.FactDrainRequested {
		cmd.Flags().BoolVar(&f.now, "now", false, "do not wait for first checkpoints: jobs that have saved nothing begin again elsewhere")
		cmd.Flags().DurationVar(&f.wait, "wait", 0, "return when their jobs have left, or fail after this time")
	}
	return cmd
}

// give publishes the order for each node and waits until the planner follows it.
func (o order) give(ctx context.Context, a *console.Console, y console.Yard, names []string, f orderFlags) error {
	if f.wait > 0 && len(f.devices) > 0 {
		return exit.Usagef("--wait is about whole nodes: leave --device out")
	}
	nodes, err := findNodes(ctx, y, names)
	if err != nil {
		return err
	}
	r := event.NodeRequest{By: installation.CurrentUser(), Reason: f.reason}
	for _, d := range f.devices {
		r.Devices = append(r.Devices, train.DeviceID(d))
	}
	for _, n := range nodes {
		if err := knownDevices(n.Node, r.Devices); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	for _, n := range nodes {
		if err := o.giveOne(waiting, y, n, o.body(r, f.now)); err != nil {
			return err
		}
		if a.Output != "json" {
			fmt.Fprintf(a.Stdout, "%s %s\n", orderedWords(n.ID, r.Devices), o.done)
		}
	}
	if f.wait > 0 {
		if err := awaitEmpty(ctx, y, nodes, f.wait); err != nil {
			return err
		}
	}
	if a.Output != "json" {
		return nil
	}
	rows, err := rowsOf(ctx, y, time.Now(), newNodeRow)
	if err != nil {
		return err
	}
	return a.PrintJSON(slices.DeleteFunc(rows, func(row nodeRow) bool {
		return !slices.ContainsFunc(nodes, func(n *view.Node) bool { return n.ID == row.ID })
	}))
}

// awaitEmpty waits until no job has devices of the nodes.
func awaitEmpty(ctx context.Context, y console.Yard, nodes []*view.Node, most time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var there []train.JobID
	for range tick.Every(waiting, followPause) {
		rows, err := rowsOf(waiting, y, time.Now(), newNodeRow)
		if waiting.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		there = nil
		for _, row := range rows {
			if slices.ContainsFunc(nodes, func(n *view.Node) bool { return n.ID == row.ID }) {
				there = append(there, row.Jobs...)
			}
		}
		if len(there) == 0 {
			return nil
		}
	}
	return exit.Errorf(exit.Failed, "they leave at their next save; `switchyard describe JOB` says what each waits for", "jobs %v have not left in %s", there, most)
}

func orderedWords(n train.NodeID, devices []train.DeviceID) string {
	if len(devices) == 0 {
		return "node " + string(n)
	}
	return fmt.Sprintf("%s of node %s", train.JoinDevices(devices), n)
}

func (o order) giveOne(ctx context.Context, y console.Yard, before *view.Node, body any) error {
	if _, err := y.Publish(ctx, event.NodeRequestFact(before.ID, o.fact, time.Now().UTC(), body)); err != nil {
		return err
	}
	for range tick.Every(ctx, followPause) {
		nodes, err := y.Cluster(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		at := slices.IndexFunc(nodes, func(n *view.Node) bool { return n.ID == before.ID })
		if o.fact == event.FactRemoveRequested {
			switch {
			case at < 0:
				return nil
			case nodes[at].OrdersSequence > before.OrdersSequence:
				return exit.Errorf(exit.Failed, "`switchyard node list` shows it", "the planner has not removed node %s: its agent is heard of again, or a job has devices there", before.ID)
			}
		} else if at >= 0 && nodes[at].OrdersSequence > before.OrdersSequence {
			return nil
		}
	}
	return exit.Errorf(exit.Failed, "the request is stored and will be followed; is the planner running?",
		"the planner has not followed the order about node %s in %s", before.ID, orderTimeout)
}

// followPause is the time between two looks at what the planner follows.
const followPause = 100 * time.Millisecond

// findNodes finds all nodes, each once, or fails.
func findNodes(ctx context.Context, y console.Yard, names []string) ([]*view.Node, error) {
	nodes, err := y.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, n := range nodes {
		known = append(known, string(n.ID))
	}
	var found []*view.Node
	for _, name := range names {
		at := slices.Index(known, name)
		if at < 0 {
			fix := "`switchyard node list` shows the nodes"
			if near := train.NearMiss(name, known); near != "" {
				fix = fmt.Sprintf("did you mean %s?", render.EscapeText(near))
			}
			return nil, exit.Errorf(exit.Failed, fix, "no node %q", name)
		}
		if !slices.Contains(found, nodes[at]) {
			found = append(found, nodes[at])
		}
	}
	return found, nil
}

// knownDevices checks the form of the names of devices. A failed device is no longer listed, but an order about it
// makes sense.
func knownDevices(n train.Node, devices []train.DeviceID) error {
	for _, d := range devices {
		if d.Kind() == "" || d.Index() == "" {
			var ids []train.DeviceID
			for i := range n.Devices {
				ids = append(ids, n.Devices[i].ID)
			}
			return exit.Usagef("--device %q: want a device of node %s, one of %s", d, n.ID, train.JoinDevices(ids))
		}
	}
	return nil
}

func nodeListCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show the nodes, and what keeps jobs off them",
		Long: `Shows each node with the number of its devices, how many of them jobs have, and everything that keeps jobs off it:
orders of operators, what Kubernetes says of the node, and what is set aside since different jobs were lost there again and
again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				rows, err := rowsOf(ctx, y, time.Now(), newNodeRow)
				if err != nil {
					return err
				}
				return printNodes(a, rows)
			})
		},
	}
}

// nodeRow is a node with what keeps jobs off it.
type nodeRow struct {
	ID      train.NodeID `json:"id"`
	State   string       `json:"state"`
	Devices int          `json:"devices"`
	// Kinds are the kinds of the devices.
	Kinds []deviceKind `json:"kinds"`
	// Busy counts the devices that jobs have, Jobs are those jobs.
	Busy        int               `json:"busy"`
	Jobs        []train.JobID     `json:"jobs"`
	SeenSeconds float64           `json:"seen_seconds_ago"`
	Exclusions  []train.Exclusion `json:"exclusions"`
}

// deviceKind is devices of a node that are alike.
type deviceKind struct {
	Kind   train.DeviceKind `json:"kind"`
	Model  string           `json:"model,omitempty"`
	Memory unit.Bytes       `json:"memory_bytes,omitempty"`
	Count  int              `json:"count"`
}

// kindsOf counts the devices of each kind, in the order of the devices.
func kindsOf(devices []train.Device) []deviceKind {
	kinds := []deviceKind{}
	for _, d := range devices {
		is := deviceKind{Kind: d.ID.Kind(), Model: d.Model, Memory: d.Memory}
		at := slices.IndexFunc(kinds, func(k deviceKind) bool { return k.Kind == is.Kind && k.Model == is.Model && k.Memory == is.Memory })
		if at < 0 {
			at, kinds = len(kinds), append(kinds, is)
		}
		kinds[at].Count++
	}
	return kinds
}

// words names a kind with its memory, and with its number if it is not the only one.
func (k deviceKind) words(alone bool) string {
	words := cmp.Or(k.Model, string(k.Kind))
	if k.Memory > 0 {
		words += " " + k.Memory.Exact()
	}
	if !alone {
		words = fmt.Sprintf("%d %s", k.Count, words)
	}
	return render.EscapeText(words)
}

// rowsOf reads the nodes in the order of their ids and makes a row of each.
func rowsOf[T any](ctx context.Context, y console.Yard, now time.Time, row func(*view.Node, time.Time) T) ([]T, error) {
	nodes, err := y.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]T, len(nodes))
	for i, n := range nodes {
		rows[i] = row(n, now)
	}
	return rows, nil
}

func newNodeRow(n *view.Node, now time.Time) nodeRow {
	seen := max(now.Sub(n.SeenAt), 0)
	r := nodeRow{
		ID: n.ID, State: stateOf(n.Exclusions, seen >= train.NodeStale), Devices: len(n.Devices), Kinds: kindsOf(n.Devices),
		Jobs: []train.JobID{}, SeenSeconds: seen.Seconds(), Exclusions: n.Exclusions,
	}
	used := map[train.DeviceID]bool{}
	for _, j := range n.Jobs {
		r.Jobs = append(r.Jobs, j.ID)
		for _, d := range j.Devices {
			used[d] = true
		}
	}
	r.Busy = len(used)
	return r
}

// stateOf says in short whether a node takes jobs.
func stateOf(exclusions []train.Exclusion, stale bool) string {
	if stale {
		return silentState
	}
	words := map[string]string{
		train.NodeNotReady: "not ready", train.NodeCordoned: "cordoned", train.NodeDraining: "draining", train.NodeTainted: "tainted",
		train.NodeSetAside: "set aside",
	}
	var states []string
	partly := 0
	for _, e := range exclusions {
		if len(e.Devices) > 0 {
			partly++
		} else if w := words[e.Reason.Code]; !slices.Contains(states, w) {
			states = append(states, w)
		}
	}
	switch {
	case len(states) > 0:
		return strings.Join(states, ", ")
	case partly > 0:
		return fmt.Sprintf("ready but %d", partly)
	}
	return "ready"
}

func printNodes(a *console.Console, rows []nodeRow) error {
	if a.Output == "json" {
		return a.PrintJSON(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.Stderr, "no nodes: start `switchyard up` or a node agent")
		return nil
	}
	err := a.Table("NODE\tSTATE\tDEVICES\tKIND\tBUSY\tJOBS\tSEEN", func(w io.Writer) {
		for _, r := range rows {
			var kinds []string
			for _, k := range r.Kinds {
				kinds = append(kinds, k.words(len(r.Kinds) == 1))
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%s ago\n", r.ID, r.State, r.Devices, render.Dash(strings.Join(kinds, ", ")), r.Busy, len(r.Jobs), render.Duration(r.SeenSeconds))
		}
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		for _, e := range r.Exclusions {
			fmt.Fprintf(a.Stdout, "%s\n", render.EscapeText(e.Reason.String()))
		}
	}
	return nil
}
