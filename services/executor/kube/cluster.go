package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// cluster reads pods and nodes from caches and from the API server, and creates and deletes pods.
type cluster struct {
	options  Options
	log      *slog.Logger
	client   kubernetes.Interface
	pods     podCache
	nodes    cache.SharedIndexInformer
	nodeList corelisters.NodeLister

	mu sync.Mutex
	// notReady holds the time at which a node stopped being ready.
	notReady map[string]time.Time
}

// The indices of pods: by their attempt, and by their node.
const (
	byAttempt = "attempt"
	byNode    = "node"
)

// newCluster makes an informer for each kind of object that is read. An informer factory would link those of all kinds.
func newCluster(client kubernetes.Interface, o Options, log *slog.Logger) (*cluster, error) {
	c := &cluster{options: o, log: log, client: client, notReady: map[string]time.Time{}, pods: podCache{}}
	c.nodes = coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	c.nodeList = corelisters.NewNodeLister(c.nodes.GetIndexer())
	for _, namespace := range o.Namespaces() {
		c.pods[namespace] = coreinformers.NewFilteredPodInformer(client, namespace, 0, podIndexers(), func(l *metav1.ListOptions) { l.LabelSelector = selector })
	}
	for _, watched := range c.watched() {
		if err := watched.SetTransform(slim); err != nil {
			return nil, fmt.Errorf("watch Kubernetes: %w", err)
		}
	}
	return c, nil
}

// watched returns all informers.
func (c *cluster) watched() []cache.SharedIndexInformer {
	return append(slices.Collect(maps.Values(c.pods)), c.nodes)
}

// podCache has the pods of each namespace of jobs.
type podCache map[string]cache.SharedIndexInformer

func podIndexers() cache.Indexers {
	index := func(of func(p *corev1.Pod, k key) string) cache.IndexFunc {
		return func(o any) ([]string, error) {
			if p, ok := o.(*corev1.Pod); ok {
				if k, found := keyFrom(p); found {
					return []string{of(p, k)}, nil
				}
			}
			return nil, nil
		}
	}
	return cache.Indexers{
		byAttempt: index(func(_ *corev1.Pod, k key) string { return k.attempt() }),
		byNode:    index(func(p *corev1.Pod, _ key) string { return p.Spec.NodeName }),
	}
}

// list returns all pods of jobs.
func (c podCache) list() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, informer := range c {
		pods = append(pods, podsIn(informer.GetStore().List())...)
	}
	return pods
}

func podsIn(objects []any) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			pods = append(pods, p)
		}
	}
	return pods
}

// slim drops fields that nothing here reads. They would be most of the cache.
func slim(o any) (any, error) {
	if accessor, ok := o.(metav1.ObjectMetaAccessor); ok {
		accessor.GetObjectMeta().SetManagedFields(nil)
	}
	switch o := o.(type) {
	case *corev1.Pod:
		o.Spec.Volumes, o.Spec.Affinity, o.Spec.Tolerations, o.Spec.HostAliases = nil, nil, nil, nil
		for i := range o.Spec.Containers {
			c := &o.Spec.Containers[i]
			c.Env, c.VolumeMounts, c.Command, c.Args = nil, nil, nil, nil
		}
	case *corev1.Node:
		o.Status.Images = nil
	}
	return o, nil
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("reach Kubernetes from its own pod (is executor.kubeconfig missing?): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read executor.kubeconfig: %w", err)
	}
	return config, nil
}

// observeNode notes whether a node is ready, by the clock of this process. It returns true if the node has just
// ceased to be.
func (c *cluster) observeNode(n *corev1.Node, deleted bool) (silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !deleted && isReady(n) {
		delete(c.notReady, n.Name)
		return false
	}
	_, known := c.notReady[n.Name]
	if !known {
		c.notReady[n.Name] = time.Now()
	}
	return !known
}

