package executor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// picture is what the executor knows, kept by watches. It is locked for the time of a look, never for that of a call to somebody else.
type picture struct {
	// wake has room for one signal that there is something to do.
	wake chan struct{}

	mu sync.Mutex
	// realm has the nodes on which attempts may be started.
	realm    diff.Realm
	jobs     map[train.JobID]bus.Entry[train.Job]
	attempts map[train.JobID]bus.Entry[train.Attempt]
	reports  map[diff.ReportKey]train.AttemptReport
	stopSeen map[diff.ReportKey]time.Time
	exitSeen map[diff.ReportKey]time.Time
	wishes   map[train.JobID]train.Setting
	retunes  map[diff.ReportKey]train.Reason
	plan     planned
	// held are the devices of live attempts, live the number of those that are looked after here.
	held   diff.Holding
	live   int
	agenda agenda
	// complete says of which buckets the whole was seen once; orphans is set when the machine is to be compared with the records again.
	complete struct{ jobs, nodes, attempts, reports, settings bool }
	orphans  bool
}

func newPicture(realm diff.Realm) *picture {
	realm.Nodes = map[train.NodeID]train.Node{}
	return &picture{
		wake: make(chan struct{}, 1), realm: realm,
		jobs: map[train.JobID]bus.Entry[train.Job]{}, attempts: map[train.JobID]bus.Entry[train.Attempt]{},
		reports: map[diff.ReportKey]train.AttemptReport{}, stopSeen: map[diff.ReportKey]time.Time{}, exitSeen: map[diff.ReportKey]time.Time{},
		wishes: map[train.JobID]train.Setting{}, retunes: map[diff.ReportKey]train.Reason{}, held: diff.Holding{}, agenda: newAgenda(),
	}
}

// nudge has the loop look again soon.
func (p *picture) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// touch has the next pass look at a job. It needs the lock.
func (p *picture) touch(job train.JobID) {
	p.agenda.touched[job] = true
	p.nudge()
}

// news says that there is something new of some jobs.
func (p *picture) news(jobs ...train.JobID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range jobs {
		p.touch(id)
	}
	p.nudge()
}

// again has a pass look at a job at a time.
func (p *picture) again(job train.JobID, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agenda.at(job, at)
}

// postpone puts starts off to the passes after this one.
func (p *picture) postpone(starts []diff.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range starts {
		p.agenda.later = append(p.agenda.later, s.Job)
	}
	p.nudge()
}

// soonest is when something is due by the clock, the zero time if nothing is.
func (p *picture) soonest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.agenda.soonest
}

// ready says whether every bucket was seen: before that, what is missing means nothing.
func (p *picture) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete.jobs && p.complete.nodes && p.complete.attempts && p.complete.reports && p.complete.settings
}

// saw sets what is to be known once a bucket was seen as a whole.
func (p *picture) saw(flags ...*bool) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range flags {
			*f = true
		}
		p.nudge()
	}
}

// take takes the jobs off the agenda that are to be looked at now.
func (p *picture) take(now time.Time) []train.JobID {
	p.mu.Lock()
	defer p.mu.Unlock()
	jobs, all := p.agenda.take(now)
	if !all {
		return slices.Collect(maps.Keys(jobs))
	}
	maps.DeleteFunc(p.reports, func(k diff.ReportKey, _ train.AttemptReport) bool {
		_, known := p.jobs[k.Job]
		return !known
	})
	list := slices.Collect(maps.Keys(p.jobs))
	for id := range p.attempts {
		if _, listed := p.jobs[id]; !listed {
			list = append(list, id)
		}
	}
	return list
}

// actions decides what is to be done now about some jobs, and enters when something is due for them by the clock.
func (p *picture) actions(jobs []train.JobID, now time.Time, l diff.Limits) []diff.Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range jobs {
		if p.settled(p.jobs[id].Value) {
			delete(p.jobs, id)
		}
		p.noteSeen(id, now)
	}
	s := p.state(jobs, now)
	for id, at := range diff.Due(s, l) {
		p.agenda.at(id, at)
	}
	return diff.Actions(s, l)
}

