package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// resizing is what was found out while the pods of an attempt are given other resources.
type resizing struct {
	values map[string]float64
	since  time.Time
	// fixed says that Kubernetes does not resize them, here or to this.
	fixed bool
	// refused are parameters that they were not given in time.
	refused map[string]string
}

// resizePatience is how long a node may take to give a running pod its resources. It may have none to spare, and another start on it would wait for the same.
const resizePatience = time.Minute

// Retune gives the pods of a running attempt other processors and memory where they are, and reads from their status what they have. It is called until nothing
// is pending any more. Where Kubernetes resizes no pods, or its node cannot this one, it takes another start.
func (b *Backend) Retune(ctx context.Context, a train.Attempt, _ launch.Sight, wanted train.Setting) (train.Applied, error) {
	var applied train.Applied
	k := keyOf(a)
	now := b.resizingOf(k, wanted.Values)
	has := maps.Clone(wanted.Values)
	for _, p := range b.podsOf(k) {
		if err := b.resize(ctx, p, now); err != nil {
			return applied, err
		}
		for name, value := range now.values {
			if !runsWith(p, name, value) {
				delete(has, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted.Values)) {
		value, hasIt := has[name]
		switch why := now.refused[name]; {
		case hasIt:
			applied.Take(name, value)
		case why != "":
			applied.Refuse(name, why)
		case now.fixed:
			applied.Restarts = append(applied.Restarts, name)
		}
	}
	return applied, nil
}

// resizingOf is what is known of giving an attempt these values.
func (b *Backend) resizingOf(k key, values map[string]float64) *resizing {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.resizings[k]
	if r == nil || !maps.Equal(r.values, values) {
		r = &resizing{values: maps.Clone(values), since: time.Now(), refused: map[string]string{}}
		b.resizings[k] = r
	}
	return r
}

// resize asks for other resources of a pod, and finds out what becomes of it.
func (b *Backend) resize(ctx context.Context, p *corev1.Pod, now *resizing) error {
	for name, value := range now.values {
		if why := b.beyond(p, name, value); why != "" {
			now.refused[name] = why
		}
	}
	want := resized(p, now)
	if !sameComputing(want, p.Spec.Containers[0].Resources) {
		if now.fixed {
			return nil
		}
		return b.ask(ctx, p, now, want)
	}
	pending := condition(p, corev1.PodResizePending)
	if pending.Reason == corev1.PodReasonInfeasible {
		now.fixed = true
		return nil
	}
	if now.fixed || time.Since(now.since) < resizePatience {
		return nil
	}
	for name, value := range now.values {
		if !runsWith(p, name, value) && now.refused[name] == "" {
			now.refused[name] = fmt.Sprintf("node %s did not give it within %s%s", p.Spec.NodeName, resizePatience, because(pending, condition(p, corev1.PodResizeInProgress)))
		}
	}
	// What is not to be had is not to come later, unnoticed.
	return b.patchResources(ctx, p, resized(p, now))
}

// ask asks for other resources of a pod. Where it may not be resized, its next one is made with them. What a quota or a limit of the namespace forbids would be
// forbidden to that one, too.
func (b *Backend) ask(ctx context.Context, p *corev1.Pod, now *resizing, want corev1.ResourceRequirements) error {
	err := b.patchResources(ctx, p, want)
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && !unauthorised(err):
		for name, value := range now.values {
			if !runsWith(p, name, value) && now.refused[name] == "" {
				now.refused[name] = firstLine(err.Error())
			}
		}
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsInvalid(err):
		now.fixed = true
	default:
		return fmt.Errorf("resize pod %s: %w", p.Name, err)
	}
	b.log.Info("pod is not resized", "pod", p.Name, "reason", firstLine(err.Error()))
	return nil
}

// unauthorised says whether it is the executor that may not do what was forbidden: the status of an answer does not tell that from what the namespace forbids to
// everybody, its words do.
func unauthorised(forbidden error) bool {
	return strings.Contains(forbidden.Error(), `" cannot `)
}

// beyond says why a pod can have a value neither now nor after another start; empty where it may.
func (b *Backend) beyond(p *corev1.Pod, name string, value float64) string {
	ask, what := *resource.NewMilliQuantity(int64(value)*coreMillis, resource.DecimalSI), corev1.ResourceCPU
	if slots := slotsOn(p); name == train.SettingCores && slots > 0 && int(value) > slots {
		return fmt.Sprintf("its devices come with %d processors", slots)
	}
	if name == train.SettingMemoryMiB {
		ask, what = *resource.NewQuantity(int64(value)<<20, resource.BinarySI), corev1.ResourceMemory
		if why := b.options.allowsMemory(int64(value)); why != "" {
			return why
		}
	}
	node, err := b.nodeList.Get(p.Spec.NodeName)
	if err != nil {
		return ""
	}
	if there, told := node.Status.Allocatable[what]; told && ask.Cmp(there) > 0 {
		return fmt.Sprintf("node %s has %s of %s for pods", node.Name, there.String(), what)
	}
	return ""
}

// resized are the resources of a pod with what is wanted; what it is refused is as it runs with now.
func resized(p *corev1.Pod, now *resizing) corev1.ResourceRequirements {
	r := *p.Spec.Containers[0].Resources.DeepCopy()
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	for name, value := range now.values {
		refused := now.refused[name] != ""
		switch {
		case refused:
			keep(r, running(p), map[string]corev1.ResourceName{train.SettingCores: corev1.ResourceCPU, train.SettingMemoryMiB: corev1.ResourceMemory}[name])
		case name == train.SettingCores:
			setCores(r, int(value))
		case name == train.SettingMemoryMiB:
			setMemory(r, int64(value))
		}
	}
	return r
}

// keep takes a resource over from what a pod runs with.
func keep(r, now corev1.ResourceRequirements, what corev1.ResourceName) {
	if q, has := now.Limits[what]; has {
		r.Limits[what] = q
	}
	if q, has := now.Requests[what]; has {
		r.Requests[what] = q
	}
}

// running are the resources that the kubelet says the container of a pod has. One that says nothing resizes nothing.
func running(p *corev1.Pod) corev1.ResourceRequirements {
	for _, c := range p.Status.ContainerStatuses {
		if c.Resources != nil {
			return *c.Resources
		}
	}
	return p.Spec.Containers[0].Resources
}

// runsWith says whether the container of a pod has a value.
func runsWith(p *corev1.Pod, name string, value float64) bool {
	limits := running(p).Limits
	if name == train.SettingMemoryMiB {
		return limits.Memory().Value() == int64(value)<<20
	}
	return limits.Cpu().MilliValue() == int64(value)*1000
}

func sameComputing(a, b corev1.ResourceRequirements) bool {
	return a.Limits.Cpu().Equal(*b.Limits.Cpu()) && a.Limits.Memory().Equal(*b.Limits.Memory()) &&
		a.Requests.Cpu().Equal(*b.Requests.Cpu()) && a.Requests.Memory().Equal(*b.Requests.Memory())
}

// patchResources resizes a running pod.
func (b *Backend) patchResources(ctx context.Context, p *corev1.Pod, want corev1.ResourceRequirements) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	computing := func(list corev1.ResourceList) corev1.ResourceList {
		kept := maps.Clone(list)
		maps.DeleteFunc(kept, func(name corev1.ResourceName, _ resource.Quantity) bool {
			return name != corev1.ResourceCPU && name != corev1.ResourceMemory
		})
		return kept
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name":      p.Spec.Containers[0].Name,
			"resources": corev1.ResourceRequirements{Requests: computing(want.Requests), Limits: computing(want.Limits)},
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode resources: %w", err)
	}
	_, err = b.client.CoreV1().Pods(b.options.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "resize")
	return err
}

// condition is one that holds, empty where it does not.
func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return corev1.PodCondition{}
}

// because is what conditions say, after a colon.
func because(all ...corev1.PodCondition) string {
	for _, c := range all {
		if said := words(c.Reason, c.Message); said != "" {
			return ": " + said
		}
	}
	return ""
}
