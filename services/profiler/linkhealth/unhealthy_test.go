package linkhealth

import (
	"fmt"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// reportAll makes every node report a slot in which each flow sent 100 probes and lost none, unless change alters it;
// if change returns false, the node reports nothing.
func (w *mesh) reportAll(number int64, change func(node train.NodeID, c *event.ProbesCounted) bool) (transitions, unhealthy string) {
	for _, node := range w.nodes {
		c := event.ProbesCounted{Slot: number, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
		for _, f := range w.flows {
			if f.From == node {
				c.Sent = append(c.Sent, train.SentProbes{Flow: f.ID(), Sent: 100})
			}
			if f.To == node {
				c.Received = append(c.Received, train.ReceivedProbes{Flow: f.ID(), Count: 100})
			}
		}
		if change(node, &c) {
			w.Counted(node, c, begin(number))
		}
	}
	transitions = describe(w.Judge(number, begin(number+1)))
	for _, a := range w.Unhealthy(number) {
		unhealthy += fmt.Sprintf("%s %s %.0f;", a.Node, a.Why, a.BehindSeconds)
	}
	return transitions, unhealthy
}

// fromLate makes the probes of a node arrive late.
func fromLate(c *event.ProbesCounted, flows []train.Flow, from train.NodeID, seconds float64) {
	for i, r := range c.Received {
		if slices.ContainsFunc(flows, func(f train.Flow) bool { return f.ID() == r.Flow && f.From == from }) {
			c.Received[i].Count = 0
			c.Late = append(c.Late, train.LateProbes{Flow: r.Flow, BehindSeconds: seconds})
		}
	}
}

// An unhealthy node looks like loss on the links around it, as far as it is counted at all.
func TestAnUnhealthyNodeIsReportedAndNoLinkIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		ill  func(node train.NodeID, c *event.ProbesCounted, flows []train.Flow) bool
		want string
	}{
		"its agent is killed": {func(node train.NodeID, _ *event.ProbesCounted, _ []train.Flow) bool { return node != "b" }, "b Silent 0;"},
		"one of its two agents is killed": {func(node train.NodeID, c *event.ProbesCounted, _ []train.Flow) bool {
			if node == "b" {
				c.Received = nil
			}
			return true
		}, "b Silent 0;"},
		"its agent is stopped, and goes on now and then": {func(node train.NodeID, c *event.ProbesCounted, _ []train.Flow) bool {
			if node == "b" {
				*c = event.ProbesCounted{Slot: c.Slot, Stalled: true}
			}
			return true
		}, "b Stalled 0;"},
		"its agent is stopped, and what came meanwhile is late": {func(node train.NodeID, c *event.ProbesCounted, _ []train.Flow) bool {
			if node != "b" {
				return true
			}
			var late []train.LateProbes
			for _, r := range c.Received {
				late = append(late, train.LateProbes{Flow: r.Flow, BehindSeconds: 40})
			}
			if c.Late = late; c.Slot%2 == 0 {
				*c = event.ProbesCounted{Slot: c.Slot, Stalled: true, Late: late}
			}
			return true
		}, "b Stalled 0;"},
		"its clock is behind, by less than a slot": {func(_ train.NodeID, c *event.ProbesCounted, flows []train.Flow) bool {
			fromLate(c, flows, "b", 5)
			return true
		}, "b ClockSkew 5;"},
		"its clock is behind, and its reports come too late": {func(node train.NodeID, c *event.ProbesCounted, flows []train.Flow) bool {
			fromLate(c, flows, "b", 40)
			return node != "b"
		}, "b ClockSkew 40;"},
		"its clock is ahead, and its reports are of slots to come": {func(node train.NodeID, c *event.ProbesCounted, flows []train.Flow) bool {
			fromLate(c, flows, "b", -70)
			return node != "b"
		}, "b ClockSkew -70;"},
		"it receives late from nodes whose clocks are behind": {func(node train.NodeID, c *event.ProbesCounted, flows []train.Flow) bool {
			if node == "b" {
				fromLate(c, flows, "a", 30)
				fromLate(c, flows, "c", 30)
			}
			return true
		}, "b ClockSkew -30;"},
	} {
		w := newTriangle()
		slot := int64(100)
		next := func(ill bool) string {
			slot++
			transitions, unhealthy := w.reportAll(slot, func(node train.NodeID, counted *event.ProbesCounted) bool {
				return !ill || c.ill(node, counted, w.flows)
			})
			if transitions != "" {
				t.Errorf("%s: %s", name, transitions)
			}
			return unhealthy
		}
		for range 4 {
			if got := next(false); got != "" {
				t.Errorf("%s: before: %s", name, got)
			}
		}
		last := ""
		for range 8 {
			last = next(true)
		}
		if last != c.want {
			t.Errorf("%s: %q, want %q", name, last, c.want)
		}
		for range 3 {
			last = next(false)
		}
		if last != "" {
			t.Errorf("%s: after: %s", name, last)
		}
	}
}

