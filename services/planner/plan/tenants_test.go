package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Jobs of two tenants share the one GPU only if both allow it, and a third joins only if it may be with both.
func TestTenantsShareADeviceWhereBothAllowIt(t *testing.T) {
	type asked struct {
		tenant string
		across bool
	}
	for name, c := range map[string]struct {
		jobs []asked
		run  int
	}{
		"one tenant":                          {[]asked{{"a", false}, {"a", false}}, 2},
		"two tenants":                         {[]asked{{"a", false}, {"b", false}}, 1},
		"two, and one allows it":              {[]asked{{"a", true}, {"b", false}}, 1},
		"two, and both allow it":              {[]asked{{"a", true}, {"b", true}}, 2},
		"a guest that does not allow a third": {[]asked{{"a", true}, {"a", false}, {"b", true}}, 2},
	} {
		for _, policy := range []Policy{Switchyard{}, FIFO{}} {
			s := State{Now: time.Unix(1000, 0), Nodes: []train.Node{{ID: "n", Devices: []train.Device{
				{ID: "gpu:0", Kind: train.KindGPU, Memory: 16 * unit.GiB},
			}}}}
			for i, j := range c.jobs {
				s.Jobs = append(s.Jobs, Job{ID: train.JobID(fmt.Sprint("j", i)), Priority: 50, SubmittedAt: time.Unix(int64(i), 0), Spec: train.Spec{
					Tenant: j.tenant, ShareAcrossTenants: j.across, AllowSharing: true, EstimatedMemoryMiB: 4 << 10, Command: []string{fmt.Sprint("program", i)},
					MinDevices: 1, MaxDevices: 1, MaxEpochs: 10, BatchSize: 32, TrainingSetSize: 320,
				}})
			}
			// Those that run go on beside each other in the next plan.
			for range 3 {
				p := Decide(s, policy)
				for i := range s.Jobs {
					for _, a := range p.Allocations {
						if a.Job == s.Jobs[i].ID && s.Jobs[i].Planned == nil {
							h := Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Beside: a.Beside}
							s.Jobs[i].Planned, s.Jobs[i].Running = &h, &Running{Holding: h, Seconds: 100, Epochs: 2, Spoke: true}
						}
					}
				}
				s.Now = s.Now.Add(time.Minute)
			}
			if p := Decide(s, policy); len(p.Allocations) != c.run {
				t.Errorf("%s, %s: %d run, want %d: %+v", name, policy.Name(), len(p.Allocations), c.run, p.Waiting)
			}
		}
	}
}
