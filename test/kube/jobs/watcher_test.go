package jobs

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// The executor's defaults, for the loop that is compared with it.
const (
	queriesPerSec  = 1000
	callsInOneTime = 16
)

// client returns a client like the executor's.
func (y *yard) client() kubernetes.Interface {
	y.t.Helper()
	config, err := y.cluster.Config()
	y.must(err)
	config.QPS, config.Burst = queriesPerSec, queriesPerSec
	client, err := kubernetes.NewForConfig(config)
	y.must(err)
	return client
}

// moments are the times at which a watcher of the pods saw changes of one. Kubernetes' own times are whole seconds.
type moments struct{ made, ran, leaving time.Time }

// podWatcher watches the pods of a namespace.
type podWatcher struct {
	mu   sync.Mutex
	seen map[string]moments
	news chan struct{}
}

// podWatcher begins before the call returns and ends with the test. It resumes when the API server ends a watch, as it
// does with slow readers.
func (y *yard) podWatcher(client kubernetes.Interface, namespace string) *podWatcher {
	y.t.Helper()
	ctx, cancel := context.WithCancel(y.ctx)
	w := &podWatcher{seen: map[string]moments{}, news: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { w.see(o, false) }, UpdateFunc: func(_, o any) { w.see(o, false) }, DeleteFunc: func(o any) { w.see(o, true) },
	})
	y.must(err)
	factory.Start(ctx.Done())
	y.t.Cleanup(func() { cancel(); factory.Shutdown() })
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		y.t.Fatalf("the pods of %s are not listed", namespace)
	}
	return w
}

func (w *podWatcher) see(o any, deleted bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m, now := w.seen[p.Name], time.Now()
	if m.made.IsZero() {
		m.made = now
	}
	if m.ran.IsZero() && len(p.Status.ContainerStatuses) > 0 && (p.Status.ContainerStatuses[0].State.Running != nil || p.Status.ContainerStatuses[0].State.Terminated != nil) {
		m.ran = now
	}
	if m.leaving.IsZero() && (p.DeletionTimestamp != nil || deleted) {
		m.leaving = now
	}
	w.seen[p.Name] = m
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// of returns the moments of a pod so far.
func (w *podWatcher) of(name string) moments {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[name]
}

// last returns how many pods with a prefix have reached a moment, and when the last one did.
func (w *podWatcher) last(prefix string, moment func(moments) time.Time) (n int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, m := range w.seen {
		if t := moment(m); strings.HasPrefix(name, prefix) && !t.IsZero() {
			n++
			if t.After(at) {
				at = t
			}
		}
	}
	return n, at
}

func made(m moments) time.Time    { return m.made }
func ran(m moments) time.Time     { return m.ran }
func leaving(m moments) time.Time { return m.leaving }

// await waits until a number of pods with a prefix have reached a moment. Counting thousands of pods at each change
// would take processors from the measured programs.
func (y *yard) await(w *podWatcher, prefix string, n int, moment func(moments) time.Time) time.Time {
	y.t.Helper()
	for {
		count, at := w.last(prefix, moment)
		if count >= n {
			return at
		}
		if n > 1 {
			pause := time.NewTimer(200 * time.Millisecond)
			select {
			case <-pause.C:
			case <-y.ctx.Done():
				y.t.Fatalf("%d of %d pods %s*", count, n, prefix)
			}
			continue
		}
		select {
		case <-w.news:
		case <-y.ctx.Done():
			y.t.Fatalf("pod %s* not seen in time", prefix)
		}
	}
}
