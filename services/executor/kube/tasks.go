package kube

import (
	"context"
	"sync"
	"time"
)

// taskQueue runs calls to the API server outside of the loop that decides, one at a time for each attempt.
type taskQueue struct {
	mu     sync.Mutex
	busy   map[key]bool
	failed map[key]error
	tasks  chan task
}

type task struct {
	key key
	do  func(ctx context.Context) error
}

// maxTasks bounds the queue; what does not fit is begun again later.
const maxTasks = 1 << 14

// taskTime bounds a task. Within it, the client repeats what the API server has put off.
const taskTime = time.Minute

func newTaskQueue() *taskQueue {
	return &taskQueue{busy: map[key]bool{}, failed: map[key]error{}, tasks: make(chan task, maxTasks)}
}

// begin queues a task unless another one of the attempt is queued or running.
func (q *taskQueue) begin(k key, do func(ctx context.Context) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[k] {
		return
	}
	select {
	case q.tasks <- task{k, do}:
		q.busy[k] = true
	default:
	}
}

// state reports whether a task of an attempt is queued or running, and how the last one ended.
func (q *taskQueue) state(k key) (busy bool, last error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy[k], q.failed[k]
}

func (q *taskQueue) forget(k key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failed, k)
}

// work runs queued tasks until ctx ends; it calls done after each task.
func (q *taskQueue) work(ctx context.Context, done func(key)) {
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-q.tasks:
			q.do(ctx, t)
			done(t.key)
		}
	}
}

func (q *taskQueue) do(ctx context.Context, t task) {
	ctx, cancel := context.WithTimeout(ctx, taskTime)
	defer cancel()
	err := t.do(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, t.key)
	delete(q.failed, t.key)
	if err != nil {
		q.failed[t.key] = err
	}
}
