package kube

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// backendOn is a back end whose cache has the pods among the objects of a cluster.
func backendOn(t *testing.T, objects ...runtime.Object) (*Backend, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	b, err := newBackend(client, defaults(), staging.Terms{}, time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.useKey([]byte("key"))
	for _, o := range objects {
		if p, is := o.(*corev1.Pod); is {
			if err := b.pods[p.Namespace].GetIndexer().Add(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b, client
}

// Objects are an attempt's if they say so, whatever their names and labels are.
func TestObjectsOfAnotherJobAreNotTakenOver(t *testing.T) {
	other := member(0, runs)
	other.Annotations[annotationJob] = "J_other"
	b, _ := backendOn(t, other)
	k := b.keyOf(train.Attempt{Job: "j", Number: 1})
	if found := b.podsOf(k); len(found) > 0 {
		t.Errorf("the cache has %s as a pod of %s", found[0].Name, k.job)
	}
	if found, err := b.list(t.Context(), k); err != nil || len(found) > 0 {
		t.Errorf("%d pods are listed as those of %s: %v", len(found), k.job, err)
	}
	k.job = "J_other"
	if len(b.podsOf(k)) != 1 {
		t.Error("a pod is not found under its own job")
	}
}
