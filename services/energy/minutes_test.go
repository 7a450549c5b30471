package energy

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// A minute that is over has the means of its intervals, each once however often it comes.
func TestAMinuteHasTheMeansOfItsIntervals(t *testing.T) {
	k := newBooks(t)
	l := open(t, k)
	busy, idle := 1.0, 0.5
	gpu := func(e unit.Energy, ratio *float64, used unit.Bytes) event.Meter {
		return event.Meter{Component: event.ComponentGPU, Device: "gpu:0", Method: "nvml_counter", Energy: e, Board: &event.Board{LimitWatts: 300, SMRatio: ratio, MemoryUsed: used}}
	}
	for i, m := range []event.Measured{
		interval("n1", "b", 58, append(cpu(20*unit.Joule, 0, 0), gpu(100*unit.Joule, &busy, 1)), event.Use{Job: "a", Component: "cpu", Work: 1}),
		interval("n1", "b", 59, append(cpu(40*unit.Joule, 0, 0), gpu(200*unit.Joule, &idle, 7))),
		interval("n1", "b", 61, cpu(unit.Joule, 0, 0)),
	} {
		for range 2 {
			if err := l.take(within(t), message(t, m, uint64(i+1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	kv, err := bus.OpenKV(within(t), k.bus, contract.Minutes)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := kv.List(within(t), contract.MinutePattern(hour))
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d minutes, error %v; want the one that is over", len(entries), err)
	}
	m := entries[0].Value
	d := m.Devices["gpu:0"]
	if !m.At.Equal(hour.Truncate(time.Minute)) || m.Seconds != 2 || m.Power != unit.Watts(180) || d.Power != unit.Watts(150) || d.MemoryUsed != 7 || d.LimitWatts != 300 {
		t.Errorf("%+v", m)
	}
	if d.Use == nil || *d.Use != 0.75 || m.Node != train.NodeID("n1") {
		t.Errorf("use %v of %s", d.Use, m.Node)
	}
}
