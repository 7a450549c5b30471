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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Backend starts, watches and ends attempts on a cluster.
type Backend struct {
	*cluster
	*secretStore
	*resizer
	conditions *conditions
	killAfter  time.Duration
	queue      *taskQueue

	mu sync.Mutex
	// ready is set when the caches are filled and the key is known.
	ready bool
	// waitingSince is when pods of an attempt were first waited for.
	waitingSince map[key]time.Time
	// refused are attempts that were ended before they had pods.
	refused map[key]train.Exit
	// secretsSearched is when Secrets without pods were last searched for.
	secretsSearched time.Time
}

// New makes a back end for the cluster that the options name. It does not contact the cluster yet.
func New(o Options, killAfter time.Duration, log *slog.Logger) (*Backend, error) {
	config, err := clientConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = queriesPerSecond, queriesPerSecond
	config.UserAgent = "switchyard-executor"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return newBackend(client, o, killAfter, log)
}

func newBackend(client kubernetes.Interface, o Options, killAfter time.Duration, log *slog.Logger) (*Backend, error) {
	c, err := newCluster(client, o, log)
	if err != nil {
		return nil, err
	}
	return &Backend{
		cluster: c, secretStore: &secretStore{cluster: c, secrets: map[key]secret{}}, resizer: &resizer{cluster: c, resizings: map[key]*resizing{}},
		conditions: newConditions(), killAfter: killAfter, queue: newTaskQueue(), waitingSince: map[key]time.Time{}, refused: map[key]train.Exit{},
	}, nil
}

// Run maintains the caches and works on queued tasks until ctx ends.
func (b *Backend) Run(ctx context.Context, notify func(...train.JobID)) error {
	see := func(o any, deleted bool) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		switch o := o.(type) {
		case *corev1.Pod:
			if k, found := keyFrom(o); found {
				notify(k.job)
			}
		case *corev1.Node:
			b.conditions.observe(o, deleted, b.options.Tolerate, time.Now().UTC())
			if b.observeNode(o, deleted) {
				notify(b.jobsOn(o.Name)...)
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
	work.Go(func(ctx context.Context) error { return b.becomeReady(ctx, notify) })
	for range attemptsAtOnce {
		work.Go(func(ctx context.Context) error {
			b.queue.work(ctx, func(k key) { notify(k.job) })
			return nil
		})
	}
	return work.Wait()
}

// becomeReady fills the caches and reads the key, however long the API server takes to answer.
func (b *Backend) becomeReady(ctx context.Context, notify func(...train.JobID)) error {
	text := ""
	for range tick.Every(ctx, 2*time.Second) {
		data, err := b.readKey(ctx)
		if err == nil && cache.WaitForCacheSync(ctx.Done(), b.pods.HasSynced, b.nodes.HasSynced) {
			b.useKey(data)
			b.mu.Lock()
			b.ready = true
			b.mu.Unlock()
			notify()
			return nil
		}
		if err != nil && err.Error() != text && ctx.Err() == nil {
			text = err.Error()
			b.log.Warn("Kubernetes cannot be used yet", "error", err)
		}
	}
	return nil
}

var errNotReady = errors.New("the pods of the cluster have not been listed yet")

// Ready returns nil once statuses mean something.
func (b *Backend) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready {
		return errNotReady
	}
	return nil
}

// Mounts returns true: pods see their folders under the fixed names.
func (b *Backend) Mounts(train.Spec) bool { return true }

// Follow does nothing: the cache reports every change of a pod.
func (b *Backend) Follow(context.Context, train.Attempt, launch.Status, func()) {}
