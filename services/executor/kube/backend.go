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
	// dirty are the attempts of which there was news since the last look, since is when pods of an attempt were first waited for.
	dirty   map[key]bool
	since   map[key]time.Time
	secrets map[key]secret
	// refused are attempts that were ended before they had pods.
	refused map[key]train.Exit
	// silent is since when a node has not been ready.
	silent map[string]time.Time
	// searched is when Secrets without pods were last searched for.
	searched time.Time
}

// byAttempt is the index of pods by attempt.
const byAttempt = "attempt"

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
		dirty: map[key]bool{}, since: map[key]time.Time{}, secrets: map[key]secret{}, refused: map[key]train.Exit{}, silent: map[string]time.Time{},
	}
	b.podCache = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }), informers.WithTransform(slim))
	b.allCache = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	b.pods, b.nodes = b.podCache.Core().V1().Pods().Informer(), b.allCache.Core().V1().Nodes().Informer()
	b.nodeList = b.allCache.Core().V1().Nodes().Lister()
	err := b.pods.AddIndexers(cache.Indexers{byAttempt: func(o any) ([]string, error) {
		if p, ok := o.(*corev1.Pod); ok {
			if k, found := keyFrom(p); found {
				return []string{k.base()}, nil
			}
		}
		return nil, nil
	}})
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
func (b *Backend) Run(ctx context.Context, changed func()) error {
	news := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if p, ok := o.(*corev1.Pod); ok {
			if k, found := keyFrom(p); found {
				b.markDirty(k)
				changed()
			}
		}
	}
	_, podErr := b.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: news, UpdateFunc: func(_, o any) { news(o) }, DeleteFunc: news})
	_, nodeErr := b.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: b.seeNode, UpdateFunc: func(_, o any) { b.seeNode(o) }, DeleteFunc: b.loseNode,
	})
	if err := errors.Join(podErr, nodeErr); err != nil {
		return fmt.Errorf("watch Kubernetes: %w", err)
	}
	b.podCache.Start(ctx.Done())
	b.allCache.Start(ctx.Done())
	defer b.podCache.Shutdown()
	defer b.allCache.Shutdown()
	work := pool.New().WithContext(ctx)
	work.Go(func(ctx context.Context) error { return b.becomeReady(ctx, changed) })
	for range b.options.CallsInOneTime {
		work.Go(func(ctx context.Context) error {
			b.desk.work(ctx, func(k key) { b.markDirty(k); changed() })
			return nil
		})
	}
	return work.Wait()
}

// becomeReady fills the caches and reads the key, however long the API server takes to answer.
func (b *Backend) becomeReady(ctx context.Context, changed func()) error {
	again := time.NewTicker(2 * time.Second)
	defer again.Stop()
	for said := ""; ctx.Err() == nil; {
		data, err := b.readKey(ctx)
		if err == nil && cache.WaitForCacheSync(ctx.Done(), b.pods.HasSynced, b.nodes.HasSynced) {
			b.mu.Lock()
			b.ready, b.keyData = true, data
			b.mu.Unlock()
			changed()
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

func (b *Backend) markDirty(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty[k] = true
}

func (b *Backend) seeNode(o any) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if isReady(n) {
		delete(b.silent, n.Name)
		return
	}
	b.noteSilent(n.Name)
}

func (b *Backend) loseNode(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if n, ok := o.(*corev1.Node); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.noteSilent(n.Name)
	}
}

// noteSilent takes down since when a node is silent, by the clock of this process.
func (b *Backend) noteSilent(name string) {
	if _, known := b.silent[name]; !known {
		b.silent[name] = time.Now()
	}
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// lost says that a node has been silent for too long.
func (b *Backend) lost(name string) bool {
	if name == "" {
		return false
	}
	_, err := b.nodeList.Get(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.noteSilent(name)
	}
	since, silent := b.silent[name]
	return silent && time.Since(since) > b.options.NodeLostAfter
}

// Mounts is so: pods see their folders under the fixed names.
func (b *Backend) Mounts(train.Spec) bool { return true }

// Follow has nothing to do: the cache tells of every pod.
func (b *Backend) Follow(context.Context, train.Attempt, launch.Sight, func()) {}

// Quiet says that there was no news of an attempt since the last look.
func (b *Backend) Quiet(a train.Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.dirty[keyOf(a)]
}

// Collect has nothing to do.
func (b *Backend) Collect() {}

// Close has nothing to do: Run has waited.
func (b *Backend) Close() {}
