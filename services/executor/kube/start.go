package kube

import (
	"context"
	"errors"
	"strings"

	"github.com/sourcegraph/conc/pool"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// parallelPods is how many pods of one gang are created at the same time.
const parallelPods = 8

// Start creates the pods of a claimed attempt that do not exist yet.
func (b *Backend) Start(ctx context.Context, s launch.Setting) error {
	t, err := newPodTemplate(s, b.keyOf(s.Attempt), b.options, b.killAfter)
	if err == nil && t.Spec.Image == "" {
		err = errNoImage
	}
	if err == nil && s.Spec.Upload != "" {
		err = errUpload
	}
	if err == nil && s.Spec.Continue != "" {
		err = errContinue
	}
	if err != nil {
		return b.Refuse(ctx, s.Attempt, train.Exit{Code: launch.CannotStart, Message: err.Error()})
	}
	t.owner, t.order = b.owner(t.key), b.orderOf(s, t.key.namespace)
	b.queue.begin(t.key, func(ctx context.Context) error { return b.create(ctx, t) })
	return nil
}

var errContinue = errors.New("pods cannot continue another job: give both jobs the same snapshots_dir, and let the program load the checkpoint from there")

var errUpload = errors.New("pods cannot have an uploaded folder: put the code into an image, or into a folder below a volume root, as custom_dir")

var errNoImage = errors.New("a job on Kubernetes needs an image, and the operator has set none (executor.pod_image)")

// Starting reports whether pods are being created or removed.
func (b *Backend) Starting(a train.Attempt) (bool, error) {
	return b.queue.state(b.keyOf(a))
}

// create creates what is missing of an attempt. The first pod of a gang comes first, because the others need its
// address.
func (b *Backend) create(ctx context.Context, t podTemplate) error {
	found := map[int]*corev1.Pod{}
	for _, p := range b.podsOf(t.key) {
		found[rankOf(p)] = p
	}
	if len(found) == 0 {
		if err := b.createServices(ctx, t); err != nil {
			return b.orRefused(t, err)
		}
	}
	first := found[0]
	if first == nil {
		var err error
		if first, err = b.createPod(ctx, t, 0, ""); err != nil {
			return b.orRefused(t, err)
		}
	}
	if len(t.processes) == 1 || first.Status.PodIP == "" {
		return nil
	}
	group := pool.New().WithErrors().WithMaxGoroutines(parallelPods)
	for rank := 1; rank < len(t.processes); rank++ {
		if found[rank] == nil {
			group.Go(func() error {
				_, err := b.createPod(ctx, t, rank, first.Status.PodIP)
				return err
			})
		}
	}
	return b.orRefused(t, group.Wait())
}

// orRefused turns an answer that will never change into the end of the attempt.
func (b *Backend) orRefused(t podTemplate, err error) error {
	if err != nil && strings.Contains(err.Error(), "already allocated") {
		return err // a port of the node: the previous attempt releases it a moment after its pods
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsRequestEntityTooLargeError(err) {
		return err
	}
	b.refuse(t.key, train.Exit{Code: launch.CannotStart, Message: "Kubernetes rejects it: " + firstLine(err.Error())})
	return nil
}

// Refuse records the end of an attempt that cannot be started. Only this process remembers it: the next executor
// comes to the same end.
func (b *Backend) Refuse(_ context.Context, a train.Attempt, e train.Exit) error {
	b.refuse(b.keyOf(a), e)
	return nil
}

func (b *Backend) refuse(k key, e train.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[k] = e
}
