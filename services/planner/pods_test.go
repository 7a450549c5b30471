package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// podBench is a planner with nodes of GPUs and a scheduler that asks it about pods.
type podBench struct {
	*bench
	attempts *bus.KV[train.Attempt]
	placed   *bus.KV[train.PlacedPod]
}

func newPodBench(t *testing.T) podBench {
	b := newBench(t)
	return podBench{b, openKV(b, contract.Attempts), openKV(b, contract.PlacedPods)}
}

// gpus writes the record of a node with GPUs of 16 GiB. pods are those that its agent sees, by the place of the GPU.
func (b podBench) gpus(id train.NodeID, count int, pods map[int][]string) {
	b.t.Helper()
	n := train.Node{ID: id, Name: string(id), Backend: train.BackendKubernetes, SeenAt: time.Now()}
	for i := range count {
		n.Devices = append(n.Devices, train.Device{
			ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU, Model: "simulated", Memory: 16 * unit.GiB, Units: 16,
			Enforcement: train.EnforcedByAdvice, Pods: pods[i],
		})
	}
	put(b.bench, b.nodes, string(id), n)
}

// runs writes the records of a job that trains on a GPU of node a and shares it.
func (b podBench) runs(id train.JobID, device train.DeviceID, gib int64, image string) {
	b.t.Helper()
	j := admitted(id, 1)
	j.State, j.Spec.Device, j.Spec.Image, j.Spec.AllowSharing, j.Spec.ShareAcrossTenants, j.Spec.EstimatedMemoryMiB = train.StateRunning, train.KindGPU, image, true, true, gib<<10
	put(b.bench, b.attempts, string(id), train.Attempt{
		Job: id, Number: 1, Backend: train.BackendKubernetes, Node: "a", Devices: []train.DeviceID{device}, Memory: unit.Bytes(gib) * unit.GiB, Phase: train.PhaseRunning, StartedAt: time.Now(),
	})
	put(b.bench, b.jobs, string(id), j)
}

func podOf(name string, gib unit.Bytes) train.PlainPod {
	return train.PlainPod{UID: "uid-" + name, Namespace: "default", Name: name, Image: name, Memory: gib * unit.GiB, CreatedAt: time.Unix(100, 0)}
}

