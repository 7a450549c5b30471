package simrun

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// opaque is a job that runs for some seconds.
func opaque(seconds float64, priority int) *sim.Recorded {
	spec := train.Spec{Name: "o", BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 9, MinDevices: 1, MaxDevices: 1}.WithDefaults()
	return &sim.Recorded{Spec: spec, Priority: priority, RunSeconds: seconds}
}

// simulations are one and two jobs on one device.
func simulations() []sim.Config {
	one := sim.Config{
		Workload: sim.Workload{Name: "one", Jobs: []sim.Arrival{{Name: "a", Source: opaque(8, 50)}}},
		Nodes:    sim.Nodes([]sim.Pool{{Nodes: 1, Devices: 1}}), Policy: plan.FIFO{}, IntervalSeconds: 1,
	}
	two := one
	two.Workload = sim.Workload{Name: "two", Jobs: []sim.Arrival{{Name: "a", Source: opaque(8, 50)}, {Name: "b", Source: opaque(5, 50), Seconds: 2}}}
	return []sim.Config{one, two}
}

func TestRunsAreInTheirOrderWithTheirChanges(t *testing.T) {
	var terminal strings.Builder
	runs, err := All(t.Context(), simulations(), NewBar(&terminal))
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2 || runs[0].Workload != "one" || runs[1].Workload != "two" || runs[1].Completed != 2 || len(runs[0].Ticks) == 0 {
		t.Fatalf("%+v", runs)
	}
	text, err := Timeline(runs)
	if err != nil {
		t.Fatal(err)
	}
	// a holds the device from 1 s to 9 s; b gets it with the decision after that.
	want := "policy,workload,seconds,job,devices,placement,reason\n" +
		"fifo,one,1,a,1,n00000:1,Placed\n" +
		"fifo,two,1,a,1,n00000:1,Placed\n" +
		"fifo,two,9,b,1,n00000:1,Placed\n"
	if text != want {
		t.Errorf("timeline\n%s\nwant\n%s", text, want)
	}
	if shown := terminal.String(); !strings.HasSuffix(shown, "\r\x1b[K") {
		t.Errorf("the bar is left on the terminal: %q", shown)
	}
}

func TestARunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := All(ctx, simulations(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestProgress(t *testing.T) {
	for done, want := range map[int]string{
		0: ".............................. 0 of 4 jobs", 1: "#######....................... 1 of 4 jobs, about 30s left", 4: "############################## 4 of 4 jobs",
	} {
		if got := progress(done, 4, 10*time.Second); got != want {
			t.Errorf("%d done: %q, want %q", done, got, want)
		}
	}
}
