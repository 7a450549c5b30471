package planner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// BenchmarkPods is one round of the planner in a cluster of 1,000 nodes of two GPUs: the state, the decision, and the
// answers. 1,000 pods of no job ask, each with the 420 nodes that a scheduler looks at. Jobs are on half of the GPUs.
func BenchmarkPods(b *testing.B) {
	const nodes, pods, offered = 1000, 1000, 420
	policy, err := plan.Find(plan.DefaultPolicy)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Unix(10_000, 0)
	c := newCache()
	var ids []train.NodeID
	for i := range nodes {
		n := train.Node{ID: train.KubernetesNodeID(fmt.Sprintf("node-%04d", i)), Backend: train.BackendKubernetes, SeenAt: now}
		for k := range 2 {
			n.Devices = append(n.Devices, train.Device{
				ID: train.DeviceID(fmt.Sprint("gpu:", k)), Kind: train.KindGPU, Model: "T4", Memory: 16 * unit.GiB, Units: 16,
			})
		}
		ids, c.nodes[string(n.ID)] = append(ids, n.ID), n
	}
	for i, at := range ids {
		id := train.JobID(fmt.Sprintf("job-%04d", i))
		j := admitted(id, 1)
		j.State, j.Spec.Image, j.Spec.AllowSharing, j.Spec.ShareAcrossTenants, j.Spec.EstimatedMemoryMiB = train.StateRunning, fmt.Sprint("image-", i%20), true, true, 4<<10
		c.jobs[string(id)] = &j
		c.observeAttempt(bus.Entry[train.Attempt]{Key: string(id), Value: train.Attempt{
			Job: id, Number: 1, Backend: train.BackendKubernetes, Node: at, Devices: []train.DeviceID{"gpu:0"}, Memory: 4 * unit.GiB, Phase: train.PhaseRunning, StartedAt: now,
		}}, false)
	}
	for i := range pods {
		p := train.PlainPod{
			UID: fmt.Sprint("uid-", i), Namespace: "default", Name: fmt.Sprint("pod-", i), Image: fmt.Sprint("image-", i%30), Memory: unit.Bytes(2+i%8) * unit.GiB,
			CreatedAt: now.Add(time.Duration(i) * time.Millisecond),
		}
		from := i * 7 % (nodes - offered)
		c.asking[p.UID] = &asking{request: rpc.PodRequest{Pod: p, Nodes: slices.Clone(ids[from : from+offered])}, at: now}
	}
	placed := 0
	for b.Loop() {
		for _, a := range c.asking {
			a.answers = []chan rpc.PodAnswer{make(chan rpc.PodAnswer, 1)}
		}
		p := plan.Decide(c.state(now, train.Plan{}, false, plan.State{}), policy)
		placed = len(c.placeable(p, now))
		c.answerAll(p, now)
	}
	b.ReportMetric(float64(placed), "placed")
}
