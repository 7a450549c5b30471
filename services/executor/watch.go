package executor

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// A watch repeats itself: what is known already is no news.

func (p *picture) seeAttempt(e bus.Entry[train.Attempt], deleted bool) {
	if deleted {
		p.forgetAttempt(train.JobID(e.Key), e.Revision)
	} else {
		p.keep(e.Value, e.Revision)
	}
}

// keep takes an attempt over if it is newer than what is known.
func (p *picture) keep(a train.Attempt, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.attempts[a.Job]
	if revision <= before.Revision {
		return
	}
	p.attempts[a.Job] = bus.Entry[train.Attempt]{Key: string(a.Job), Value: a, Revision: revision}
	p.replaced(before.Value, a)
}

// forgetAttempt drops a record that was deleted, unless a newer one is known.
func (p *picture) forgetAttempt(job train.JobID, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.attempts[job]
	if !known || revision <= before.Revision {
		return
	}
	delete(p.attempts, job)
	p.replaced(before.Value, train.Attempt{Job: job})
}

// replaced counts the devices anew after an attempt took the place of another one of its job. Whoever shall have those that are free now is looked at.
func (p *picture) replaced(before, after train.Attempt) {
	p.touch(after.Job)
	if before.Number != after.Number {
		delete(p.stopSeen, diff.ReportKey{Job: before.Job, Number: before.Number})
	}
	had, has := before.Live() && before.Backend == p.realm.Backend, after.Live() && after.Backend == p.realm.Backend
	if had && p.realm.Owns(before) {
		p.live--
	}
	if has && p.realm.Owns(after) {
		p.live++
	}
	if had && has && train.SamePlaces(before.Places(), after.Places()) {
		return
	}
	if had {
		p.held.Release(before.Places())
		for _, slot := range diff.Slots(before.Places()) {
			for _, id := range p.plan.wanted[slot] {
				p.touch(id)
			}
		}
	}
	if has {
		p.held.Take(after.Places())
	}
}

func (p *picture) seeJob(e bus.Entry[train.Job], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := train.JobID(e.Key)
	before, known := p.jobs[id]
	switch {
	case !known && (deleted || p.settled(e.Value)):
		return
	case deleted:
		delete(p.jobs, id)
	default:
		p.jobs[id] = e // also where the revision is the same: a bus that lost its past counts anew
	}
	if deleted || !known || before.Revision != e.Revision {
		p.touch(id)
	}
}

func (p *picture) seeNode(e bus.Entry[train.Node], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := train.NodeID(e.Key)
	before, known := p.realm.Nodes[id]
	switch {
	case deleted && p.realm.Backend != train.BackendLocal:
		delete(p.realm.Nodes, id) // nothing is started where no agent serves the job API
	case deleted || e.Value.Backend != p.realm.Backend || p.realm.Backend == train.BackendLocal && e.Value.ID != p.realm.Node:
		return
	default:
		p.realm.Nodes[id] = e.Value
	}
	sameDevices := slices.EqualFunc(before.Devices, e.Value.Devices, func(x, y train.Device) bool { return x.ID == y.ID && x.Memory == y.Memory })
	if known == deleted || !sameDevices { // it or a device came or went: rare enough to look at all jobs for its sake
		p.agenda.resync = time.Time{}
		p.nudge()
	}
}

func (p *picture) seeReport(e bus.Entry[train.AttemptReport], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted {
		job, number, _ := strings.Cut(e.Key, ".")
		if n, err := strconv.Atoi(number); err == nil {
			delete(p.reports, diff.ReportKey{Job: train.JobID(job), Number: n})
		}
		return
	}
	key := diff.ReportKey{Job: e.Value.Job, Number: e.Value.Attempt}
	if p.reports[key] != e.Value {
		p.reports[key] = e.Value
		p.touch(key.Job)
	}
}