func TestAServiceWithoutReportsAccusesNoNode(t *testing.T) {
	w := newTriangle()
	for slot := range int64(8) {
		if transitions, unhealthy := w.reportAll(100+slot, func(train.NodeID, *event.ProbesCounted) bool { return slot < 4 }); transitions != "" || unhealthy != "" {
			t.Errorf("slot %d: %s, %s", slot, transitions, unhealthy)
		}
	}
}

func TestANodeThatAnotherOneKeptWaitingHasNoWrongClock(t *testing.T) {
	w := newTriangle()
	w.Use("a", &train.Pinglist{Probes: w.flows[:1]}) // to b
	w.Use("b", &train.Pinglist{})
	w.Use("c", nil)
	for slot := int64(100); slot < 106; slot++ {
		_, unhealthy := w.reportAll(slot, func(node train.NodeID, c *event.ProbesCounted) bool {
			if node == "b" && slot > 103 {
				*c = event.ProbesCounted{Slot: slot, Stalled: true, Late: []train.LateProbes{{Flow: w.flows[0].ID(), BehindSeconds: 40}}}
			}
			return true
		})
		if want := map[bool]string{true: "b Stalled 0;"}[slot > 103]; unhealthy != want {
			t.Errorf("slot %d: %q, want %q", slot, unhealthy, want)
		}
	}
}

// only restricts probing to some flows of the mesh.
func (w *mesh) only(flows ...train.Flow) *mesh {
	w.flows = flows
	for _, node := range w.nodes {
		list := train.Pinglist{}
		for _, f := range flows {
			if f.From == node {
				list.Probes = append(list.Probes, f)
			}
		}
		w.Use(node, &list)
	}
	return w
}

func TestAWrongClockAccusesNobodyElse(t *testing.T) {
	between := func(from, to train.NodeID) train.Flow {
		all := newTriangle().flows
		return all[slices.IndexFunc(all, func(f train.Flow) bool { return f.From == from && f.To == to })]
	}
	for name, c := range map[string]struct {
		flows   []train.Flow
		seconds float64
		silent  bool
		want    string
	}{
		"the only node that probes others":                {[]train.Flow{between("b", "a"), between("b", "c")}, 5, false, "b ClockSkew 5;"},
		"the only one, and its reports come too late":     {[]train.Flow{between("b", "a"), between("b", "c")}, 40, true, "b ClockSkew 40;"},
		"one of two nodes, and its reports come too late": {[]train.Flow{between("b", "a"), between("a", "b")}, 40, true, "b ClockSkew 40;"},
		"one of two nodes, and it is unknown which":       {[]train.Flow{between("b", "a"), between("a", "b")}, 5, false, "a ClockSkew -5;b ClockSkew 5;"},
	} {
		w, last := newTriangle().only(c.flows...), ""
		for slot := int64(100); slot < 112; slot++ {
			_, last = w.reportAll(slot, func(node train.NodeID, counted *event.ProbesCounted) bool {
				if slot < 104 {
					return true
				}
				fromLate(counted, w.flows, "b", c.seconds)
				return node != "b" || !c.silent
			})
		}
		if last != c.want {
			t.Errorf("%s: %q, want %q", name, last, c.want)
		}
	}
}
