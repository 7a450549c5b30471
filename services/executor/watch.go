package executor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// A watch repeats itself: what is known already is no event.

func (c *cache) onAttempt(e bus.Entry[train.Attempt], deleted bool) {
	if deleted {
		c.forgetAttempt(train.JobID(e.Key), e.Revision)
	} else {
		c.store(e.Value, e.Revision)
	}
}

// store replaces an attempt if the given record is newer.
func (c *cache) store(a train.Attempt, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.attempts[a.Job]
	if revision <= before.Revision {
		return
	}
	c.attempts[a.Job] = bus.Entry[train.Attempt]{Key: string(a.Job), Value: a, Revision: revision}
	c.replaced(before.Value, a)
}

// missing notes that the bus has no record of an attempt: its bucket was lost, or the record was deleted long after the
// end of its job. The next write makes the record again.
func (c *cache) missing(job train.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.attempts[job]
	if !known {
		return
	}
	e.Revision = 0
	c.attempts[job] = e
	c.queue.add(job)
}

// unfinished lists those attempts here that are not over.
func (c *cache) unfinished() []bus.Entry[train.Attempt] {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []bus.Entry[train.Attempt]
	for _, e := range c.attempts {
		if a := e.Value; c.realm.Owns(a) && (a.Live() || !a.Published) {
			list = append(list, e)
		}
	}
	return list
}

// forgetAttempt drops a record that was deleted, unless a newer one is known.
func (c *cache) forgetAttempt(job train.JobID, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.attempts[job]
	if !known || revision <= before.Revision {
		return
	}
	delete(c.attempts, job)
	c.replaced(before.Value, train.Attempt{Job: job})
}

// replaced recounts after another attempt or record took the place of before. It queues the jobs to which the plan
// gives the freed devices.
func (c *cache) replaced(before, after train.Attempt) {
	c.queue.add(after.Job)
	if delete(c.live, after.Job); after.Live() {
		c.live[after.Job] = true
	}
	for _, device := range c.tally.replace(before, after) {
		c.queue.add(c.plan.wanted[device]...)
	}
}

func (c *cache) onJob(e bus.Entry[*train.Job], deleted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := train.JobID(e.Key)
	before, known := c.jobs[id]
	_, tried := c.attempts[id]
	switch {
	case !known && (deleted || c.droppable(*e.Value, tried)):
		return
	case deleted:
		delete(c.jobs, id)
	default:
		c.jobs[id] = e // even if the revision is the same: a bus that lost its past counts from 1 again
	}
	if deleted || !known || before.Revision != e.Revision {
		c.queue.add(id)
	}
}

func (c *cache) onNode(e bus.Entry[train.Node], deleted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := train.NodeID(e.Key)
	before, known := c.realm.Nodes[id]
	switch {
	case deleted && c.realm.Backend != train.BackendLocal:
		delete(c.realm.Nodes, id) // nothing is started on a node without an agent that serves the job API
	case deleted || e.Value.Realm() != c.realm.Realm:
		return
	default:
		c.realm.Nodes[id] = e.Value
	}
	sameDevices := slices.EqualFunc(before.Devices, e.Value.Devices, func(x, y train.Device) bool { return x.ID == y.ID && x.Memory == y.Memory })
	if known == deleted || !sameDevices { // a node or a device came or went, which is rare enough to look at all jobs
		c.queue.addAll()
	}
}

func (c *cache) onReport(e bus.Entry[train.AttemptReport], deleted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deleted {
		job, number, _ := strings.Cut(e.Key, ".")
		if n, err := strconv.Atoi(number); err == nil {
			delete(c.reports, diff.ReportKey{Job: train.JobID(job), Number: n})
		}
		return
	}
	key := diff.ReportKey{Job: e.Value.Job, Number: e.Value.Attempt}
	if c.reports[key] != e.Value {
		c.reports[key] = e.Value
		c.queue.add(key.Job)
	}
}

// onSetting stores the wanted system parameters of a job.
func (c *cache) onSetting(e bus.Entry[train.Setting], deleted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := train.JobID(e.Key)
	before, known := c.settings[id]
	switch {
	case deleted:
		delete(c.settings, id)
	case known && before.Same(e.Value):
		return
	default:
		c.settings[id] = e.Value
	}
	c.queue.add(id)
}
