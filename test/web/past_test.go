package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// slide moves the slider of the yard.
func (y *yard) slide(minutesAgo int) {
	y.t.Helper()
	y.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		`{ const e = document.querySelector("input[type=range]"); e.value = %d; e.dispatchEvent(new Event("input", { bubbles: true })) }`, -minutesAgo)))
}

// The slider shows who had the devices by the plan of that time, and what the meters showed. It comes back to the
// present.
func TestTheYardLooksBack(t *testing.T) {
	y := newYard(t)
	y.submit("now", "--name", "present", "--", "sleep", "600")
	y.until("it runs", func() bool {
		return y.job("now").State == train.StateRunning || y.job("now").State == train.StateProfiling
	})
	b := y.bus()
	nodes, err := bus.OpenKV(y.ctx, b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	all, err := nodes.List(y.ctx)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d nodes, %v", len(all), err)
	}
	use := 0.42
	for ago := range 8 { // whichever of them the slider meets
		node, at := all[0].Value.ID, time.Now().Add(-time.Duration(ago+1)*time.Minute)
		put(t, b, contract.Minutes, contract.MinuteKey(node, at), contract.Minute{
			Node: node, At: at.Truncate(time.Minute), Seconds: 60, Power: unit.Watts(777), Devices: map[train.DeviceID]contract.DeviceMinute{"gpu:0": {Power: unit.Watts(321), Use: &use}},
		})
	}
	y.open(y.command("open"))
	y.shows("present", "Nothing waits.")
	y.slide(5)
	y.shows("777 W then", "321 W", "42 %", "Queue then", "5 m 00 s ago")
	y.slide(600)
	y.shows("Nothing is kept of that time.", "10 h 00 m ago")
	y.press("Back to now")
	y.shows("1 running", "present", "Nothing waits.")
}

// The page of the plan says what the newest plan changes of the one before, and what other policies would do.
func TestThePlanPageCompares(t *testing.T) {
	y := newYard(t)
	y.submit("holds", "--name", "holder", "--devices", "2", "--estimated-hours", "2", "--", "sleep", "600")
	y.until("it runs", func() bool { return len(y.job("holds").Devices) == 2 })
	y.submit("next", "--name", "patient", "--estimated-hours", "3", "--", "sleep", "600")
	y.open(y.command("open"))
	y.at("#/plan")
	y.shows("What this plan changes", "compared with plan", "patient")
	y.press("Ask the planner")
	y.shows("fifo", "srtf", "starts at once", "one decision of each policy")
}
