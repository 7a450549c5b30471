package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// machine is a node with devices of a kind, cores and memory.
func machine(id train.NodeID, kind train.DeviceKind, devices, cores int, memory unit.Bytes) train.Node {
	n := train.Node{ID: id, Cores: cores, Memory: memory}
	for i := range devices {
		n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("%s:%d", kind, i)), Kind: kind, Core: i})
	}
	return n
}

func served(id train.JobID, least, most, cores int, mib int64) Job {
	return Job{ID: id, Priority: 50, SubmittedAt: time.Unix(int64(len(id)), 0), Spec: train.Spec{
		MinDevices: least, MaxDevices: most, BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 10, Strategy: train.StrategyParameterServer,
		ParameterServers: &train.ServersSpec{Max: 2, Cores: cores, MemoryMiB: mib},
	}}
}

// TestEveryPolicySpansNodes: a gang larger than a node gets several under each policy, if the back end can do that.
func TestEveryPolicySpansNodes(t *testing.T) {
	for name, policy := range Policies() {
		wide := served("wide", 8, 8, 1, 0)
		wide.Spec.Strategy, wide.Spec.ParameterServers = train.StrategyAllReduce, nil
		s := State{Now: time.Unix(1000, 0), Tuning: Tuning{AtEpochs: true}, Jobs: []Job{wide}}
		s.Nodes = []train.Node{machine("a", train.KindGPU, 4, 8, 0), machine("b", train.KindGPU, 4, 8, 0)}
		if a, has := Decide(s, policy).Find("wide"); !has || len(a.Parts) != 2 || len(train.AllDevices(a.Parts)) != 8 {
			t.Errorf("%s: %+v, want 8 devices of 2 nodes", name, a)
		}
	}
}

// TestServersFindTheNodeWithRoom: every policy puts a job where its servers have the cores, even if another node would
// suit its workers better, and leaves CPU slots for their cores.
func TestServersFindTheNodeWithRoom(t *testing.T) {
	for name, policy := range Policies() {
		s := State{Now: time.Unix(1000, 0), Tuning: Tuning{AtEpochs: true, OneNode: true}, Jobs: []Job{served("job", 2, 2, 3, 0)}}
		s.Nodes = []train.Node{machine("tight", train.KindGPU, 2, 2, 0), machine("wide", train.KindGPU, 4, 8, 0)}
		p := Decide(s, policy)
		if a, has := p.Find("job"); !has || a.Node != "wide" || a.ServerCount() < 1 {
			t.Errorf("%s: %s", name, words(p))
		}
		s.Jobs = []Job{served("job", 1, 4, 1, 0)}
		s.Nodes = []train.Node{machine("slots", train.KindCPU, 4, 4, 0)}
		p = Decide(s, policy)
		if a, has := p.Find("job"); !has || len(a.Devices) < 2 || len(a.Devices)+a.ServerCount() > 4 || a.ServerCount() < 1 {
			t.Errorf("%s: %s, want 4 cores shared out to workers and servers", name, words(p))
		}
		if a := p.Allocations; len(a) != 1 {
			continue
		}
		// What the servers hold is no slot for others.
		s.Jobs = append(s.Jobs, served("late", 4, 4, 1, 0))
		s.Jobs[1].Spec.Strategy, s.Jobs[1].Spec.ParameterServers, s.Jobs[1].Spec.MinDevices = "", nil, 1
		taken := 0
		for _, a := range Decide(s, policy).Allocations {
			taken += len(a.Devices) + a.ServerCount()
		}
		if taken > 4 {
			t.Errorf("%s: %d of 4 cores given", name, taken)
		}
	}
}

// TestWhyServersDoNotFit: a job that waits for its server says so, under every policy, and one that can never run stops
// nobody.
func TestWhyServersDoNotFit(t *testing.T) {
	for name, policy := range Policies() {
		for _, c := range []struct {
			node train.Node
			job  Job
			want string
		}{
			{machine("n", train.KindGPU, 4, 8, 0), served("job", 1, 1, 40, 0), "DevicesTooFew: needs 1 parameter server of 40 cores, and the largest node has 8 cores"},
			{
				machine("n", train.KindGPU, 4, 8, 16*unit.GiB), served("job", 1, 1, 1, 1<<15),
				"DevicesTooFew: needs 1 parameter server of 1 core and 32.0 GiB, and the largest node has 16.0 GiB",
			},
			{
				machine("n", train.KindCPU, 4, 4, 0), served("job", 4, 4, 1, 0),
				"DevicesTooFew: needs 4 devices and 1 parameter server of 1 core, and no node has room for the server beside its workers",
			},
			{
				machine("n", train.KindGPU, 4, 2, 0), served("job", 2, 2, 2, 0),
				"WaitingForServer: needs 2 devices and 1 parameter server of 2 cores on one node; 3 devices are free, and no node with a free device has more than 1 core left",
			},
			{
				machine("n", train.KindGPU, 4, 8, 12*unit.GiB), served("job", 2, 2, 1, 1<<13),
				"WaitingForServer: needs 2 devices and 1 parameter server of 1 core and 8.0 GiB on one node; 3 devices are free, and no node with a free device has more than 4.0 GiB left",
			},
		} {
			first := served("x", 1, 1, 1, c.job.Spec.ParameterServers.MemoryMiB)
			first.Spec.ParameterServers.Max, first.Priority = 1, 60
			s := State{Now: time.Unix(1000, 0), Tuning: Tuning{AtEpochs: true, OneNode: true}, Nodes: []train.Node{c.node}, Jobs: []Job{first, c.job}}
			later := served("plain", 1, 1, 1, 0)
			later.Spec.Strategy, later.Spec.ParameterServers = "", nil
			if strings.HasPrefix(c.want, "DevicesTooFew") {
				s.Jobs = append(s.Jobs[1:], later)
			}
			p := Decide(s, policy)
			if got := p.Waiting; len(got) != 1 || got[0].Job != "job" || got[0].Blockers[0].Code+": "+got[0].Blockers[0].Message != c.want {
				t.Errorf("%s: %s\nwant %s", name, words(p), c.want)
			}
		}
	}
}
