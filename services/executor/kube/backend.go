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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// Backend starts, watches and ends attempts on a cluster.
type Backend struct {
	*cluster
	*secretStore
	*resizer
	conditions *conditions
	killAfter  time.Duration
	// data are the terms on which pods fetch theirs.
	data  staging.Terms
	queue *taskQueue

	mu sync.Mutex
	// ready is set when the caches are filled and the key is known.
	ready bool
	// waitingSince is when pods of an attempt were first waited for.
	waitingSince map[key]time.Time
	// refused are attempts that were ended before they had pods.
	refused map[key]train.Exit
	// unremoved are ended attempts of which something may be left in the cluster.
	unremoved map[key]bool
}

// New makes a back end for the cluster that the options name. It does not contact the cluster yet.
func New(o Options, data staging.Terms, killAfter time.Duration, log *slog.Logger) (*Backend, error) {
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
	return newBackend(client, o, data, killAfter, log)
}

func newBackend(client kubernetes.Interface, o Options, data staging.Terms, killAfter time.Duration, log *slog.Logger) (*Backend, error) {
	c, err := newCluster(client, o, log)
	if err != nil {
		return nil, err
	}
	return &Backend{
		cluster: c, secretStore: &secretStore{cluster: c, secrets: map[key]secret{}}, resizer: &resizer{cluster: c, resizings: map[key]*resizing{}},
		conditions: newConditions(), data: data, killAfter: killAfter, queue: newTaskQueue(), waitingSince: map[key]time.Time{}, refused: map[key]train.Exit{}, unremoved: map[key]bool{},
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
	work := pool.New().WithContext(ctx)
	for _, watched := range b.watched() {
		if _, err := watched.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch Kubernetes: %w", err)
		}
	}
	for _, watched := range b.watched() {
		work.Go(func(ctx context.Context) error {
			watched.RunWithContext(ctx)
			return nil
		})
	}
	work.Go(func(ctx context.Context) error { return b.becomeReady(ctx, notify) })
	work.Go(func(ctx context.Context) error {
		for range tick.Every(ctx, removeInterval) {
			b.removeAgain()
		}
		return nil
	})
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
		if err == nil {
			err = b.mayWork(ctx)
		}
		if err == nil && b.synced(ctx) {
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

// mayWork returns an error that names the first namespace of jobs in which the executor may not even list pods.
func (b *Backend) mayWork(ctx context.Context) error {
	for _, namespace := range b.options.Namespaces() {
		if _, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1}); err != nil {
			return fmt.Errorf("list the pods of jobs in the namespace %s (has deploy/k8s/tenant been applied to it?): %w", namespace, err)
		}
	}
	return nil
}

func (b *Backend) synced(ctx context.Context) bool {
	var synced []cache.InformerSynced
	for _, watched := range b.watched() {
		synced = append(synced, watched.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
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

// Namespace returns where the pods of a job are to be: its tenant's namespace, or that of all others.
func (b *Backend) Namespace(spec train.Spec) string { return b.options.NamespaceOf(spec.Tenant) }

// Mounts returns true: pods see their folders under the fixed names.
func (b *Backend) Mounts(train.Spec) bool { return true }

// Follow does nothing: the cache reports every change of a pod.
func (b *Backend) Follow(context.Context, train.Attempt, launch.Status, func()) {}
