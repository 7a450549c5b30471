package plan

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestMainMemoryIsGivenOnce: a node whose memory is taken starts no further job that asks for some, under every policy,
// one that asks for none is not kept, and each says why it waits.
func TestMainMemoryIsGivenOnce(t *testing.T) {
	job := func(id train.JobID, priority int, memory unit.Bytes, devices int, launch train.Launch) Job {
		j := served(id, devices, devices, 1, 0)
		j.Priority = priority
		j.Spec.Strategy, j.Spec.ParameterServers, j.Spec.Launch, j.Spec.MainMemoryMiB = "", nil, launch, int64(memory/unit.MiB)
		return j
	}
	for name, policy := range Policies() {
		for _, c := range []struct {
			title  string
			first  Job
			second Job
			want   string // why the second waits; empty if it does not
		}{
			{
				"too little is left", job("first", 60, 48*unit.GiB, 1, train.LaunchPerNode), job("job", 50, 32*unit.GiB, 1, train.LaunchPerNode),
				"WaitingForMainMemory: needs 1 device and 32.0 GiB of main memory on one node; 3 devices are free, and no node with a free device has more than 16.0 GiB left",
			},
			{"enough is left", job("first", 60, 32*unit.GiB, 1, train.LaunchPerNode), job("job", 50, 32*unit.GiB, 1, train.LaunchPerNode), ""},
			{"none is asked for", job("first", 60, 64*unit.GiB, 1, train.LaunchPerNode), job("job", 50, 0, 3, train.LaunchPerNode), ""},
			{"one process for all devices", job("first", 60, 32*unit.GiB, 1, train.LaunchPerNode), job("job", 50, 32*unit.GiB, 3, train.LaunchPerNode), ""},
			{
				"a process for each device", job("first", 60, 32*unit.GiB, 1, train.LaunchPerNode), job("job", 50, 16*unit.GiB, 3, train.LaunchPerDevice),
				"WaitingForMainMemory: needs 3 devices and 16.0 GiB of main memory for each on one node; 3 devices are free, and no node with a free device has more than 32.0 GiB left",
			},
			{
				"more than a node has", job("first", 60, 0, 1, train.LaunchPerNode), job("job", 50, 80*unit.GiB, 1, train.LaunchPerNode),
				"DevicesTooFew: needs 1 device and 80.0 GiB of main memory on one node, and the largest node has 64.0 GiB of main memory",
			},
		} {
			s := State{
				Now: time.Unix(1000, 0), Tuning: Tuning{AtEpochs: true, OneNode: true},
				Nodes: []train.Node{machine("n", train.KindGPU, 4, 8, 64*unit.GiB)}, Jobs: []Job{c.first, c.second},
			}
			p := Decide(s, policy)
			switch {
			case c.want == "" && len(p.Waiting) > 0, c.want != "" && (len(p.Waiting) != 1 || p.Waiting[0].Job != "job"):
				t.Errorf("%s, %s: %s", name, c.title, words(p))
			case c.want != "":
				if b := p.Waiting[0].Blockers[0]; b.Code+": "+b.Message != c.want {
					t.Errorf("%s, %s: %s: %s\nwant %s", name, c.title, b.Code, b.Message, c.want)
				}
			}
		}
	}
}
