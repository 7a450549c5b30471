package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Stop makes the pods of an attempt end: the kubelet asks their processes and kills them after a while. It is called
// until the end is seen. An attempt without pods never gets any.
func (b *Backend) Stop(ctx context.Context, a train.Attempt, _ time.Time) error {
	k := b.keyOf(a)
	if busy, _ := b.queue.state(k); busy {
		return nil // pods are being created or removed
	}
	pods := b.podsOf(k)
	if len(pods) == 0 {
		var err error
		if pods, err = b.list(ctx, k); err != nil {
			return err
		}
	}
	if len(pods) == 0 && a.Phase == train.PhaseClaimed {
		exit := train.Exit{Forced: true, Signal: "SIGTERM"}
		if a.Ending != nil {
			exit = *a.Ending
		}
		b.refuse(k, exit)
		return nil
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	if len(pods) > 0 {
		b.queue.begin(k, func(ctx context.Context) error { return b.deletePods(ctx, pods, nil) })
	}
	return nil
}

// Sweep has nothing to kill: an attempt is not lost before its pods have ended.
func (b *Backend) Sweep(context.Context, train.Attempt) (int, error) { return 0, nil }

// removeInterval is how often the removal of ended attempts is tried again: the API server was away, or a node was that
// may have run a pod until now.
const removeInterval = 10 * time.Second

// Forget removes what was made for an attempt whose end was published, now or later. Find finds for the next executor
// what this one could not remove.
func (b *Backend) Forget(_ context.Context, a train.Attempt) error {
	k := b.keyOf(a)
	b.mu.Lock()
	delete(b.waitingSince, k)
	delete(b.refused, k)
	b.unremoved[k] = true
	b.mu.Unlock()
	b.forgetResizing(k)
	b.queue.forget(k)
	b.queue.begin(k, func(ctx context.Context) error {
		err := b.remove(ctx, k)
		if err != nil {
			b.log.Warn("pods of an ended attempt not removed yet", "job", k.job, "attempt", k.number, "error", err)
		}
		return err
	})
	return nil
}

// removeAgain queues the removal of what is left of ended attempts.
func (b *Backend) removeAgain() {
	b.mu.Lock()
	left := slices.Collect(maps.Keys(b.unremoved))
	b.mu.Unlock()
	for _, k := range left {
		b.queue.begin(k, func(ctx context.Context) error { return b.remove(ctx, k) })
	}
}

// remove deletes the Secret first: from then on no container of the attempt can start, whichever process creates a
// pod. The Services are deleted with the Secret.
func (b *Backend) remove(ctx context.Context, k key) error {
	if err := b.deleteSecret(ctx, k); err != nil {
		return err
	}
	all := b.podsOf(k)
	pods := slices.DeleteFunc(slices.Clone(all), b.mayStillRun)
	if err := b.release(ctx, pods); err != nil {
		return err
	}
	now := int64(0)
	if err := b.deletePods(ctx, pods, &now); err != nil {
		return err
	}
	if len(pods) == len(all) {
		b.mu.Lock()
		delete(b.unremoved, k)
		b.mu.Unlock()
	}
	return nil
}

// ForgetAll does nothing: nothing of a job is kept beyond its attempts.
func (b *Backend) ForgetAll(context.Context, train.JobID) error { return nil }

// Find lists the attempts that have pods or Secrets.
func (b *Backend) Find(ctx context.Context) ([]launch.Found, error) {
	found := map[key]launch.Found{}
	for _, p := range b.pods.list() {
		if k, ours := keyFrom(p); ours {
			note(found, k, p, launch.Running)
		}
	}
	for _, namespace := range b.options.Namespaces() {
		if err := b.findSecrets(ctx, namespace, found); err != nil {
			return nil, err
		}
	}
	var list []launch.Found
	for _, k := range slices.SortedFunc(maps.Keys(found), compareKeys) {
		list = append(list, found[k])
	}
	return list, nil
}

// note adds an object of an attempt to what was found. Made is the time of the attempt's newest object.
func note(found map[key]launch.Found, k key, o metav1.Object, phase launch.Phase) {
	f, known := found[k]
	if !known {
		f = launch.Found{Job: k.job, Number: k.number, Namespace: k.namespace, Phase: phase}
	}
	if made := o.GetCreationTimestamp().Time; made.After(f.Made) {
		f.Made = made
	}
	found[k] = f
}

// findSecrets adds the attempts that have a Secret in a namespace. An attempt of which only the Secret is left has
// exited.
func (b *Backend) findSecrets(ctx context.Context, namespace string, found map[key]launch.Found) error {
	secrets, err := b.client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list Secrets of %s: %w", namespace, err)
	}
	for i := range secrets.Items {
		if k, ours := keyFrom(&secrets.Items[i]); ours {
			note(found, k, &secrets.Items[i], launch.Exited)
		}
	}
	return nil
}
