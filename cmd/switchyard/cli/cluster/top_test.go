package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestTop(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	picture, err := takePicture(t.Context(), s.Bus, clitest.Noon)
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
	node := train.Node{ID: "a", SeenAt: clitest.Ago(time.Second), Devices: []train.Device{{ID: "cpu:0"}}}
	measured := event.Measured{From: clitest.Ago(10 * time.Minute), To: clitest.Ago(9 * time.Minute), Meters: []event.Meter{{Component: "cpu", Method: "modelled", Energy: 600 * unit.Joule}}}
	held := holders([]train.Attempt{
		{Job: "gone", Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseExited},
		{Job: "elsewhere", Node: "b", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseRunning},
		{Job: "two", Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseClaimed},
		{Job: "one", Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseRunning},
	}, nil, nil, train.Plan{}, clitest.Noon)
	n := newTopNode(node, measured, held, clitest.Noon)
	if n.Power != nil || !n.Alive || len(n.Devices[0].Jobs) != 2 || n.Devices[0].Jobs[0].ID != "one" {
		t.Errorf("%+v", n)
	}
	measured.From, measured.To = clitest.Ago(4*time.Second), clitest.Ago(2*time.Second)
	if n = newTopNode(node, measured, held, clitest.Noon); n.Power == nil || !strings.Contains(n.line(), "~300.0 W") {
		t.Errorf("%+v %q", n, n.line())
	}
}
