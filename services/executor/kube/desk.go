package kube

import (
	"context"
	"sync"
	"time"
)

// desk does calls to the API server beside the loop that decides, one thing at a time for an attempt.
type desk struct {
	mu     sync.Mutex
	busy   map[key]bool
	failed map[key]error
	tasks  chan task
}

type task struct {
	key key
	do  func(ctx context.Context) error
}

// mostTasks bounds what waits to be done; what finds no room is begun again later.
const mostTasks = 1 << 14

// taskTime bounds a task: within it the client repeats what the API server has put off.
const taskTime = time.Minute

func newDesk() *desk {
	return &desk{busy: map[key]bool{}, failed: map[key]error{}, tasks: make(chan task, mostTasks)}
}

// begin has something done unless something else is being done for the attempt.
func (d *desk) begin(k key, do func(ctx context.Context) error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[k] {
		return false
	}
	select {
	case d.tasks <- task{k, do}:
		d.busy[k] = true
		return true
	default:
		return false
	}
}

// state says whether something is being done for an attempt, and how the last thing went.
func (d *desk) state(k key) (busy bool, last error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy[k], d.failed[k]
}

func (d *desk) forget(k key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failed, k)
}

// work does what is begun until ctx ends; done is called after each task.
func (d *desk) work(ctx context.Context, done func(key)) {
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-d.tasks:
			d.do(ctx, t)
			done(t.key)
		}
	}
}

func (d *desk) do(ctx context.Context, t task) {
	ctx, cancel := context.WithTimeout(ctx, taskTime)
	defer cancel()
	err := t.do(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, t.key)
	delete(d.failed, t.key)
	if err != nil {
		d.failed[t.key] = err
	}
}
