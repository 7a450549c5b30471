package admission

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// lab is what the nodes said of themselves, gone ones included.
type lab struct {
	mu    sync.Mutex
	nodes map[train.NodeID]train.Node
}

func (l *lab) see(e bus.Entry[train.Node], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if deleted {
		delete(l.nodes, train.NodeID(e.Key))
		return
	}
	l.nodes[train.NodeID(e.Key)] = e.Value
}

func (l *lab) inventory() fit.Inventory {
	l.mu.Lock()
	defer l.mu.Unlock()
	var where fit.Inventory
	for _, n := range l.nodes {
		where.Nodes = append(where.Nodes, n)
	}
	slices.SortFunc(where.Nodes, func(a, b train.Node) int { return cmp.Compare(a.ID, b.ID) })
	return where
}

// line are the jobs that wait for devices.
type line struct {
	mu      sync.Mutex
	waiting map[train.JobID]struct{}
}

func (l *line) see(e bus.Entry[train.Job], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if deleted || e.Value.State.Terminal() || e.Value.State.Active() {
		delete(l.waiting, train.JobID(e.Key))
		return
	}
	l.waiting[train.JobID(e.Key)] = struct{}{}
}

// position is the place of a job behind all others that wait, from 1 on.
func (l *line) position(id train.JobID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, in := l.waiting[id]; in {
		return len(l.waiting)
	}
	return len(l.waiting) + 1
}

// maxRecords bounds the memory for records that save a read.
const maxRecords = 2000

// records are the newest records of jobs as far as this process wrote or read them. Somebody else may have written since: a write then fails, and what
// looks impossible is looked at again.
type records struct {
	entries map[train.JobID]bus.Entry[train.Job]
}

func (r *records) put(e bus.Entry[train.Job]) {
	if e.Value.State.Terminal() {
		delete(r.entries, e.Value.ID) // little follows
		return
	}
	if len(r.entries) >= maxRecords {
		for id := range r.entries {
			delete(r.entries, id)
			break
		}
	}
	r.entries[e.Value.ID] = e
}

// gate is opened once.
type gate struct {
	once   sync.Once
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// wait is false when ctx ended first.
func (g *gate) wait(ctx context.Context) bool {
	select {
	case <-g.opened:
		return true
	case <-ctx.Done():
		return false
	}
}
