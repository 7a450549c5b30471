// Package kubejobs makes jobs of the TrainingJob objects of Kubernetes and writes back what becomes of them. What that
// means is decided by package trainingjob.
package kubejobs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
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
	jobs   Jobs
	log    *slog.Logger
	now    func() time.Time
}

// New makes a controller for a cluster.
func New(config *rest.Config, jobs Jobs, log *slog.Logger, now func() time.Time) (*Controller, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = queriesPerSecond, queriesPerSecond
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return &Controller{client: client, jobs: jobs, log: log, now: now}, nil
}

func resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: trainingjob.Group, Version: trainingjob.Version, Resource: trainingjob.Resource}
}

// turn is one run of the controller: its cache, and what it has to look at.
type turn struct {
	*Controller
	objects cache.SharedIndexInformer
	queue   workqueue.TypedRateLimitingInterface[string]
}

// Run watches objects and jobs until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	t := turn{
		Controller: c,
		objects:    dynamicinformer.NewFilteredDynamicInformer(c.client, resource(), metav1.NamespaceAll, 0, cache.Indexers{byJob: jobOf}, nil).Informer(),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: t.add, UpdateFunc: func(_, o any) { t.add(o) },
	}
	if _, err := t.objects.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watch %s: %w", trainingjob.Resource, err)
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
func jobOf(o any) ([]string, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	id, _, _ := unstructured.NestedString(u.Object, "status", "jobID")
	if id == "" {
		return nil, nil
	}
	return []string{id}, nil
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
	o, err := trainingjob.Read(u.Object)
	if err != nil {
		return err
	}
	m := o.Metadata
	known, err := t.jobs.Job(ctx, m.Namespace, o.Account(), o.JobID())
	if err != nil {
		return err
	}
	step := trainingjob.Next(o, known)
	if step.Hold {
		return t.finalize(ctx, o, true)
	}
	var refused *trainingjob.Refusal
	for _, r := range step.Publish {
		if refused, err = t.jobs.Publish(ctx, m.Namespace, o.Account(), r); err != nil {
			return err
		}
		if refused != nil {
			break
		}
	}
	if step.Release && refused == nil {
		return t.finalize(ctx, o, false)
	}
	return t.write(ctx, o, trainingjob.After(o, step, refused, known, t.now()))
}

// finalize sets or removes our finalizer. The API server refuses if the object has changed meanwhile.
func (t turn) finalize(ctx context.Context, o trainingjob.Object, held bool) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion, "finalizers": o.Finalizers(held),
	}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	_, err = t.of(o).Patch(ctx, o.Metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return err
}

// write writes the status of an object, unless it says so already.
func (t turn) write(ctx context.Context, o trainingjob.Object, s trainingjob.Status) error {
	before, err := plain(o.Status)
	if err != nil {
		return err
	}
	after, err := plain(s)
	if err != nil || reflect.DeepEqual(before, after) {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource().GroupVersion().String(), "kind": trainingjob.Kind,
		"metadata": map[string]any{"name": o.Metadata.Name, "namespace": o.Metadata.Namespace, "uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion},
		"status":   after,
	}}
	_, err = t.of(o).ApplyStatus(ctx, o.Metadata.Name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

func (t turn) of(o trainingjob.Object) dynamic.ResourceInterface {
	return t.client.Resource(resource()).Namespace(o.Metadata.Namespace)
}

// plain returns a status as JSON objects.
func plain(s trainingjob.Status) (map[string]any, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("decode a status: %w", err)
	}
	return object, nil
}