// state is what is known of some jobs.
func (p *picture) state(jobs []train.JobID, now time.Time) diff.State {
	s := diff.State{
		Now: now, Realm: p.realm, Plan: p.withoutPaused(p.plan.about(jobs)), Planned: p.plan.known, Jobs: make(map[train.JobID]train.Job, len(jobs)),
		Attempts: make(map[train.JobID]train.Attempt, len(jobs)), Reports: p.reports, Held: p.held, StopSeen: p.stopSeen, ExitSeen: p.exitSeen, Retunes: p.retunes,
	}
	for _, id := range jobs {
		if e, known := p.jobs[id]; known {
			s.Jobs[id] = e.Value
		}
		if e, known := p.attempts[id]; known {
			s.Attempts[id] = e.Value
		}
	}
	return s
}

// noteSeen takes down when it was first seen that the attempt of a job shall leave, and that it has exited.
func (p *picture) noteSeen(job train.JobID, now time.Time) {
	a := p.attempts[job].Value
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	note := func(first map[diff.ReportKey]time.Time, holds bool) {
		if !holds {
			delete(first, key)
		} else if _, seen := first[key]; !seen {
			first[key] = now
		}
	}
	note(p.stopSeen, a.Live() && a.Stop != train.StopNone)
	note(p.exitSeen, a.Phase == train.PhaseExited && a.Outcome == train.OutcomeNone)
}

// settled says that a job has ended and nothing is recorded of an attempt (any more). A job that is not known is never started, so nothing else remembers it.
func (p *picture) settled(job train.Job) bool {
	_, tried := p.attempts[job.ID]
	return job.State.Terminal() && !tried && p.complete.attempts
}

// expired lists those records of some jobs whose jobs ended long ago, a few at a time, and enters when the others will have.
func (p *picture) expired(jobs []train.JobID, now time.Time) []bus.Entry[train.Attempt] {
	const atOnce = 64
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []bus.Entry[train.Attempt]
	for _, id := range jobs {
		e := p.attempts[id]
		job, a := p.jobs[id].Value, e.Value
		switch {
		case !p.realm.Owns(a) || a.Phase != train.PhaseExited || !a.Told || !job.State.Terminal() || job.FinishedAt.IsZero():
		case !job.LongEnded(now):
			p.agenda.at(id, job.FinishedAt.Add(train.KeepEnded))
		case len(list) < atOnce:
			list = append(list, e)
		default:
			p.agenda.at(id, now.Add(launch.Later))
		}
	}
	return list
}

// alive lists those attempts of some jobs that are looked after here and may have processes.
func (p *picture) alive(jobs []train.JobID) []train.Attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []train.Attempt
	for _, id := range jobs {
		if a := p.attempts[id].Value; p.realm.Owns(a) && a.Live() {
			list = append(list, a)
		}
	}
	return list
}

// running is the number of attempts here that may have processes.
func (p *picture) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// orphansDue says once after each complete listing that the machine is to be compared with it.
func (p *picture) orphansDue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.orphans
	p.orphans = false
	return due
}

func (p *picture) job(id train.JobID) (train.Job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, known := p.jobs[id]
	return e.Value, known
}

// restarts says whether an attempt has a state of its job to go on from.
func (p *picture) restarts(a train.Attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return diff.Restarts(diff.State{Reports: p.reports}, a)
}

func (p *picture) attempt(job train.JobID) (train.Attempt, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.attempts[job]
	return e.Value, e.Revision
}

// places describes the devices of an attempt as the nodes' agents do.
func (p *picture) places(a train.Attempt) ([]launch.Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []launch.Place
	for _, part := range a.Places() {
		node := p.realm.Nodes[part.Node]
		if node.ID == "" || node.JobAPI == "" {
			return nil, fmt.Errorf("the agent of node %s has not described it yet: %w", part.Node, bus.ErrAway)
		}
		place := launch.Place{Node: node, Memory: part.Memory}
		for _, id := range part.Devices {
			i := slices.IndexFunc(node.Devices, func(d train.Device) bool { return d.ID == id })
			if i < 0 {
				return nil, fmt.Errorf("device %s: %w %s (any more)", id, errNoDevice, part.Node)
			}
			place.Devices = append(place.Devices, node.Devices[i])
		}
		list = append(list, place)
	}
	return list, nil
}

var errNoDevice = errors.New("not on node")
