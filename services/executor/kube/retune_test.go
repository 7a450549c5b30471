package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// resizeBench is a cluster with one running pod of two CPU slots; the test plays its kubelet.
type resizeBench struct {
	t       *testing.T
	b       *Backend
	client  *fake.Clientset
	patches int
}

func newResizeBench(t *testing.T, o Options) *resizeBench {
	t.Helper()
	p := member(0, runs)
	p.Namespace, p.Spec.Containers[0].Name = o.Namespace, "job"
	p.Annotations[annotationSlots] = "2"
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{"switchyard.dev/x": resource.MustParse("1")}}
	setCores(r, 2)
	p.Spec.Containers[0].Resources = r
	p.Status.ContainerStatuses[0].Resources = r.DeepCopy()
	z := &resizeBench{t: t, client: fake.NewClientset(p)}
	z.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "resize" {
			z.patches++
		}
		return false, nil, nil
	})
	var err error
	if z.b, err = newBackend(z.client, o, staging.Terms{}, time.Second, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	z.must(z.b.nodes.GetIndexer().Add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")}},
	}))
	z.see()
	return z
}

func (z *resizeBench) must(err error) {
	z.t.Helper()
	if err != nil {
		z.t.Fatal(err)
	}
}

// see puts the pod as it is into the cache.
func (z *resizeBench) see() *corev1.Pod {
	z.t.Helper()
	p, err := z.client.CoreV1().Pods(z.b.options.Namespace).Get(z.t.Context(), key{"jobs", "j", 1}.pod(0), metav1.GetOptions{})
	z.must(err)
	z.must(z.b.pods[z.b.options.Namespace].GetIndexer().Update(p))
	return p
}

// kubelet changes the status of the pod.
func (z *resizeBench) kubelet(change func(*corev1.Pod)) {
	z.t.Helper()
	p := z.see()
	change(p)
	_, err := z.client.CoreV1().Pods(z.b.options.Namespace).UpdateStatus(z.t.Context(), p, metav1.UpdateOptions{})
	z.must(err)
	z.see()
}

// grants gives the container what its spec requests.
func grants(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].Resources = p.Spec.Containers[0].Resources.DeepCopy()
}

func resizeCondition(kind corev1.PodConditionType, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "why"}}
	}
}

func (z *resizeBench) retune(cores, mib float64) train.Applied {
	z.t.Helper()
	applied, err := z.b.Retune(z.t.Context(), train.Attempt{Job: "j", Number: 1}, launch.Status{}, train.Setting{Values: map[string]float64{"cores": cores, "memory_mib": mib}})
	z.must(err)
	z.see()
	return applied
}

func TestRunningPodsAreResized(t *testing.T) {
	z := newResizeBench(t, defaults())
	if a := z.retune(1, 512); len(a.Values)+len(a.Refused)+len(a.Restarts) != 0 {
		t.Errorf("before the kubelet has done anything: %+v", a)
	}
	limits := z.see().Spec.Containers[0].Resources.Limits
	if limits.Cpu().String() != "1" || limits.Memory().String() != "512Mi" || len(limits) != 3 {
		t.Errorf("asked for %v", limits)
	}
	z.kubelet(grants)
	if a := z.retune(1, 512); a.Values["cores"] != 1 || a.Values["memory_mib"] != 512 || len(a.Restarts) != 0 {
		t.Errorf("after it: %+v", a)
	}
	if z.patches != 1 {
		t.Errorf("asked %d times", z.patches)
	}
	z.retune(2, 512)
	z.kubelet(resizeCondition(corev1.PodResizePending, corev1.PodReasonInfeasible))
	if a := z.retune(2, 512); !slices.Equal(a.Restarts, []string{"cores"}) || a.Values["memory_mib"] != 512 {
		t.Errorf("where it is infeasible: %+v", a)
	}
}

func TestPodsAreNotResizedBeyondWhatThereIs(t *testing.T) {
	o := defaults()
	o.MemoryLimit = "1Gi"
	z := newResizeBench(t, o)
	if a := z.retune(3, 2048); a.Refused["cores"] == "" || a.Refused["memory_mib"] == "" || z.patches != 0 {
		t.Errorf("three cores of two slots, and more memory than the operator allows: %+v, asked %d times", a, z.patches)
	}
	z = newResizeBench(t, defaults())
	if a := z.retune(1, 8192); a.Refused["memory_mib"] == "" || a.Refused["cores"] != "" {
		t.Errorf("more memory than the node has: %+v", a)
	}
}

// A node without room is waited for, but not for ever, and what it did not give must not arrive later.
func TestAResizeThatDoesNotComeIsTakenBack(t *testing.T) {
	z := newResizeBench(t, defaults())
	z.retune(1, 512)
	z.kubelet(resizeCondition(corev1.PodResizePending, corev1.PodReasonDeferred))
	if a := z.retune(1, 512); len(a.Pending(map[string]float64{"cores": 1, "memory_mib": 512})) != 2 {
		t.Errorf("at first: %+v", a)
	}
	z.b.resizings[key{"jobs", "j", 1}].waitingSince = time.Now().Add(-resizeTime)
	if a := z.retune(1, 512); a.Refused["cores"] == "" || a.Refused["memory_mib"] == "" {
		t.Errorf("at last: %+v", a)
	}
	if limits := z.see().Spec.Containers[0].Resources.Limits; limits.Cpu().String() != "2" {
		t.Errorf("it still asks for %v", limits)
	}
}

// If a server resizes no pods, or does not let the executor resize them, a restart is needed. What the namespace
// forbids for this pod it would also forbid for the next one. Any other error is retried.
func TestWherePodsCannotBeResized(t *testing.T) {
	pods, both := corev1.Resource("pods"), []string{"cores", "memory_mib"}
	forbidden := func(why string) error { return apierrors.NewForbidden(pods, "j-1", errors.New(why)) }
	for _, test := range []struct {
		fault             error
		restarts, refused []string
	}{
		{apierrors.NewNotFound(pods, "resize"), both, nil},
		{apierrors.NewMethodNotSupported(pods, "patch"), both, nil},
		{forbidden(`User "system:serviceaccount:a:b" cannot patch resource "pods/resize" in API group "" in the namespace "a"`), both, nil},
		{forbidden("exceeded quota: team, requested: limits.memory=512Mi, used: limits.memory=1Gi, limited: limits.memory=1Gi"), nil, both},
		{forbidden("maximum memory usage per Container is 256Mi, but limit is 512Mi"), nil, both},
		{apierrors.NewServiceUnavailable(""), nil, nil},
	} {
		z := newResizeBench(t, defaults())
		z.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.fault })
		a, err := z.b.Retune(context.Background(), train.Attempt{Job: "j", Number: 1}, launch.Status{}, train.Setting{Values: map[string]float64{"cores": 1, "memory_mib": 512}})
		if !slices.Equal(a.Restarts, test.restarts) || !slices.Equal(slices.Sorted(maps.Keys(a.Refused)), test.refused) {
			t.Errorf("%v: %+v", test.fault, a)
		}
		if settles := len(test.restarts)+len(test.refused) > 0; settles == errors.Is(err, test.fault) {
			t.Errorf("%v: error %v", test.fault, err)
		}
	}
}
