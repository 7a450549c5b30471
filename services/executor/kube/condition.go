package kube

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// conditionOf returns what keeps pods of jobs off a node.
func conditionOf(n *corev1.Node, tolerated []string, now time.Time) train.NodeCondition {
	c := train.NodeCondition{Cordoned: n.Spec.Unschedulable, SeenAt: now}
	for _, t := range n.Spec.Taints {
		if !tolerates(tolerated, t) {
			c.Taints = append(c.Taints, t.ToString())
		}
	}
	slices.Sort(c.Taints)
	if !isReady(n) {
		c.NotReady = notReadyWords(n)
	}
	return c
}

// tolerates reports whether a taint does not keep the pods of jobs off. Kubernetes adds taints of its own for what the
// node says elsewhere, and lets pods with requests ignore the one for memory.
func tolerates(keys []string, t corev1.Taint) bool {
	own := []string{corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure}
	return t.Effect == corev1.TaintEffectPreferNoSchedule || slices.Contains(own, t.Key) || t.Effect == corev1.TaintEffectNoSchedule && slices.Contains(keys, t.Key)
}

func notReadyWords(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return cmp.Or(words(c.Reason, c.Message), "its kubelet says so")
		}
	}
	return "its kubelet has not reported"
}

// conditions are what the cluster says of its nodes, and what of that was recorded.
type conditions struct {
	mu             sync.Mutex
	seen, recorded map[train.NodeID]train.NodeCondition
	// changed says that something is to be recorded.
	changed tick.Signal
}

func newConditions() *conditions {
	return &conditions{seen: map[train.NodeID]train.NodeCondition{}, recorded: map[train.NodeID]train.NodeCondition{}, changed: tick.NewSignal()}
}

// observe enters what the cluster says of a node.
func (c *conditions) observe(n *corev1.Node, deleted bool, tolerated []string, now time.Time) {
	is := conditionOf(n, tolerated, now)
	if deleted {
		is.NotReady = "it is no longer in the cluster"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[train.KubernetesNodeID(n.Name)] = is
	c.changed.Send()
}

// due returns the conditions that are not recorded as they are, by node.
func (c *conditions) due() map[train.NodeID]train.NodeCondition {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := maps.Clone(c.seen)
	maps.DeleteFunc(due, func(id train.NodeID, is train.NodeCondition) bool {
		was, known := c.recorded[id]
		was.SeenAt = is.SeenAt
		return known && reflect.DeepEqual(was, is)
	})
	return due
}

// conditionRetry is how long a condition that could not be recorded waits.
const conditionRetry = time.Second

// RecordConditions has each change of a node's condition recorded until ctx ends. recorded are the conditions that an
// earlier executor has left.
func (b *Backend) RecordConditions(ctx context.Context, recorded map[train.NodeID]train.NodeCondition, record func(context.Context, train.NodeID, train.NodeCondition) error) error {
	c := b.conditions
	c.mu.Lock()
	c.recorded = recorded
	c.mu.Unlock()
	for {
		var again <-chan time.Time
		for id, is := range c.due() {
			if err := record(ctx, id, is); err != nil {
				b.log.Warn("condition of a node not recorded", "node", id, "error", err)
				again = time.After(conditionRetry)
				break
			}
			c.mu.Lock()
			c.recorded[id] = is
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		case <-again:
		}
	}
}