// jobsOn returns the jobs with pods on a node.
func (c *cluster) jobsOn(node string) []train.JobID {
	var jobs []train.JobID
	for namespace := range c.pods {
		for _, p := range c.pods.indexed(namespace, byNode, node) {
			if k, found := keyFrom(p); found {
				jobs = append(jobs, k.job)
			}
		}
	}
	return jobs
}

// all returns the pods of a namespace that the cache has.
func (c podCache) all(namespace string) (pods []*corev1.Pod) {
	if informer := c[namespace]; informer != nil {
		for _, o := range informer.GetStore().List() {
			if p, is := o.(*corev1.Pod); is {
				pods = append(pods, p)
			}
		}
	}
	return pods
}

// indexed returns the pods of a namespace that the cache has under a value of an index.
func (c podCache) indexed(namespace, index, value string) []*corev1.Pod {
	informer := c[namespace]
	if informer == nil {
		return nil // the operator has taken it from the settings
	}
	found, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // there is such an index
	}
	return podsIn(found)
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodeGrace returns how long a node that is not ready may stay so until its pods are given up.
func (c *cluster) nodeGrace(name string) (left time.Duration, silent bool) {
	if name == "" {
		return 0, false
	}
	_, err := c.nodeList.Get(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	since, silent := c.notReady[name]
	if err != nil && !silent {
		since, silent = time.Now(), true
		c.notReady[name] = since
	}
	return c.options.NodeLostAfter - time.Since(since), silent
}

// lost reports whether a node has not been ready for too long.
func (c *cluster) lost(name string) bool {
	left, silent := c.nodeGrace(name)
	return silent && left < 0
}

// podsOf returns the pods of an attempt that the cache knows, by rank.
func (c *cluster) podsOf(k key) []*corev1.Pod {
	pods := c.pods.indexed(k.namespace, byAttempt, k.attempt())
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return cmp.Compare(rankOf(x), rankOf(y)) })
	return pods
}

// list asks the API server for the pods of an attempt.
func (c *cluster) list(ctx context.Context, k key) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	found, err := c.client.CoreV1().Pods(k.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: fmt.Sprintf("%s,%s=%s,%s=%d", selector, labelJob, k.slug(), labelAttempt, k.number),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", k.job, err)
	}
	var pods []*corev1.Pod
	for i := range found.Items {
		if k.has(&found.Items[i]) {
			pods = append(pods, &found.Items[i])
		}
	}
	return pods, nil
}

// warnings returns what Kubernetes last reported about pods that do not start, such as a folder that cannot be
// mounted.
func (c *cluster) warnings(ctx context.Context, pods []*corev1.Pod) string {
	for _, p := range pods {
		if p.Status.Phase != corev1.PodPending {
			continue
		}
		events, err := c.client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.uid": string(p.UID), "type": corev1.EventTypeWarning}.String(),
		})
		if err != nil || len(events.Items) == 0 {
			continue
		}
		last := slices.MaxFunc(events.Items, func(x, y corev1.Event) int { return x.LastTimestamp.Compare(y.LastTimestamp.Time) })
		return "; " + words(last.Reason, last.Message)
	}
	return ""
}

// recheckAfter returns the delay after which the same pods may have another status: when a limit of pods that do not
// run yet runs out, or the grace of a node that is not ready.
func (c *cluster) recheckAfter(v view, phase launch.Phase) time.Duration {
	var waits []time.Duration
	for _, p := range v.pods {
		if left, silent := c.nodeGrace(p.Spec.NodeName); silent {
			waits = append(waits, left)
		}
	}
	if phase == launch.Starting || phase == launch.Absent {
		waits = append(waits, v.limits.ScheduleLimit-v.waited, v.limits.StartLimit-v.waited, imageTime-v.waited)
	}
	waits = slices.DeleteFunc(waits, func(d time.Duration) bool { return d < 0 })
	if len(waits) == 0 {
		return 0
	}
	return max(slices.Min(waits), launch.Soon)
}