func (b podBench) ask(p train.PlainPod, nodes ...train.NodeID) rpc.PodAnswer {
	b.t.Helper()
	answer, err := bus.Ask[rpc.PodRequest, rpc.PodAnswer](b.ctx, b.bus, rpc.PodSubject, rpc.PodRequest{Pod: p, Nodes: nodes})
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// until asks until an answer fits, as a scheduler does.
func (b podBench) until(what string, p train.PlainPod, nodes []train.NodeID, fits func(rpc.PodAnswer) bool) rpc.PodAnswer {
	b.t.Helper()
	var answer rpc.PodAnswer
	var err error
	for range tick.Every(b.ctx, 20*time.Millisecond) {
		answer, err = bus.Ask[rpc.PodRequest, rpc.PodAnswer](b.ctx, b.bus, rpc.PodSubject, rpc.PodRequest{Pod: p, Nodes: nodes})
		if err == nil && fits(answer) {
			return answer
		}
	}
	b.t.Fatalf("%s: never; the last answer is %+v, error %v", what, answer, err)
	return answer
}

func placed(a rpc.PodAnswer) bool { return a.Node != "" }

// A pod gets the GPU beside the job that it slows least, on a node where its scheduler would start it.
func TestAPodGetsMemoryBesideTheJobThatItSlowsLeast(t *testing.T) {
	b := newPodBench(t)
	b.gpus("a", 2, nil)
	b.runs("calm", "gpu:1", 4, "calm")
	b.runs("rough", "gpu:0", 4, "rough")
	mine := curve.KindOf(new(podOf("p", 8)).Spec())
	known := curve.NewInterferenceRecord("simulated", "", nil)
	for image, rate := range map[string]float64{"calm": 1.02, "rough": 2.4} {
		spec := admitted("x", 1).Spec
		spec.Image = image
		other := curve.KindOf(spec)
		for range 5 {
			known.MeasuredOn(other, nil, 1)
			known.MeasuredOn(mine, nil, 1)
			known.MeasuredOn(other, [][]curve.Kind{{mine}}, rate)
			known.MeasuredOn(mine, [][]curve.Kind{{other}}, rate)
		}
	}
	device := train.Device{ID: "gpu:0", Kind: train.KindGPU, Model: "simulated"}
	put(b.bench, openKV(b.bench, contract.Interference), curve.InterferenceKey(&device), *known)
	b.serve()

	pod := podOf("p", 8)
	if a := b.until("a reason", pod, []train.NodeID{"b"}, func(a rpc.PodAnswer) bool { return a.Reason.Message != "" }); placed(a) {
		t.Fatalf("placed where its scheduler would not start it: %+v", a)
	}
	if a := b.until("a place", pod, []train.NodeID{"a", "b"}, placed); a.Node != "a" || a.Device != "gpu:1" {
		t.Errorf("the pod is placed on %s of %s, want gpu:1 beside the calm job", a.Device, a.Node)
	}
	if again := b.ask(pod, "a"); again.Device != "gpu:1" {
		t.Errorf("asked again: %+v", again)
	}
	if a := b.until("a reason", podOf("q", 8), []train.NodeID{"a"}, func(a rpc.PodAnswer) bool { return a.Reason.Message != "" }); placed(a) || !strings.Contains(a.Reason.Message, "rough at") {
		t.Errorf("a second pod is placed beside the job that it slows: %+v", a)
	}
}

// The memory of pods is in the plan like that of jobs, so it is given once. It comes back when the node's agent no
// longer sees the pod.
func TestTheMemoryOfAPodIsGivenOnce(t *testing.T) {
	b := newPodBench(t)
	b.gpus("a", 1, nil)
	b.serve()
	on := []train.NodeID{"a"}
	b.until("a place", podOf("p", 9), on, placed)
	b.until("a second place", podOf("q", 6), on, placed)
	waits := b.until("a reason", podOf("r", 2), on, func(a rpc.PodAnswer) bool { return a.Reason.Message != "" })
	if placed(waits) || !strings.Contains(waits.Reason.Message, "1.0 GiB") {
		t.Errorf("there is no room for the third: %+v", waits)
	}
	b.gpus("a", 1, map[int][]string{0: {"default/p"}})
	b.seen("uid-p", func(p train.PlacedPod, there bool) bool { return there && !p.SeenAt.IsZero() })
	b.gpus("a", 1, nil)
	if a := b.ask(podOf("r", 2), "a"); placed(a) {
		t.Error("one record without the pod may be that of an agent that has just started")
	}
	b.gpus("a", 1, nil)
	b.until("room", podOf("r", 2), on, placed)
	b.seen("uid-p", func(_ train.PlacedPod, there bool) bool { return !there })
}

func (b podBench) seen(uid string, fits func(train.PlacedPod, bool) bool) {
	b.t.Helper()
	for range tick.Every(b.ctx, 20*time.Millisecond) {
		e, err := b.placed.Get(b.ctx, uid)
		if fits(e.Value, err == nil) {
			return
		}
	}
	b.t.Fatalf("the record of %s never was as wanted", uid)
}

// What is booked outlives its planner, and a job does not get it.
func TestAPlannerKeepsWhatTheOneBeforeItHasBooked(t *testing.T) {
	b := newPodBench(t)
	b.gpus("a", 1, nil)
	stop := b.serve()
	b.until("a place", podOf("p", 4), []train.NodeID{"a"}, placed)
	stop()
	whole := admitted("whole", 1)
	whole.Spec.Device = train.KindGPU
	put(b.bench, b.jobs, "whole", whole)
	b.serve()
	plans := b.await(event.StreamPlans, func(m bus.Message) bool {
		return slices.ContainsFunc(decode[event.PlanDecided](t, m).Waiting, func(w train.Waiting) bool { return w.Job == "whole" })
	})
	p := decode[event.PlanDecided](t, plans[len(plans)-1])
	if a, has := p.Find("pod.uid-p"); !has || !slices.Equal(a.Devices, []train.DeviceID{"gpu:0"}) || a.Memory != 4*unit.GiB {
		t.Errorf("the plan has %+v", p.Allocations)
	}
	if _, has := p.Find("whole"); has {
		t.Error("a job gets the GPU of the pod")
	}
}

// A GPU is left alone while a pod uses memory of it that nobody has booked.
func TestMemoryThatNobodyBooked(t *testing.T) {
	b := newPodBench(t)
	b.gpus("a", 1, map[int][]string{0: {"default/stranger"}})
	b.serve()
	a := b.until("a reason", podOf("p", 1), []train.NodeID{"a"}, func(a rpc.PodAnswer) bool { return a.Reason.Code == train.DeviceHeld })
	if !strings.Contains(a.Reason.Message, "default/stranger") {
		t.Errorf("%+v", a)
	}
}
