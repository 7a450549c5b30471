package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestTop(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	picture, err := rowsOf(t.Context(), s.Yard(clitest.Noon), clitest.Noon, newTopNode)
	if err != nil {
		t.Fatal(err)
	}
	if err := printTop(s.Console, picture); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	clitest.Golden(t, "top.txt", out)
	s.Output = "json"
	if err := printTop(s.Console, picture); err != nil {
		t.Fatal(err)
	}
	out, _ = s.Printed()
	clitest.Golden(t, "top.json", out)
}

func TestTopOfNothing(t *testing.T) {
	s := clitest.New(t, Commands()...)
	if code, out, stderr := s.Run("top"); code != exit.OK || out != "" || !strings.Contains(stderr, "no nodes") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if code, out, _ := s.Run("top", "-o", "json"); code != exit.OK || out != "[]\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, stderr := s.Run("top", "-w"); code != exit.Usage || !strings.Contains(stderr, "terminal") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// Old meters are no present power, and attempts that have ended hold nothing.
func TestTopTellsThePresent(t *testing.T) {
	s := clitest.New(t)
	put := func(job train.JobID, node train.NodeID, phase train.Phase) {
		clitest.Put(t, s.Bus, contract.Attempts, string(job), train.Attempt{Job: job, Node: node, Devices: []train.DeviceID{"cpu:0"}, Phase: phase, Number: 1, Published: phase == train.PhaseExited})
	}
	clitest.Put(t, s.Bus, contract.Nodes, "a", train.Node{ID: "a", SeenAt: clitest.Ago(time.Second), Devices: []train.Device{{ID: "cpu:0"}}})
	put("gone", "a", train.PhaseExited)
	put("elsewhere", "b", train.PhaseRunning)
	put("two", "a", train.PhaseClaimed)
	put("one", "a", train.PhaseRunning)
	measure := func(number string, from, to time.Duration) topNode {
		clitest.Publish(t, s.Bus, event.Fact{Subject: event.Subject{Entity: "energy", ID: "a", Fact: event.FactMeasured, Version: 1}, Key: "node/a/boot/" + number, Body: event.Measured{
			Node: "a", From: clitest.Ago(from), To: clitest.Ago(to), Meters: []event.Meter{{Component: "cpu", Method: "modelled", Energy: 600 * unit.Joule}},
		}})
		picture, err := rowsOf(t.Context(), s.Yard(clitest.Noon), clitest.Noon, newTopNode)
		if err != nil || len(picture) != 1 {
			t.Fatalf("%+v, %v", picture, err)
		}
		return picture[0]
	}
	if n := measure("1", 10*time.Minute, 9*time.Minute); n.Power != nil || !n.Alive || len(n.Devices[0].Jobs) != 2 || n.Devices[0].Jobs[0].ID != "one" {
		t.Errorf("%+v", n)
	}
	if n := measure("2", 4*time.Second, 2*time.Second); n.Power == nil || !strings.Contains(n.line(), "~300.0 W") {
		t.Errorf("%+v %q", n, n.line())
	}
}
