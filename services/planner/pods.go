package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

const (
	// podPatience bounds the wait for the plan that answers a request. The scheduler of the cluster waits meanwhile.
	podPatience = 3 * time.Second
	// podAsks is how long a pod takes part in plans after its last request: the scheduler asks again after 10 s at most.
	podAsks = time.Minute
	// podArrives is how long memory stays booked for a pod that its node's agent has not seen.
	podArrives = 2 * time.Minute
	// mostAsking bounds the pods that wait.
	mostAsking = 10_000
)

// pods answers where pods of no job are to run, and keeps the memory that is booked for them. The plan decides: to it
// such a pod is a job, so what it gets is booked in the same ledger. Placing happens between two decisions, in the
// loop, so no plan gives away what a pod was promised.
type pods struct {
	bus   *bus.Bus
	kv    *bus.KV[train.PlacedPod]
	log   *slog.Logger
	cache *cache
	// missing is since which record of their nodes the agents of placed pods no longer see them, by UID. The next record
	// without them ends them.
	missing map[string]time.Time
}

// asking is a pod that waits, with those who wait for an answer about it.
type asking struct {
	request rpc.PodRequest
	at      time.Time
	answers []chan rpc.PodAnswer
}

func newPods(ctx context.Context, b *bus.Bus, log *slog.Logger, known *cache) (*pods, error) {
	kv, err := bus.OpenKV(ctx, b, contract.PlacedPods)
	return &pods{bus: b, kv: kv, log: log, cache: known, missing: map[string]time.Time{}}, err
}

// run answers requests until ctx ends.
func (p *pods) run(ctx context.Context) error {
	return bus.Answer(ctx, p.bus, rpc.PodSubject, p.answer)
}

func (p *pods) answer(ctx context.Context, r rpc.PodRequest) (rpc.PodAnswer, error) {
	if !p.cache.ready() {
		return rpc.PodAnswer{}, errNotReady
	}
	answer := make(chan rpc.PodAnswer, 1)
	if err := p.cache.ask(r, time.Now(), answer); err != nil {
		return rpc.PodAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return rpc.PodAnswer{}, errors.New("the planner has not decided in time")
	}
}

// settle answers the requests by the newest plan, and gives back the memory of pods that have ended.
func (p *pods) settle(ctx context.Context, now time.Time, last train.Plan) error {
	for uid, placed := range p.cache.placeable(last, now) {
		if err := p.store(ctx, uid, placed); err != nil {
			return err
		}
		p.log.Info("memory booked", "pod", placed.Pod.FullName(), "node", placed.Node, "device", placed.Device, "memory", placed.Memory.String())
	}
	p.cache.answerAll(last, now)
	seen, ended := p.cache.followPods(p.missing, now)
	for uid, placed := range seen {
		if err := p.store(ctx, uid, placed); err != nil {
			return err
		}
	}
	for uid, placed := range ended {
		if err := p.kv.Remove(ctx, uid); err != nil {
			return fmt.Errorf("give back the memory of %s: %w", placed.String(), err)
		}
		p.cache.leave(uid)
		delete(p.missing, uid)
		p.log.Info("memory given back", "pod", placed.Pod.FullName(), "node", placed.Node, "device", placed.Device)
	}
	return nil
}

func (p *pods) store(ctx context.Context, uid string, placed train.PlacedPod) error {
	if err := p.kv.Put(ctx, uid, placed); err != nil {
		return fmt.Errorf("book %s: %w", placed.String(), err)
	}
	p.cache.place(uid, placed)
	return nil
}

// ask enters a request, and has the loop decide.
func (p *cache) ask(r rpc.PodRequest, now time.Time, answer chan rpc.PodAnswer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.asking[r.Pod.UID]
	switch {
	case r.Pod.UID == "" || r.Pod.Memory <= 0 || len(r.Nodes) == 0:
		return errors.New("want a pod with a UID that asks for memory, and nodes on which it may start")
	case waiting == nil && len(p.asking) >= mostAsking:
		return fmt.Errorf("%d pods wait for memory of a GPU already", mostAsking)
	case waiting == nil:
		waiting = &asking{}
		p.asking[r.Pod.UID] = waiting
	}
	waiting.request, waiting.at, waiting.answers = r, now, append(waiting.answers, answer)
	p.wake()
	return nil
}

// requests returns the pods that wait. Those that are placed do not, even if they ask again.
func (p *cache) requests() map[string]rpc.PodRequest {
	requests := make(map[string]rpc.PodRequest, len(p.asking))
	for uid, a := range p.asking {
		if _, placed := p.placed[uid]; !placed {
			requests[uid] = a.request
		}
	}
	return requests
}

// placeable returns the pods to which the plan gives memory that is free, on a node where they may start. Nobody else
// is promised a part of it: the plan holds what all have.
func (p *cache) placeable(last train.Plan, now time.Time) map[string]train.PlacedPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	placed := map[string]train.PlacedPod{}
	if len(p.asking) == 0 {
		return placed
	}
	occupied, given := p.occupied(), last.ByJob()
	for uid, a := range p.asking {
		got, planned := given[a.request.Pod.Job()]
		_, has := p.placed[uid]
		if !planned || has || len(a.answers) == 0 || len(got.Devices) != 1 || !slices.Contains(a.request.Nodes, got.Node) {
			continue
		}
		at := train.NodeDevice{Node: got.Node, Device: got.Devices[0]}
		if occupied[at].Leaves(got.Memory, p.memoryOf(at)) {
			placed[uid] = train.PlacedPod{Pod: a.request.Pod, Node: at.Node, Device: at.Device, Memory: got.Memory, PlacedAt: now.UTC()}
			occupied.Take(got.Places())
		}
	}
	return placed
}

