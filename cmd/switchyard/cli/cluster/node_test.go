package cluster

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// follow plays the planner: it enters each order about a whole node or one device.
func follow(t *testing.T, b *bus.Bus) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var playing conc.WaitGroup
	playing.Go(func() {
		_ = b.Follow(ctx, event.StreamNodes, nil, 1, func(m bus.Message) {
			r, err := event.Decode[event.NodeRequest](m.Data)
			if err != nil {
				t.Error(err)
			}
			if m.Parsed.Fact == event.FactRemoveRequested {
				nodes, err := bus.OpenKV(ctx, b, contract.Nodes)
				if err == nil {
					var e bus.Entry[train.Node]
					if e, err = nodes.Get(ctx, m.Parsed.ID); err == nil {
						err = nodes.Delete(ctx, m.Parsed.ID, e.Revision)
					}
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			device := train.DeviceID(train.WholeNode)
			if len(r.Devices) > 0 {
				device = r.Devices[0]
			}
			orders := map[train.DeviceID]train.NodeOrder{device: {Drain: m.Parsed.Fact == event.FactDrainRequested, By: "ops", Why: r.Reason, At: m.Time}}
			if m.Parsed.Fact == event.FactResumeRequested {
				orders = nil
			}
			kv, err := bus.OpenKV(ctx, b, contract.Eligibility)
			if err == nil {
				_, err = kv.Modify(ctx, m.Parsed.ID, func(e *train.Eligibility) (bool, error) {
					*e = train.Eligibility{Orders: orders, Sequence: m.Sequence}
					return true, nil
				})
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() { stop(); playing.Wait() })
}

func TestNodes(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	clitest.Put(t, s.Bus, contract.Conditions, "cpu1", train.NodeCondition{Cordoned: true})
	clitest.Put(t, s.Bus, contract.Nodes, "new", train.Node{ID: "new", SeenAt: time.Now().Add(time.Minute)})
	clitest.Put(t, s.Bus, contract.Nodes, "old", train.Node{ID: "old", SeenAt: time.Now().Add(-time.Hour)})
	follow(t, s.Bus)
	steps := []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"node", "cordon", "gpu1", "--reason", "kernel upgrade"}, exit.OK, []string{"node gpu1 takes no more jobs\n"}},
		{[]string{"node", "list"}, exit.OK, []string{
			"gpu1  cordoned  4        NVIDIA H200  2     1", "node gpu1 is cordoned by ops: kernel upgrade (`switchyard node resume gpu1` ends that)", "node cpu1 is cordoned in Kubernetes",
		}},
		{[]string{"node", "drain", "gpu1", "--device", "gpu:3"}, exit.OK, []string{"gpu:3 of node gpu1 takes no more jobs, and those there leave at their next save\n"}},
		{[]string{"node", "list"}, exit.OK, []string{"gpu1  ready but 1", "gpu:3 of node gpu1 is being drained by ops (`switchyard node resume gpu1 --device gpu:3` ends that)"}},
		{[]string{"node", "resume", "gpu1"}, exit.OK, []string{"node gpu1 takes jobs again\n"}},
		{[]string{"node", "list"}, exit.OK, []string{"gpu1  ready"}},
		{[]string{"node", "drain", "gpu1", "--wait", "1s"}, exit.Failed, []string{"jobs [resnet-4f2a] have not left in 1s", "they leave at their next save"}},
		{[]string{"node", "drain", "gpu1", "--wait", "1s", "--device", "gpu:3"}, exit.Usage, []string{"--wait is about whole nodes"}},
		{[]string{"node", "drain", "cpu1", "--wait", "1m"}, exit.OK, []string{"node cpu1 takes no more jobs"}},
		{[]string{"node", "resume", "gpu1"}, exit.OK, nil},
		{[]string{"node", "drain", "gpu"}, exit.Failed, []string{`no node "gpu"`, "did you mean gpu1?"}},
		{[]string{"node", "drain", "gpu1", "--device", "3"}, exit.Usage, []string{`--device "3": want a device of node gpu1, one of gpu:0,gpu:1,gpu:2,gpu:3`}},
		{[]string{"node", "remove", "gpu1"}, exit.Failed, []string{"jobs [resnet-4f2a] have devices of node gpu1"}},
		{[]string{"node", "remove", "new"}, exit.Failed, []string{"node new is not silent"}},
		{[]string{"node", "remove", "old"}, exit.OK, []string{"node old is removed\n"}},
		{[]string{"node", "remove", "old"}, exit.Failed, []string{`no node "old"`}},
		{[]string{"node", "drain"}, exit.Usage, []string{"requires at least 1 arg"}},
	}
	for _, step := range steps {
		code, out, stderr := runAtNoon(t, s, step.args)
		if code != step.code {
			t.Fatalf("%v: exit %d, want %d: %s", step.args, code, step.code, stderr)
		}
		for _, want := range step.want {
			if !strings.Contains(out+stderr, want) {
				t.Errorf("%v: want %q, found:\n%s%s", step.args, want, out, stderr)
			}
		}
	}
	_, out, _ := s.Run("node", "drain", "gpu1", "-o", "json")
	var rows []nodeRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 || !rows[0].Exclusions[0].Leave || rows[0].Jobs[0] != "resnet-4f2a" {
		t.Errorf("%v: %s", err, out)
	}
}

// runAtNoon runs a command; a list shows the nodes as they are at the present of the records.
func runAtNoon(t *testing.T, s *clitest.Terminal, args []string) (code int, out, stderr string) {
	t.Helper()
	if args[1] != "list" {
		return s.Run(args...)
	}
	rows, err := rowsOf(t.Context(), s.Yard(clitest.Noon), clitest.Noon, newNodeRow)
	if err == nil {
		err = printNodes(s.Console, rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, stderr = s.Printed()
	return exit.OK, out, stderr
}

// TestStateOf: what a node is, in a word.
func TestStateOf(t *testing.T) {
	of := func(codes ...string) []train.Exclusion {
		var all []train.Exclusion
		for _, code := range codes {
			all = append(all, train.Exclusion{Reason: train.Reason{Code: code}})
		}
		return all
	}
	part := train.Exclusion{Devices: []train.DeviceID{"gpu:0"}, Reason: train.Reason{Code: train.NodeCordoned}}
	for _, tc := range []struct {
		exclusions []train.Exclusion
		stale      bool
		want       string
	}{
		{nil, false, "ready"},
		{nil, true, "silent"},
		{of(train.NodeCordoned, train.NodeCordoned, train.NodeTainted), false, "cordoned, tainted"},
		{[]train.Exclusion{part, part}, false, "ready but 2"},
		{append(of(train.NodeDraining), part), false, "draining"},
	} {
		if got := stateOf(tc.exclusions, tc.stale); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.exclusions, got, tc.want)
		}
	}
}

// impatient stops waiting at the first look.
type impatient struct {
	console.Yard
	stop func()
}

// Cluster implements console.Yard.
func (y impatient) Cluster(ctx context.Context) ([]*view.Node, error) {
	y.stop()
	return y.Yard.Cluster(context.WithoutCancel(ctx))
}

// TestAnOrderThatNobodyFollows: the request is stored, and the answer says what to look at.
func TestAnOrderThatNobodyFollows(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	ctx, stop := context.WithCancel(t.Context())
	err := order{fact: event.FactDrainRequested}.giveOne(ctx, impatient{s.Yard(clitest.Noon), stop}, &view.Node{Node: train.Node{ID: "gpu1"}}, event.DrainRequested{})
	if err == nil || !strings.Contains(err.Error(), "the planner has not followed the order about node gpu1") {
		t.Errorf("an order that nobody follows: %v", err)
	}
	if _, found, err := console.LastIfThere[event.DrainRequested](t.Context(), s.Bus, event.StreamNodes, event.Subject{Entity: "node", ID: "gpu1", Fact: event.FactDrainRequested, Version: 1}); !found || err != nil {
		t.Errorf("the order is stored: %v, %v", found, err)
	}
}
