package planner

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func TestTenThousandJobsArePlannedInOneMessage(t *testing.T) {
	const nodes, devices = 1250, 8
	b := newBench(t)
	l := newLoop(t, b, "planner")
	for i := range nodes {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012d", i)), SeenAt: time.Now()}
		for d := range devices {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("GPU-%08x-6ba7-b811-9dad-11d180b4%04d", d, i)), Kind: train.KindGPU})
		}
		l.cache.observeNode(time.Now(), bus.Entry[train.Node]{Key: string(n.ID), Value: n}, false)
	}
	for i := range nodes * devices {
		j := admitted(train.JobID(fmt.Sprintf("01KAJQ7R%018d", i)), 1)
		l.cache.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false)
	}
	if err := l.round(b.ctx); err != nil {
		t.Fatal(err)
	}
	in := <-l.recorder.queue
	l.recorder.store(b.ctx, in)
	published, err := decision.PublishedPlan(b.ctx, b.bus, in)
	if err != nil {
		t.Fatal(err)
	}
	if len(published) <= event.MaxBodyBytes {
		t.Errorf("a plan of %d bytes is no test of large ones", len(published))
	}
	decided, err := event.Decode[event.PlanDecided](published)
	all := nodes*devices + 1 // newLoop knows one job and one device
	if err != nil || len(decided.Allocations) != all {
		t.Fatalf("%d of %d jobs are planned: %v", len(decided.Allocations), all, err)
	}
	again, err := decision.ReadInput(b.ctx, b.bus, decided.Generation)
	if err != nil {
		t.Fatal(err)
	}
	if replayed, err := decision.EncodePlan(again.Decide(l.policy)); err != nil || !bytes.Equal(replayed, published) {
		t.Errorf("the recorded input gives another plan than the published one (error %v)", err)
	}
	// A planner that comes later finds it.
	other := newLoop(t, b, "planner")
	if err := other.load(b.ctx); err != nil || len(other.last.Allocations) != all {
		t.Errorf("another planner reads %d allocations: %v", len(other.last.Allocations), err)
	}
}

func TestAPlanThatIsTooLargeLeavesTheOneBefore(t *testing.T) {
	b := newBench(t)
	l := newLoop(t, b, "planner")
	if err := l.load(b.ctx); err != nil {
		t.Fatal(err)
	}
	small := train.Plan{Generation: 1, Allocations: []train.Allocation{{Job: "j", Node: "a", Devices: []train.DeviceID{"cpu:0"}}}}
	if err := l.publish(b.ctx, small); err != nil {
		t.Fatal(err)
	}
	node := train.NodeID(strings.Repeat("n", 1000))
	large := train.Plan{Generation: 2}
	for i := range event.MaxPlanBytes / len(node) {
		large.Allocations = append(large.Allocations, train.Allocation{Job: train.JobID(fmt.Sprintf("j%d", i)), Node: node})
	}
	if err := l.publish(b.ctx, large); !errors.Is(err, event.ErrTooLarge) {
		t.Fatalf("a plan that is too large: %v", err)
	}
	if err := l.load(b.ctx); err != nil || l.last.Generation != 1 || len(l.last.Allocations) != 1 {
		t.Errorf("the plan that stands is %d of %d allocations: %v", l.last.Generation, len(l.last.Allocations), err)
	}
}

// What an experiment wants of a job's devices is known to the next decision, and a wish that is taken back is not.
func TestAPlanFollowsTheSizeThatAnExperimentWants(t *testing.T) {
	known, now := newCache(), time.Now()
	n := train.Node{ID: "a", SeenAt: now, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU}}}
	known.observeNode(now, bus.Entry[train.Node]{Key: "a", Value: n}, false)
	known.observeJob(bus.Entry[*train.Job]{Key: "trial", Value: new(admitted("trial", 1))}, false)
	for _, devices := range []int{1, 2, 1} {
		wish := train.Setting{Job: "trial", Values: map[string]float64{train.SettingDevices: float64(devices)}, BatchDevices: devices}
		noting(known, known.wishes)(bus.Entry[train.Setting]{Key: "trial", Value: wish}, devices == 1)
		s := known.state(now, train.Plan{}, true, plan.State{})
		if a, found := plan.Decide(s, plan.FIFO{}).Find("trial"); !found || len(a.Devices) != devices {
			t.Errorf("%d devices are wanted, planned are %v", devices, a.Devices)
		}
		if got := s.Jobs[0].BatchDevices; devices > 1 && got != devices || devices == 1 && got != 0 {
			t.Errorf("%d devices are wanted, and its batch is meant on %d", devices, got)
		}
	}
}
