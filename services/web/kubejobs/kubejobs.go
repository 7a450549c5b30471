// Package kubejobs makes jobs of the TrainingJob objects of Kubernetes, and of objects that ask for the same, and
// writes back what becomes of them. What that means is decided by package trainingjob.
package kubejobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc/pool"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/trainingjob"
)

const (
	// manager is the field manager of statuses.
	manager = "switchyard"
	// queriesPerSecond is the most requests to the API server.
	queriesPerSecond = 50
	// workers is the number of objects that are looked at at the same time.
	workers = 2
	// lookEvery is how often all objects are looked at: progress, energy and predictions change without a change of state.
	lookEvery = 10 * time.Second
)

// byJob is the index of objects by the id of their job.
const byJob = "job"

// Jobs are the jobs of the installation.
type Jobs interface {
	// Job returns what is known about a job of an account; nothing if it is another user's.
	Job(ctx context.Context, namespace, account string, id train.JobID) (trainingjob.Known, error)
	// Publish publishes a fact as an account. refused says why the fact will never be published.
	Publish(ctx context.Context, namespace, account string, r trainingjob.Request) (refused *trainingjob.Refusal, err error)
	// Follow calls changed with the jobs whose records change, until ctx ends.
	Follow(ctx context.Context, changed func([]train.JobID))
}

// Controller keeps jobs and objects alike.
type Controller struct {
	client dynamic.Interface
	kinds  []trainingjob.Kind
	jobs   Jobs
	log    *slog.Logger
	now    func() time.Time
}

// New makes a controller of some kinds of objects of a cluster.
func New(config *rest.Config, kinds []trainingjob.Kind, jobs Jobs, log *slog.Logger, now func() time.Time) (*Controller, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = queriesPerSecond, queriesPerSecond
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return &Controller{client: client, kinds: kinds, jobs: jobs, log: log, now: now}, nil
}

// turn is one run of the controller for one kind: its cache, and what it has to look at.
type turn struct {
	*Controller
	kind    trainingjob.Kind
	objects cache.SharedIndexInformer
	queue   workqueue.TypedRateLimitingInterface[string]
}

// Run watches objects and jobs until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	work := pool.New().WithContext(ctx)
	for _, kind := range c.kinds {
		work.Go(func(ctx context.Context) error { return c.run(ctx, kind) })
	}
	return work.Wait()
}

// run watches the objects of one kind, and their jobs.
func (c *Controller) run(ctx context.Context, kind trainingjob.Kind) error {
	t := turn{Controller: c, kind: kind, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	t.objects = dynamicinformer.NewFilteredDynamicInformer(c.client, t.resource(), metav1.NamespaceAll, 0, cache.Indexers{byJob: t.jobOf}, nil).Informer()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: t.add, UpdateFunc: func(_, o any) { t.add(o) },
	}
	if _, err := t.objects.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watch %s: %w", kind.Resource, err)
	}
	work := pool.New().WithContext(ctx)
	work.Go(func(ctx context.Context) error {
		t.objects.RunWithContext(ctx)
		return nil
	})
	work.Go(func(ctx context.Context) error {
		t.jobs.Follow(ctx, t.changed)
		return nil
	})
	work.Go(func(ctx context.Context) error {
		for range tick.Every(ctx, lookEvery) {
			for _, key := range t.objects.GetStore().ListKeys() {
				t.queue.Add(key)
			}
		}
		t.queue.ShutDown()
		return nil
	})
	for range workers {
		work.Go(t.work)
	}
	return work.Wait()
}

func (t turn) add(o any) {
	if key, err := cache.MetaNamespaceKeyFunc(o); err == nil {
		t.queue.Add(key)
	}
}

// changed has the objects of jobs looked at.
func (t turn) changed(jobs []train.JobID) {
	for _, id := range jobs {
		keys, err := t.objects.GetIndexer().IndexKeys(byJob, string(id))
		if err != nil {
			t.log.Error("find the objects of a job", "error", err)
		}
		for _, key := range keys {
			t.queue.Add(key)
		}
	}
}

// jobOf is the id of the job of an object.
func (t turn) jobOf(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	o, mine, err := t.kind.Read(u.Object)
	if err != nil || !mine || o.Status.JobID == "" {
		return nil, nil //nolint:nilerr // look reports it
	}
	return []string{string(o.Status.JobID)}, nil
}

// work looks at objects of the queue until it is shut down. What failed is looked at again, after a growing delay.
func (t turn) work(ctx context.Context) error {
	for {
		key, closed := t.queue.Get()
		if closed {
			return nil
		}
		err := t.look(ctx, key)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			t.queue.Forget(key)
		case ctx.Err() == nil:
			if !apierrors.IsConflict(err) {
				t.log.Warn("an object waits for another try", "object", key, "error", err)
			}
			t.queue.AddRateLimited(key)
		}
		t.queue.Done(key)
	}
}

// look does what an object asks for, and writes its status.
func (t turn) look(ctx context.Context, key string) error {
	found, exists, err := t.objects.GetStore().GetByKey(key)
	if err != nil || !exists {
		return err
	}
	u, ok := found.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	o, mine, err := t.kind.Read(u.Object)
	if err != nil || !mine {
		return err
	}
	m := o.Metadata
	known, err := t.jobs.Job(ctx, m.Namespace, o.Account(), o.JobID())
	if err != nil {
		return err
	}
	step := trainingjob.Next(o, known)
	if step.Hold {
		return t.finalize(ctx, o, true, step.Suspend)
	}
	refused := step.Refused
	for _, r := range step.Publish {
		if refused, err = t.jobs.Publish(ctx, m.Namespace, o.Account(), r); err != nil {
			return err
		}
		if refused != nil {
			break
		}
	}
	if step.Release && refused == nil {
		return t.finalize(ctx, o, false, false)
	}
	return t.write(ctx, o, u.Object["status"], trainingjob.After(o, step, refused, known, t.now()))
}

// finalize sets or removes our finalizer, and may suspend the object with it. The API server refuses if the object has
// changed meanwhile.
func (t turn) finalize(ctx context.Context, o trainingjob.Object, held, suspend bool) error {
	changes := map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion, "finalizers": o.Finalizers(held),
	}}
	if suspend {
		changes["spec"] = map[string]any{"suspend": true}
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	_, err = t.of(o).Patch(ctx, o.Metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return err
}

// write writes the status of an object, unless it says so already.
func (t turn) write(ctx context.Context, o trainingjob.Object, before any, s trainingjob.Status) error {
	after, err := t.kind.Status(s, t.now())
	if err != nil {
		return err
	}
	had, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	has, err := json.Marshal(after)
	if err != nil || bytes.Equal(had, has) {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": t.resource().GroupVersion().String(), "kind": t.kind.Name,
		"metadata": map[string]any{"name": o.Metadata.Name, "namespace": o.Metadata.Namespace, "uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion},
		"status":   after,
	}}
	_, err = t.of(o).ApplyStatus(ctx, o.Metadata.Name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

func (t turn) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.kind.Group, Version: t.kind.Version, Resource: t.kind.Resource}
}

func (t turn) of(o trainingjob.Object) dynamic.ResourceInterface {
	return t.client.Resource(t.resource()).Namespace(o.Metadata.Namespace)
}