// occupied counts who is on each device now: the live attempts, and the pods of no job for which memory is booked. The
// plan may say otherwise.
func (p *cache) occupied() train.Occupancy {
	occupied := train.Occupancy{}
	for _, a := range p.live {
		occupied.Take(a.Places())
	}
	for _, pod := range p.placed {
		occupied.Take([]train.Part{{Node: pod.Node, Devices: []train.DeviceID{pod.Device}, Memory: pod.Memory}})
	}
	return occupied
}

// memoryOf is the memory of a device; 0 if its node does not report it.
func (p *cache) memoryOf(at train.NodeDevice) unit.Bytes {
	for i := range p.nodes[string(at.Node)].Devices {
		if d := &p.nodes[string(at.Node)].Devices[i]; d.ID == at.Device {
			return d.Memory
		}
	}
	return 0
}

func (p *cache) place(uid string, placed train.PlacedPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed[uid] = placed
	p.wake()
}

func (p *cache) leave(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.placed, uid)
	p.wake()
}

// answerAll answers those who wait for an answer, and forgets pods that no longer ask.
func (p *cache) answerAll(last train.Plan, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asking) == 0 {
		return
	}
	given, waits := last.ByJob(), make(map[train.JobID]train.Reason, len(last.Waiting))
	for _, w := range last.Waiting {
		if len(w.Blockers) > 0 {
			waits[w.Job] = w.Blockers[0]
		}
	}
	for uid, a := range p.asking {
		placed, has := p.placed[uid]
		job := a.request.Pod.Job()
		for _, answer := range a.answers {
			answer <- answerTo(a.request, placed, given[job], waits[job])
		}
		a.answers = nil
		if has || now.Sub(a.at) > podAsks {
			delete(p.asking, uid)
		}
	}
}

// answerTo is the answer to a request: got is what the newest plan gives to the pod, and waits why it gives nothing.
// placed is the zero value unless memory is booked for the pod.
func answerTo(r rpc.PodRequest, placed train.PlacedPod, got *train.Allocation, waits train.Reason) rpc.PodAnswer {
	switch {
	case placed.Node != "" && slices.Contains(r.Nodes, placed.Node):
		answer := rpc.PodAnswer{Node: placed.Node, Device: placed.Device}
		if got != nil {
			answer.Reason = got.Reason
		}
		return answer
	case placed.Node != "":
		return rpc.PodAnswer{Reason: train.Reason{Code: train.NodeNotOffered, Message: fmt.Sprintf("its memory is booked on node %s", placed.Node)}}
	case got != nil:
		return rpc.PodAnswer{Reason: train.Reason{Code: "Preempting", Message: fmt.Sprintf("gets %s once what has to leave it has left: the plan says %q", train.JoinPlaces(got.Places()), got.Reason.Message)}}
	case waits.Code != "":
		return rpc.PodAnswer{Reason: waits}
	}
	return rpc.PodAnswer{Reason: train.Reason{Code: "Undecided", Message: "the plan does not have it yet"}}
}

// followPods compares the placed pods with what the agents of their nodes see: seen are those that have arrived, or
// have another device than planned, and ended those that are gone.
func (p *cache) followPods(missing map[string]time.Time, now time.Time) (seen, ended map[string]train.PlacedPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, ended = map[string]train.PlacedPod{}, map[string]train.PlacedPod{}
	asks := p.names()
	for uid, placed := range p.placed {
		device, there := p.deviceOf(placed)
		// Another pod of the same name asks: the one that was placed is gone.
		other, again := asks[placed.Pod.FullName()]
		switch {
		case again && other != uid || !there && p.hasLeft(placed, missing, now):
			ended[uid] = placed
		case there && (placed.SeenAt.IsZero() || placed.Device != device):
			placed.Device, placed.SeenAt = device, cmp.Or(placed.SeenAt, now.UTC())
			seen[uid] = placed
		}
		if there {
			delete(missing, uid)
		}
	}
	return seen, ended
}

// hasLeft says whether a pod that its agent does not see has ended, or will not come.
func (p *cache) hasLeft(placed train.PlacedPod, missing map[string]time.Time, now time.Time) bool {
	if placed.SeenAt.IsZero() {
		return now.Sub(placed.PlacedAt) > podArrives
	}
	node, known := p.nodes[string(placed.Node)]
	since, missed := missing[placed.Pod.UID]
	if known && !missed {
		missing[placed.Pod.UID] = node.SeenAt
	}
	return !known || missed && node.SeenAt.After(since)
}

// names are the UIDs of the pods that ask, by the name of each in the cluster.
func (p *cache) names() map[string]string {
	names := make(map[string]string, len(p.asking))
	for uid, a := range p.asking {
		names[a.request.Pod.FullName()] = uid
	}
	return names
}

// deviceOf returns the device of which the agent of its node sees a pod have memory.
func (p *cache) deviceOf(placed train.PlacedPod) (train.DeviceID, bool) {
	for _, d := range p.nodes[string(placed.Node)].Devices {
		if slices.Contains(d.Pods, placed.Pod.FullName()) {
			return d.ID, true
		}
	}
	return "", false
}
