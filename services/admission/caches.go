package admission

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// inventory holds the records of all nodes, lost nodes included.
type inventory struct {
	mu    sync.Mutex
	nodes map[train.NodeID]train.Node
	// sorted are the nodes in the order of their ids, as snapshots share them; nil after a change.
	sorted []train.Node
	means  fit.Means
	// maxArray is the largest number of jobs of an array; 0: any that there can be.
	maxArray int
}

func (l *inventory) observe(e bus.Entry[train.Node], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sorted = nil
	if deleted {
		delete(l.nodes, train.NodeID(e.Key))
		return
	}
	l.nodes[train.NodeID(e.Key)] = e.Value
}

func (l *inventory) snapshot() fit.Inventory {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sorted == nil {
		l.sorted = slices.SortedFunc(maps.Values(l.nodes), func(a, b train.Node) int { return cmp.Compare(a.ID, b.ID) })
	}
	return fit.Inventory{Nodes: l.sorted, Means: l.means, MaxArray: l.maxArray}
}

// queue holds the jobs that wait for devices, each with its place when it came, and those that wait for other jobs.
type queue struct {
	mu      sync.Mutex
	waiting map[train.JobID]waiter
	// tenants counts them by tenant.
	tenants map[string]int
	after   map[train.JobID]awaiting
	// submitted are all jobs that have a record, which may outlive their facts, each with the array that it is part of.
	submitted map[train.JobID]train.JobID
}

// awaiting are the jobs that another one waits for, as an array does for its own.
type awaiting struct {
	jobs  []train.Dependency
	array bool
}

// waiter is the place and the tenant of a job that waits.
type waiter struct {
	place  int
	tenant string
}

func (l *queue) observe(e bus.Entry[*train.Job], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := train.JobID(e.Key)
	if delete(l.after, id); deleted {
		delete(l.submitted, id)
	} else {
		l.submitted[id] = e.Value.Belongs()
	}
	if awaits := e.Value.Awaits(); len(awaits) > 0 && !deleted && !e.Value.State.Terminal() {
		l.after[id] = awaiting{awaits, e.Value.Spec.Array != ""}
	}
	known, was := l.waiting[id]
	if was {
		l.tenants[known.tenant]--
		delete(l.waiting, id)
	}
	if deleted || e.Value.State.Terminal() || e.Value.State.Active() || e.Value.Spec.Array != "" {
		return // an array needs no devices
	}
	w := waiter{place: cmp.Or(known.place, len(l.waiting)+1), tenant: e.Value.Spec.Tenant}
	l.waiting[id] = w
	l.tenants[w.tenant]++
}

// of returns how many jobs of a tenant wait besides one.
func (l *queue) of(tenant string, besides train.JobID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.tenants[tenant]
	if own, in := l.waiting[besides]; in && own.tenant == tenant {
		n--
	}
	return n
}

// waitingFor returns the jobs that wait for another one, which has ended, each with the state that it counts as there.
// For an array it counts as rejected if it only has the id of one of the array's jobs.
func (l *queue) waitingFor(other train.JobID, as train.State) map[train.JobID]train.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := map[train.JobID]train.State{}
	for id, a := range l.after {
		switch waits := slices.ContainsFunc(a.jobs, func(d train.Dependency) bool { return d.Job == other }); {
		case waits && a.array && l.isForeign(id, other):
			ends[id] = train.StateRejected
		case waits:
			ends[id] = as
		}
	}
	return ends
}

// position returns the place of a job behind all other waiting jobs, from 1 on.
func (l *queue) position(id train.JobID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w, in := l.waiting[id]; in {
		return min(w.place, len(l.waiting))
	}
	return len(l.waiting) + 1
}

// knows reports whether a job has a record.
func (l *queue) knows(id train.JobID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.submitted[id]
	return known
}

// foreign reports whether a job has the id of a job of an array, and is none of it.
func (l *queue) foreign(array, member train.JobID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isForeign(array, member)
}

// isForeign is foreign for a caller that holds the lock. A job whose record has not been seen yet is the array's.
func (l *queue) isForeign(array, member train.JobID) bool {
	of, known := l.submitted[member]
	return known && of != array
}

// taken returns the first job that has the id of a job of an array, and is none of it; empty if there is none.
func (l *queue) taken(array train.JobID, indices string) train.JobID {
	for _, member := range (train.Job{ID: array, Spec: train.Spec{Array: indices}}).Members() {
		if l.foreign(array, member) {
			return member
		}
	}
	return ""
}

// enter gives a job the place behind all other waiting jobs, from 1 on, unless it has one, and returns it.
func (l *queue) enter(id train.JobID, tenant string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, in := l.waiting[id]
	if !in {
		w = waiter{place: len(l.waiting) + 1, tenant: tenant}
		l.waiting[id] = w
		l.tenants[tenant]++
	}
	return min(w.place, len(l.waiting))
}

// answers are the sequences of this process's answers to submissions that it folded into the record before they came
// back from the bus, and of which nothing else follows.
type answers struct {
	mu        sync.Mutex
	sequences map[uint64]bool
}

func (a *answers) fold(sequence uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sequences[sequence] = true
}

// folded reports whether a message was folded before, and forgets it.
func (a *answers) folded(sequence uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := a.sequences[sequence]
	delete(a.sequences, sequence)
	return is
}

// maxRecords bounds the memory for cached records.
const maxRecords = 1000

// records caches the newest records of jobs that this process wrote or read. Another process may have written since: a
// write then fails, and a fact that looks impossible is checked against a fresh read.
type records struct {
	mu      sync.Mutex
	entries map[train.JobID]bus.Entry[train.Job]
}

func (r *records) find(id train.JobID) (bus.Entry[train.Job], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.entries[id]
	return e, known
}

func (r *records) forget(id train.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, id)
}

func (r *records) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.entries)
}

func (r *records) put(e bus.Entry[train.Job]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[e.Value.ID].Revision > e.Revision {
		return
	}
	if e.Value.State.Terminal() {
		delete(r.entries, e.Value.ID) // few facts follow
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
