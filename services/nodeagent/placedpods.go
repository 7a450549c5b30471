package nodeagent

import (
	"context"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// placedPods are the pods of no job for which memory of GPUs of this node is booked.
type placedPods struct {
	node train.NodeID

	mu   sync.Mutex
	pods map[string]train.PlacedPod
	// given are those whose GPU the kubelet has, by UID: it asks once for each.
	given map[string]bool
}

func newPlacedPods(node train.NodeID) *placedPods {
	return &placedPods{node: node, pods: map[string]train.PlacedPod{}, given: map[string]bool{}}
}

func (p *placedPods) observe(e bus.Entry[train.PlacedPod], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted || e.Value.Node != p.node {
		delete(p.pods, e.Key)
		delete(p.given, e.Key)
		return
	}
	p.pods[e.Key] = e.Value
}

const (
	// bookingPatience is how long a pod may be ahead of the record of its memory.
	bookingPatience = 5 * time.Second
	bookingEvery    = 50 * time.Millisecond
)

// next returns the GPU that was booked first for a pod with that many GiB which has none yet. The kubelet does not say
// which pod it asks for; pods that ask for as much are all the same to the ledger. arrived says that a pod has memory.
func (p *placedPods) next(ctx context.Context, gib int, arrived func(pod string) bool) (device train.DeviceID, found bool) {
	ctx, cancel := context.WithTimeout(ctx, bookingPatience)
	defer cancel()
	for range tick.Every(ctx, bookingEvery) {
		if device, found = p.give(unit.Bytes(gib)*unit.GiB, arrived); found {
			break
		}
	}
	return device, found
}

func (p *placedPods) give(memory unit.Bytes, arrived func(pod string) bool) (train.DeviceID, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := ""
	for uid, pod := range p.pods {
		awaited := pod.SeenAt.IsZero() && !p.given[uid] && pod.Pod.Memory == memory && !arrived(pod.Pod.FullName())
		if awaited && (oldest == "" || pod.PlacedAt.Before(p.pods[oldest].PlacedAt)) {
			oldest = uid
		}
	}
	if oldest == "" {
		return "", false
	}
	p.given[oldest] = true
	return p.pods[oldest].Device, true
}
