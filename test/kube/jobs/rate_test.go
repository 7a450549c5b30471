package jobs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkStarts measures how many jobs per second get their pods, from the plan on, on simulated nodes; and how many
// a loop creates that does nothing else, with the same objects and the same API server. Each has two rounds, since the
// cluster is fuller in each. Run it with -benchtime 1x.
func BenchmarkStarts(b *testing.B) {
	const nodes, jobs = 1000, 400
	y := fakeNodes(b, nodes, 4)
	client := y.client()
	bare := y.namespace + "-bare"
	y.kubectl("create", "namespace", bare)
	theirs, ours := y.podWatcher(client, bare), y.podWatcher(client, y.namespace)
	var planned []train.Allocation
	var rates [2][]float64
	for round, loop := range []int{0, 1, 1, 0} {
		prefix := fmt.Sprintf("r%d-", round)
		var took time.Duration
		if loop == 0 {
			planned = append(planned, y.queued(prefix, jobs, func(i int) []train.Part { return onNode(i, round, 1) })...)
			began := time.Now()
			y.plan(planned...)
			took = y.await(ours, prefix, jobs, made).Sub(began)
			y.await(ours, prefix, jobs, ran)
			y.untilRunning(len(planned))
		} else {
			pods := y.templates(client, bare, prefix, round)
			began := time.Now()
			y.must(create(y.ctx, client, pods))
			took = y.await(theirs, prefix, jobs, made).Sub(began)
			y.await(theirs, prefix, jobs, ran)
		}
		b.Logf("round %d, bare %v: %.1f pods/s", round, loop == 1, jobs/took.Seconds())
		rates[loop] = append(rates[loop], jobs/took.Seconds())
	}
	executor, plain := (rates[0][0]+rates[0][1])/2, (rates[1][0]+rates[1][1])/2
	b.ReportMetric(executor, "pods/s")
	b.ReportMetric(plain, "bare-pods/s")
	b.ReportMetric(executor/plain, "ratio")
	b.ReportMetric(0, "ns/op")
}

// queued adds jobs to the register that wait for a plan, and returns their allocations. Jobs of several devices have a
// pod for each.
func (y *yard) queued(prefix string, n int, parts func(i int) []train.Part) []train.Allocation {
	y.t.Helper()
	list := make([]train.Allocation, n)
	group := pool.New().WithErrors().WithMaxGoroutines(callsInOneTime)
	for i := range n {
		id := train.JobID(fmt.Sprintf("%s%d", prefix, i))
		list[i] = train.Allocation{Job: id, Node: parts(i)[0].Node, Devices: parts(i)[0].Devices}
		group.Go(func() error {
			spec := train.Spec{
				Name: string(id), Image: image, Command: []string{"/trainer"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1,
				MaxDevices: len(list[i].Devices), Launch: train.LaunchPerDevice,
			}
			_, err := y.jobs.Swap(y.ctx, string(id), train.Job{ID: id, Spec: spec.WithDefaults(), State: train.StateQueued}, 0)
			return err
		})
	}
	y.must(group.Wait())
	return list
}

// onNode returns some GPUs of a node.
func onNode(node, first, n int) []train.Part {
	part := train.Part{Node: train.NodeID(fmt.Sprintf("kwok-%d", node))}
	for i := range n {
		part.Devices = append(part.Devices, train.DeviceID(fmt.Sprintf("gpu:%d", first+i)))
	}
	return []train.Part{part}
}

// untilRunning waits until the executor has recorded that n attempts run.
func (y *yard) untilRunning(n int) {
	y.t.Helper()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		entries, err := y.attempts.List(y.ctx)
		y.must(err)
		running := slices.DeleteFunc(entries, func(e bus.Entry[train.Attempt]) bool { return e.Value.Phase != train.PhaseRunning })
		if len(running) >= n {
			return
		}
		select {
		case <-look.C:
		case <-y.ctx.Done():
			y.t.Fatalf("%d of %d attempts run", len(running), n)
		}
	}
}

// templates returns the executor's pods of the first round as a client would create them, for another GPU of the same
// nodes.
func (y *yard) templates(client kubernetes.Interface, namespace, prefix string, gpu int) []*corev1.Pod {
	y.t.Helper()
	there, err := client.CoreV1().Pods(y.namespace).List(y.ctx, metav1.ListOptions{})
	y.must(err)
	var pods []*corev1.Pod
	for i := range there.Items {
		p := &there.Items[i]
		if len(p.Name) < 3 || p.Name[:3] != "r0-" {
			continue
		}
		meta := metav1.ObjectMeta{
			Name: prefix + p.Name[3:], Namespace: namespace, Labels: p.Labels, Annotations: p.Annotations, Finalizers: p.Finalizers, OwnerReferences: p.OwnerReferences,
		}
		p.ObjectMeta, p.Status, p.Spec.NodeName, p.Spec.Priority, p.Spec.PreemptionPolicy = meta, corev1.PodStatus{}, "", nil, nil
		want := &p.Spec.Containers[0].Resources
		for _, list := range []corev1.ResourceList{want.Limits, want.Requests} {
			list[corev1.ResourceName(resourceOf(gpu))] = list[corev1.ResourceName(resourceOf(0))]
			delete(list, corev1.ResourceName(resourceOf(0)))
		}
		pods = append(pods, p)
	}
	return pods
}

// create creates pods and for each its Secret, which owns it.
func create(ctx context.Context, client kubernetes.Interface, pods []*corev1.Pod) error {
	group := pool.New().WithErrors().WithMaxGoroutines(callsInOneTime)
	for _, p := range pods {
		group.Go(func() error {
			secret, err := client.CoreV1().Secrets(p.Namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels, Annotations: p.Annotations},
				Data:       map[string][]byte{"capability": make([]byte, 64), "token": make([]byte, 64)},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = secret.Name, secret.UID
			_, err = client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}
