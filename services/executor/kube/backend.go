package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Backend starts, watches and ends attempts on a cluster.
type Backend struct {
	options   Options
	killAfter time.Duration
	log       *slog.Logger
	client    kubernetes.Interface
	podCache  informers.SharedInformerFactory
	allCache  informers.SharedInformerFactory
	pods      cache.SharedIndexInformer
	nodes     cache.SharedIndexInformer
	nodeList  corelisters.NodeLister
	desk      *desk

	mu sync.Mutex
	// ready is set when the caches were filled and the key is known.
	ready   bool
	keyData []byte
	// since is when pods of an attempt were first waited for.
	since   map[key]time.Time
	secrets map[key]secret
	// refused are attempts that were ended before they had pods.
	refused   map[key]train.Exit
	resizings map[key]*resizing
	// silent is since when a node has not been ready.
	silent map[string]time.Time
	// searched is when Secrets without pods were last searched for.
	searched time.Time
}

// The indices of pods: by their attempt, and by the node that they are on.
const (
	byAttempt = "attempt"
	byNode    = "node"
)

// New makes a back end for the cluster that the options name. It asks the cluster nothing yet.
func New(_ context.Context, o Options, killAfter time.Duration, log *slog.Logger) (*Backend, error) {
	config, err := clientConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.QueriesPerSec, int(o.QueriesPerSec)
	config.UserAgent = "switchyard-executor"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return newBackend(client, o, killAfter, log)
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("reach Kubernetes from its own pod (is --kubeconfig missing?): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig: %w", err)
	}
	return config, nil
}

func newBackend(client kubernetes.Interface, o Options, killAfter time.Duration, log *slog.Logger) (*Backend, error) {
	b := &Backend{
		options: o, killAfter: killAfter, log: log, client: client, desk: newDesk(),
		since: map[key]time.Time{}, secrets: map[key]secret{}, refused: map[key]train.Exit{}, resizings: map[key]*resizing{}, silent: map[string]time.Time{},
	}
	b.podCache = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }), informers.WithTransform(slim))
	b.allCache = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	b.pods, b.nodes = b.podCache.Core().V1().Pods().Informer(), b.allCache.Core().V1().Nodes().Informer()
	b.nodeList = b.allCache.Core().V1().Nodes().Lister()
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
	err := b.pods.AddIndexers(cache.Indexers{
		byAttempt: index(func(_ *corev1.Pod, k key) string { return k.base() }),
		byNode:    index(func(p *corev1.Pod, _ key) string { return p.Spec.NodeName }),
	})
	if err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	return b, nil
}

// slim drops what nobody here reads, most of what a cache of many pods would hold.
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

// Run keeps the caches and does what was begun, until ctx ends.
func (b *Backend) Run(ctx context.Context, news func(...train.JobID)) error {
	see := func(o any, deleted bool) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		switch o := o.(type) {
		case *corev1.Pod:
			if k, found := keyFrom(o); found {
				news(k.job)
			}
		case *corev1.Node:
			if b.seeNode(o, deleted) {
				news(b.jobsOn(o.Name)...)
			}
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { see(o, false) }, UpdateFunc: func(_, o any) { see(o, false) }, DeleteFunc: func(o any) { see(o, true) },
	}
	_, podErr := b.pods.AddEventHandler(handler)
	_, nodeErr := b.nodes.AddEventHandler(handler)
	if err := errors.Join(podErr, nodeErr); err != nil {
		return fmt.Errorf("watch Kubernetes: %w", err)
	}
	b.podCache.Start(ctx.Done())
	b.allCache.Start(ctx.Done())
	defer b.podCache.Shutdown()
	defer b.allCache.Shutdown()
	work := pool.New().WithContext(ctx)
	work.Go(func(ctx context.Context) error { return b.becomeReady(ctx, news) })
	for range b.options.CallsInOneTime {
		work.Go(func(ctx context.Context) error {
			b.desk.work(ctx, func(k key) { news(k.job) })
			return nil
		})
	}
	return work.Wait()
}

// becomeReady fills the caches and reads the key, however long the API server takes to answer.
func (b *Backend) becomeReady(ctx context.Context, news func(...train.JobID)) error {
	again := time.NewTicker(2 * time.Second)
	defer again.Stop()
	for said := ""; ctx.Err() == nil; {
		data, err := b.readKey(ctx)
		if err == nil && cache.WaitForCacheSync(ctx.Done(), b.pods.HasSynced, b.nodes.HasSynced) {
			b.mu.Lock()
			b.ready, b.keyData = true, data
			b.mu.Unlock()
			news()
			return nil
		}
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			b.log.Warn("Kubernetes cannot be used yet", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
	return nil
}

var errNotReady = errors.New("the pods of the cluster have not been listed yet")

// Ready gives nil when looking tells something.
func (b *Backend) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready {
		return errNotReady
	}
	return nil
}

// seeNode notes whether a node is ready, by the clock of this process; silent says that it has just ceased to be.
func (b *Backend) seeNode(n *corev1.Node, deleted bool) (silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !deleted && isReady(n) {
		delete(b.silent, n.Name)
		return false
	}
	_, known := b.silent[n.Name]
	if !known {
		b.silent[n.Name] = time.Now()
	}
	return !known
}

// jobsOn are the jobs with pods on a node.
func (b *Backend) jobsOn(node string) []train.JobID {
	var jobs []train.JobID
	for _, p := range b.indexed(byNode, node) {
		if k, found := keyFrom(p); found {
			jobs = append(jobs, k.job)
		}
	}
	return jobs
}

// indexed are the pods that the cache knows under a value of an index.
func (b *Backend) indexed(index, value string) []*corev1.Pod {
	found, err := b.pods.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // there is such an index
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, o := range found {
		if p, ok := o.(*corev1.Pod); ok {
			pods = append(pods, p)
		}
	}
	return pods
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// patience is how long a node that is silent may be so until its pods are given up.
func (b *Backend) patience(name string) (left time.Duration, silent bool) {
	if name == "" {
		return 0, false
	}
	_, err := b.nodeList.Get(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	since, silent := b.silent[name]
	if err != nil && !silent {
		since, silent = time.Now(), true
		b.silent[name] = since
	}
	return b.options.NodeLostAfter - time.Since(since), silent
}

// lost says that a node has been silent for too long.
func (b *Backend) lost(name string) bool {
	left, silent := b.patience(name)
	return silent && left < 0
}

// Mounts is so: pods see their folders under the fixed names.
func (b *Backend) Mounts(train.Spec) bool { return true }

// Follow has nothing to do: the cache tells of every pod.
func (b *Backend) Follow(context.Context, train.Attempt, launch.Sight, func()) {}

// Collect has nothing to do.
func (b *Backend) Collect() {}

// Close has nothing to do: Run has waited.
func (b *Backend) Close() {}
