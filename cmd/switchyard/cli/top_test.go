package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestTop(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	picture, err := takePicture(t.Context(), s.bus, noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.printTop(picture); err != nil {
		t.Fatal(err)
	}
	out, _ := s.printed()
	golden(t, "top.txt", out)
	s.output = "json"
	if err := s.printTop(picture); err != nil {
		t.Fatal(err)
	}
	out, _ = s.printed()
	golden(t, "top.json", out)
}

func TestTopOfNothing(t *testing.T) {
	s := newTerminal(t)
	if code, out, stderr := s.run("top"); code != ExitOK || out != "" || !strings.Contains(stderr, "no nodes") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if code, out, _ := s.run("top", "-o", "json"); code != ExitOK || out != "[]\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, stderr := s.run("top", "-w"); code != ExitUsage || !strings.Contains(stderr, "terminal") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// Old meters are no present power, and attempts that have ended hold nothing.
func TestTopTellsThePresent(t *testing.T) {
	node := train.Node{ID: "a", SeenAt: ago(time.Second), Devices: []train.Device{{ID: "cpu:0"}}}
	measured := event.Measured{From: ago(10 * time.Minute), To: ago(9 * time.Minute), Meters: []event.Meter{{Component: "cpu", Method: "modelled", Energy: 600 * unit.Joule}}}
	held := holders([]train.Attempt{
		{Job: "gone", Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseExited},
		{Job: "elsewhere", Node: "b", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseRunning},
		{Job: "two", Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseClaimed},
		{Job: "one", Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseRunning},
	}, nil, nil)
	n := newTopNode(node, measured, held, noon)
	if n.Power != nil || !n.Alive || len(n.Devices[0].Jobs) != 2 || n.Devices[0].Jobs[0].ID != "one" {
		t.Errorf("%+v", n)
	}
	measured.From, measured.To = ago(4*time.Second), ago(2*time.Second)
	if n = newTopNode(node, measured, held, noon); n.Power == nil || !strings.Contains(n.line(), "~300.0 W") {
		t.Errorf("%+v %q", n, n.line())
	}
}
