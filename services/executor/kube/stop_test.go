package kube

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// What an ended attempt leaves on a silent node is removed as soon as the node says that it has ended.
func TestPodsOfASilentNodeAreRemovedLater(t *testing.T) {
	p := member(0, runs)
	p.Finalizers = []string{finalizer}
	client := fake.NewClientset(p)
	b, err := newBackend(client, defaults(), staging.Terms{}, time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cached := b.pods[p.Namespace].GetIndexer()
	if err := errors.Join(cached.Add(p), b.nodes.GetIndexer().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName}})); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		_, err := client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		return !apierrors.IsNotFound(err)
	}
	if err := b.Forget(t.Context(), train.Attempt{Job: "j", Number: 1}); err != nil {
		t.Fatal(err)
	}
	b.queue.do(t.Context(), <-b.queue.tasks)
	b.removeAgain()
	b.queue.do(t.Context(), <-b.queue.tasks)
	if !there() {
		t.Fatal("a pod is removed that may still run")
	}
	ended := p.DeepCopy()
	ends(137, "Error", time.Minute)(ended)
	if err := cached.Update(ended); err != nil {
		t.Fatal(err)
	}
	b.removeAgain()
	b.queue.do(t.Context(), <-b.queue.tasks)
	if there() {
		t.Error("the pod is still there, though its end is known")
	}
	if b.removeAgain(); len(b.queue.tasks) > 0 {
		t.Error("the removal of nothing is tried again")
	}
}
