package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// resizing is what is known while the pods of an attempt are given other resources.
type resizing struct {
	values       map[string]float64
	waitingSince time.Time
	// needsRestart is set if Kubernetes does not resize these pods, at all or to these values.
	needsRestart bool
	// refused are parameters that the pods did not get in time.
	refused map[string]string
}

// resizer gives running pods other resources.
type resizer struct {
	*cluster

	mu        sync.Mutex
	resizings map[key]*resizing
}

func (r *resizer) forgetResizing(k key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resizings, k)
}

// resizeTime is how long a node may take to give a running pod its resources. It may have none to spare, and a
// restart on the same node would wait for the same.
const resizeTime = time.Minute

// Retune gives the pods of a running attempt other processors and memory in place, and reads from their status what
// they have. It is called until nothing is pending. If Kubernetes resizes no pods, or the node cannot resize this
// one, a restart is needed.
func (r *resizer) Retune(ctx context.Context, a train.Attempt, s launch.Status, wanted train.Setting) (train.Applied, error) {
	var applied train.Applied
	k := r.keyOf(a)
	now := r.resizingOf(k, wanted.Values)
	has := maps.Clone(wanted.Values)
	for _, p := range r.podsOf(k) {
		if role := launch.Role(p.Labels[labelRole]); role == launch.RoleServer || role == launch.RoleScheduler {
			continue // the values are those of workers
		}
		if s.Phase != launch.Exited {
			if err := r.resize(ctx, p, now); err != nil {
				return applied, err
			}
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
		case now.needsRestart:
			applied.Restarts = append(applied.Restarts, name)
		}
	}
	return applied, nil
}

// resizingOf returns what is known about giving an attempt these values.
func (r *resizer) resizingOf(k key, values map[string]float64) *resizing {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.resizings[k]
	if now == nil || !maps.Equal(now.values, values) {
		now = &resizing{values: maps.Clone(values), waitingSince: time.Now(), refused: map[string]string{}}
		r.resizings[k] = now
	}
	return now
}

// resize requests other resources for a pod, and finds out whether it gets them.
func (r *resizer) resize(ctx context.Context, p *corev1.Pod, now *resizing) error {
	for name, value := range now.values {
		if why := r.tooMuch(p, name, value); why != "" {
			now.refused[name] = why
		}
	}
	want := resized(p, now)
	if !sameComputing(want, p.Spec.Containers[0].Resources) {
		if now.needsRestart {
			return nil
		}
		return r.request(ctx, p, now, want)
	}
	pending := condition(p, corev1.PodResizePending)
	if pending.Reason == corev1.PodReasonInfeasible {
		now.needsRestart = true
		return nil
	}
	if now.needsRestart || time.Since(now.waitingSince) < resizeTime {
		return nil
	}
	for name, value := range now.values {
		if !runsWith(p, name, value) && now.refused[name] == "" {
			now.refused[name] = fmt.Sprintf("node %s did not give it within %s%s", p.Spec.NodeName, resizeTime, because(pending, condition(p, corev1.PodResizeInProgress)))
		}
	}
	// What it did not get now must not arrive later, unnoticed.
	return r.patchResources(ctx, p, resized(p, now))
}

// request requests other resources for a pod. If the pod may not be resized, the job's next pod is made with them.
// What a quota or a limit of the namespace forbids would be forbidden to that pod, too.
func (r *resizer) request(ctx context.Context, p *corev1.Pod, now *resizing, want corev1.ResourceRequirements) error {
	err := r.patchResources(ctx, p, want)
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
		now.needsRestart = true
	default:
		return fmt.Errorf("resize pod %s: %w", p.Name, err)
	}
	r.log.Info("pod is not resized", "pod", p.Name, "reason", firstLine(err.Error()))
	return nil
}

// unauthorised reports whether it is the executor that lacks the permission. The status of the answer does not
// distinguish this from what the namespace forbids to everybody; its text does.
func unauthorised(forbidden error) bool {
	return strings.Contains(forbidden.Error(), `" cannot `)
}

// tooMuch explains why a pod can have a value neither now nor after a restart; it is empty if it can.
func (r *resizer) tooMuch(p *corev1.Pod, name string, value float64) string {
	ask, what := *resource.NewMilliQuantity(int64(value)*coreMillis, resource.DecimalSI), corev1.ResourceCPU
	if slots := slotsOn(p); name == train.SettingCores && slots > 0 && int(value) > slots {
		return fmt.Sprintf("its devices come with %d processors", slots)
	}
	if name == train.SettingMemoryMiB {
		ask, what = *resource.NewQuantity(int64(value)<<20, resource.BinarySI), corev1.ResourceMemory
		if why := allowsMemory(r.options, int64(value)); why != "" {
			return why
		}
	}
	node, err := r.nodeList.Get(p.Spec.NodeName)
	if err != nil {
		return ""
	}
	if found, known := node.Status.Allocatable[what]; known && ask.Cmp(found) > 0 {
		return fmt.Sprintf("node %s has %s of %s for pods", node.Name, found.String(), what)
	}
	return ""
}

// resized returns the resources of a pod with the wanted values. For a refused value it keeps what the pod runs with.
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

// keep copies a resource from what a pod runs with.
func keep(r, now corev1.ResourceRequirements, what corev1.ResourceName) {
	if q, has := now.Limits[what]; has {
		r.Limits[what] = q
	}
	if q, has := now.Requests[what]; has {
		r.Requests[what] = q
	}
}

// running returns the resources that the kubelet reports for the container of a pod. A kubelet that reports none
// resizes none.
func running(p *corev1.Pod) corev1.ResourceRequirements {
	for _, c := range p.Status.ContainerStatuses {
		if c.Resources != nil {
			return *c.Resources
		}
	}
	return p.Spec.Containers[0].Resources
}

// runsWith reports whether the container of a pod has a value.
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
func (r *resizer) patchResources(ctx context.Context, p *corev1.Pod, want corev1.ResourceRequirements) error {
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
	_, err = r.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "resize")
	return err
}

// condition returns a condition that holds, or an empty one.
func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return corev1.PodCondition{}
}

// because returns what conditions report, after a colon.
func because(all ...corev1.PodCondition) string {
	for _, c := range all {
		if text := words(c.Reason, c.Message); text != "" {
			return ": " + text
		}
	}
	return ""
}
