package records_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// longQueue has two machines, many jobs for CPU slots, and at the end jobs of which one is for the idle GPU.
func longQueue(jobs int) records.Records {
	at := time.Unix(1000, 0)
	var all []*train.Job
	for i := range jobs {
		all = append(all, &train.Job{
			ID: train.JobID(fmt.Sprintf("j%05d", i)), State: train.StateQueued, SubmittedAt: at.Add(time.Duration(i) * time.Second),
			Spec: train.Spec{Name: "j", Device: train.KindCPU, MinDevices: 1, MaxDevices: 1, EstimatedHours: 1 + float64(i%7)},
		})
	}
	all[jobs-2].Spec.Device = train.KindGPU
	return records.Records{
		Jobs: slices.Values(all),
		Nodes: slices.Values([]train.Node{
			{ID: "c", Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU}}},
			{ID: "g", Machine: "c", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}},
		}),
	}
}

// TestTheEndOfALongQueueIsNotWeighed: a decision weighs the front of a queue and the first of each kind of request
// behind it, so that no device is left idle, and says of the others that they wait.
func TestTheEndOfALongQueueIsNotWeighed(t *testing.T) {
	const jobs = 3000
	for name, policy := range plan.Policies() {
		s := longQueue(jobs).State(time.Unix(5000, 0), train.Plan{}, true, plan.State{})
		if weighed := records.Weighed + records.WeighedOfKind + 1; len(s.Jobs) != weighed || len(s.Behind) != jobs-weighed {
			t.Fatalf("%s: %d jobs weighed and %d behind", name, len(s.Jobs), len(s.Behind))
		}
		p := plan.Decide(s, policy)
		if _, found := p.Find(train.JobID(fmt.Sprintf("j%05d", jobs-2))); !found && name != (plan.FIFO{}).Name() {
			t.Errorf("%s: the idle GPU is not given to the one job for it: %v", name, p.Allocations)
		}
		if len(p.Allocations)+len(p.Waiting) != jobs {
			t.Errorf("%s: %d jobs have devices and %d wait", name, len(p.Allocations), len(p.Waiting))
		}
		if last := p.Waiting[len(p.Waiting)-1]; last.Job != train.JobID(fmt.Sprintf("j%05d", jobs-1)) || last.Blockers[0].Code != explain.LongQueue {
			t.Errorf("%s: the last is %+v", name, last)
		}
	}
}

// TestAllThatKeepsAJobFromANodeIsPartOfItsKind: jobs that wait for main memory, for cores or for the others of their
// array leave devices idle, which later jobs get.
func TestAllThatKeepsAJobFromANodeIsPartOfItsKind(t *testing.T) {
	gpus := func(n int) (all []train.Device) {
		for i := range n {
			all = append(all, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU})
		}
		return all
	}
	for name, narrow := range map[string]func(*train.Spec){
		"main memory": func(s *train.Spec) { s.MainMemoryMiB = 400 << 10 },
		"in short":    func(s *train.Spec) { s.Memory = "400GiB" },
		"cores":       func(s *train.Spec) { s.Cores = 64 },
		"array":       func(s *train.Spec) { s.ArrayMember = &train.ArrayMember{Array: "sweep", AtOnce: 1} },
	} {
		r := longQueue(1300)
		i := 0
		for j := range r.Jobs {
			j.Spec.Device = train.KindGPU
			if i++; i <= 1100 {
				narrow(&j.Spec)
			}
		}
		r.Nodes = slices.Values([]train.Node{
			{ID: "a", Devices: gpus(1), Cores: 64, Memory: 512 << 10 * unit.MiB},
			{ID: "b", Machine: "a", Devices: gpus(8), Cores: 32, Memory: 300 << 10 * unit.MiB},
		})
		s := r.State(time.Unix(5000, 0), train.Plan{}, true, plan.State{})
		if p := plan.Decide(s, plan.Switchyard{}); len(s.Behind) == 0 || len(p.Allocations) != 9 {
			t.Errorf("%s: %d of 9 GPUs are used, %d jobs are behind", name, len(p.Allocations), len(s.Behind))
		}
	}
}

// TestWhoWaitsForOthersIsNoPartOfTheQueue: jobs that people hold, or that await others, take no place at its front.
func TestWhoWaitsForOthersIsNoPartOfTheQueue(t *testing.T) {
	r := longQueue(1500)
	i := 0
	for j := range r.Jobs {
		if i++; i <= 1400 {
			j.Wanted.State = train.WantHeld
		}
	}
	s := r.State(time.Unix(5000, 0), train.Plan{}, true, plan.State{})
	if len(s.Behind) > 0 || len(plan.Decide(s, plan.Switchyard{}).Allocations) != 3 {
		t.Errorf("%d are behind", len(s.Behind))
	}
}

// TestAPlainPolicyWeighsAll: and decides the same about a queue in which all ask for the same.
func TestAPlainPolicyWeighsAll(t *testing.T) {
	r := longQueue(3000)
	part := r.State(time.Unix(5000, 0), train.Plan{}, true, plan.State{})
	r.Whole = true
	whole := r.State(time.Unix(5000, 0), train.Plan{}, true, plan.State{})
	if len(whole.Jobs) != 3000 || len(whole.Behind) > 0 {
		t.Fatalf("%d jobs", len(whole.Jobs))
	}
	a, b := plan.Decide(part, plan.FIFO{}), plan.Decide(whole, plan.FIFO{})
	if !reflect.DeepEqual(a.Allocations, b.Allocations) {
		t.Errorf("%v, and of the whole queue %v", a.Allocations, b.Allocations)
	}
}
