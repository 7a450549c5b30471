package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
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

// A gang of b over two nodes comes beside one of a, if the quota of b leaves it the devices: they count for both
// tenants. So the gang keeps them when that of a has ended.
func TestAGuestCountsAgainstTheQuotaOfItsTenant(t *testing.T) {
	for _, policy := range Policies() {
		for quota, runs := range map[int]bool{1: false, 2: true} {
			s := State{Now: time.Unix(1000, 0), Tuning: Tuning{AtEpochs: true}, Quotas: map[string]int{"b": quota}}
			for _, id := range []train.NodeID{"n0", "n1"} {
				s.Nodes = append(s.Nodes, train.Node{ID: id, Backend: train.BackendKubernetes, Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Memory: 16 * unit.GiB}}})
			}
			for i, tenant := range []string{"a", "b"} {
				s.Jobs = append(s.Jobs, Job{ID: train.JobID(tenant), Priority: 50, SubmittedAt: time.Unix(int64(i), 0), Spec: train.Spec{
					Tenant: tenant, ShareAcrossTenants: true, AllowSharing: true, EstimatedMemoryMiB: 4 << 10, Command: []string{tenant},
					MinDevices: 2, MaxDevices: 2, MaxEpochs: 10, BatchSize: 32, TrainingSetSize: 320,
				}})
			}
			p := Decide(s, policy)
			if b, has := p.Find("b"); has != runs || runs && (b.Beside != "a" || len(b.Parts) != 2) {
				t.Errorf("%s, quota %d: b runs: %v:\n%s", policy.Name(), quota, has, words(p))
			}
			if !runs {
				if why := p.Waiting[0].Blockers[0]; why.Code != explain.QuotaReached {
					t.Errorf("%s: b waits: %v", policy.Name(), why)
				}
				continue
			}
			for i := range s.Jobs {
				a, _ := p.Find(s.Jobs[i].ID)
				h := holdingOf(a)
				s.Jobs[i].Planned, s.Jobs[i].Running = h, &Running{Holding: *h, Seconds: 100, Epochs: 2, Spoke: true}
			}
			s.Jobs = s.Jobs[1:]
			if b, has := Decide(s, policy).Find("b"); !has || b.Reason.Code != explain.Kept {
				t.Errorf("%s: after the end of a: %v %+v", policy.Name(), has, b.Reason)
			}
		}
	}
}
