package kube

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
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

// A Secret that another client made under the name of an attempt's is neither used nor deleted.
func TestForeignSecretsAreLeftAlone(t *testing.T) {
	a := train.Attempt{Job: "wandb", Number: 1}
	others := key{"jobs", "other", 1}
	for name, meta := range map[string]metav1.ObjectMeta{
		"the team's":     {},
		"another job's":  {Labels: others.labels(0), Annotations: map[string]string{annotationJob: "other"}},
		"without a mark": {Labels: key{"jobs", "wandb", 1}.labels(0), Annotations: map[string]string{annotationJob: "wandb"}},
	} {
		meta.Name, meta.Namespace = "wandb-1", "jobs"
		b, client := backendOn(t, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{secretToken: []byte("xyzzy")}})
		if _, _, err := b.MakeSecrets(t.Context(), a); err == nil || !strings.Contains(err.Error(), errForeign.Error()) {
			t.Errorf("%s: made with %v, want an error", name, err)
		}
		if _, token, err := b.ReadSecrets(t.Context(), a); token != "" || err != nil {
			t.Errorf("%s: read %q, %v", name, token, err)
		}
		forget(t, b, a)
		if _, err := client.CoreV1().Secrets("jobs").Get(t.Context(), "wandb-1", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An attempt whose Secret Kubernetes refuses, or whose name is taken, ends before it starts, with the reason. What may
// be otherwise in a moment is tried again.
func TestAnAttemptWithoutASecretIsRefused(t *testing.T) {
	secrets, quota := schema.GroupResource{Resource: "secrets"}, errors.New("exceeded quota: small") //nolint:err113 // Kubernetes' words
	for name, test := range map[string]struct {
		answer error
		code   string
	}{
		"quota":        {apierrors.NewForbidden(secrets, "j-1", quota), launch.Forbidden},
		"no namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "jobs"), "NotCreated"},
		"a name":       {apierrors.NewAlreadyExists(secrets, "j-1"), "NotCreated"},
		"away":         {apierrors.NewServiceUnavailable("busy"), ""},
	} {
		b, client := backendOn(t)
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
		capability, token, err := b.MakeSecrets(t.Context(), train.Attempt{Job: "j", Number: 1})
		refused, is := errors.AsType[*launch.RefusedError](err)
		switch {
		case err == nil || is != (test.code != ""):
			t.Errorf("%s: %v", name, err)
		case is && (!refused.Exit.Lost || !refused.Exit.Unstarted || refused.Exit.Reason.Code != test.code || !strings.Contains(refused.Exit.Reason.Message, "make Secret j-1")):
			t.Errorf("%s: %+v", name, refused.Exit)
		case is && (capability == "" || token == ""):
			t.Errorf("%s: the record of the attempt has no secrets", name)
		}
	}
}

func forget(t *testing.T, b *Backend, a train.Attempt) {
	t.Helper()
	if err := b.Forget(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	b.queue.do(t.Context(), <-b.queue.tasks)
}

// The next executor reads the Secret that one has made. When the attempt is forgotten, that very object is deleted.
// Kubelets keep what is immutable, so they would start containers with it after that.
func TestTheSecretOfAnAttempt(t *testing.T) {
	b, client := backendOn(t)
	client.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made, _ := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
		made.UID = "uid"
		return false, nil, nil
	})
	a := train.Attempt{Job: "j", Number: 1}
	capability, token, err := b.MakeSecrets(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	b.secrets = map[key]secret{}
	if c, again, err := b.MakeSecrets(t.Context(), a); err != nil || c != capability || again != token {
		t.Errorf("made again: %v", err)
	}
	if b.owner(b.keyOf(a)).UID != "uid" {
		t.Error("it is not the owner of what is made for the attempt")
	}
	made, err := client.CoreV1().Secrets("jobs").Get(t.Context(), "j-1", metav1.GetOptions{})
	if err != nil || made.Immutable != nil {
		t.Errorf("immutable: %v %v", made.Immutable, err)
	}
	client.ClearActions()
	forget(t, b, a)
	for _, action := range client.Actions() {
		if deletion, is := action.(clienttesting.DeleteActionImpl); is {
			if only := deletion.DeleteOptions.Preconditions; only == nil || only.UID == nil || *only.UID != "uid" {
				t.Errorf("deleted with preconditions %v", only)
			}
		}
	}
	if _, err := client.CoreV1().Secrets("jobs").Get(t.Context(), "j-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the end: %v", err)
	}
}

// What is made for an attempt is made once. What another client made under such a name is left as it is.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	gpus := []train.Device{gpu("0", "aa", false)}
	gpus[0].Resource, gpus[0].Class = "", "gpu.nvidia.com"
	s := setting(launch.Place{Node: train.Node{ID: "n1", Name: "n1"}, Devices: gpus})
	s.Spec.Ports = []train.PortMapping{{NodePort: 30080, ContainerPort: 8000}}
	template, err := newPodTemplate(s, key{"jobs", "job-a", 3}, defaults(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	template.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "job-a-3", UID: "uid"}
	b, _ := backendOn(t)
	for range 2 {
		if err := b.create(t.Context(), template); err != nil {
			t.Fatal(err)
		}
	}
	theirs := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "jobs"} }
	for _, o := range []runtime.Object{
		&corev1.Service{ObjectMeta: theirs("p-job-a-3")}, &resourcev1.ResourceClaim{ObjectMeta: theirs("job-a-3-0")}, &corev1.Pod{ObjectMeta: theirs("job-a-3-0")},
	} {
		before := o.DeepCopyObject()
		b, client := backendOn(t, o)
		if err := b.create(t.Context(), template); !errors.Is(err, errForeign) {
			t.Errorf("%T: %v", o, err)
		}
		for _, action := range client.Actions() {
			if verb := action.GetVerb(); verb != "create" && verb != "get" {
				t.Errorf("%T: %s of %s", o, verb, action.GetResource().Resource)
			}
		}
		if diff := cmp.Diff(before, o); diff != "" {
			t.Errorf("%T is changed (-before +after):\n%s", o, diff)
		}
	}
}
