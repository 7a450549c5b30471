package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

// picture is what the executor knows, kept by watches. It is locked for the time of a look, never for that of a call to somebody else.
type picture struct {
	mu        sync.Mutex
	jobs      map[train.JobID]train.Job
	attempts  map[train.JobID]train.Attempt
	revisions map[train.JobID]uint64
	reports   map[diff.ReportKey]train.AttemptReport
	stopSeen  map[diff.ReportKey]time.Time
	// nodes are those on which attempts may be started.
	nodes   map[train.NodeID]train.Node
	plan    train.Plan
	planned bool
	// complete says of which buckets the whole was seen once; orphans is set when the machine is to be compared with the records again.
	complete struct{ jobs, nodes, attempts, reports bool }
	orphans  bool
}

func newPicture() *picture {
	return &picture{
		jobs: map[train.JobID]train.Job{}, attempts: map[train.JobID]train.Attempt{}, revisions: map[train.JobID]uint64{},
		reports: map[diff.ReportKey]train.AttemptReport{}, stopSeen: map[diff.ReportKey]time.Time{},
		nodes: map[train.NodeID]train.Node{},
	}
}

// ready says whether every bucket was seen: before that, what is missing means nothing.
func (p *picture) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete.jobs && p.complete.nodes && p.complete.attempts && p.complete.reports
}

// actions decides what is to be done now, and when something is due by the clock.
func (p *picture) actions(realm diff.Realm, now time.Time, l diff.Limits) ([]diff.Action, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune()
	p.noteStops(now)
	s := p.state(realm, now)
	return diff.Actions(s, l), diff.NextWake(s, l)
}

func (p *picture) state(realm diff.Realm, now time.Time) diff.State {
	realm.Nodes = p.nodes
	return diff.State{Now: now, Realm: realm, Plan: p.plan, Planned: p.planned, Jobs: p.jobs, Attempts: p.attempts, Reports: p.reports, StopSeen: p.stopSeen}
}

// noteStops takes down when it was first seen that an attempt shall leave.
func (p *picture) noteStops(now time.Time) {
	leaving := map[diff.ReportKey]bool{}
	for _, a := range p.attempts {
		key := diff.ReportKey{Job: a.Job, Number: a.Number}
		if leaving[key] = a.Live() && a.Stop != train.StopNone; !leaving[key] {
			continue
		}
		if _, seen := p.stopSeen[key]; !seen {
			p.stopSeen[key] = now
		}
	}
	maps.DeleteFunc(p.stopSeen, func(k diff.ReportKey, _ time.Time) bool { return !leaving[k] })
}

// expired lists the records of the realm whose jobs ended long ago, a few at a time.
func (p *picture) expired(realm diff.Realm, now time.Time) []bus.Entry[train.Attempt] {
	const atOnce = 64
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []bus.Entry[train.Attempt]
	for id, job := range p.jobs {
		a, tried := p.attempts[id]
		if len(list) == atOnce || !tried || !realm.Owns(a) || a.Phase != train.PhaseExited || !a.Told || !job.LongEnded(now) {
			continue
		}
		list = append(list, bus.Entry[train.Attempt]{Key: string(id), Value: a, Revision: p.revisions[id]})
	}
	return list
}

// prune drops the jobs that have ended here and in the register. A job that is not known is never started, so nothing else remembers them.
func (p *picture) prune() {
	for id, job := range p.jobs {
		a, tried := p.attempts[id]
		if job.State.Terminal() && (!tried || a.Phase == train.PhaseExited && a.Told) {
			delete(p.jobs, id)
			delete(p.attempts, id)
			delete(p.revisions, id)
		}
	}
	maps.DeleteFunc(p.reports, func(k diff.ReportKey, _ train.AttemptReport) bool {
		_, known := p.jobs[k.Job]
		return !known
	})
}

// live lists the attempts of the realm that may have processes.
func (p *picture) live(realm diff.Realm) []train.Attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []train.Attempt
	for _, a := range p.attempts {
		if realm.Owns(a) && a.Live() {
			list = append(list, a)
		}
	}
	return list
}

// orphansDue says once after each complete listing that the machine is to be compared with it.
func (p *picture) orphansDue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.orphans
	p.orphans = false
	return due
}

func (p *picture) attempt(job train.JobID) (train.Attempt, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts[job], p.revisions[job]
}

// keep takes an attempt over if it is newer than what is known.
func (p *picture) keep(a train.Attempt, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision > p.revisions[a.Job] {
		p.attempts[a.Job], p.revisions[a.Job] = a, revision
	}
}

func (e *executor) seeAttempt(entry bus.Entry[train.Attempt], deleted bool) {
	if deleted {
		e.picture.forgetAttempt(train.JobID(entry.Key), entry.Revision)
	} else {
		e.picture.keep(entry.Value, entry.Revision)
	}
	e.nudge()
}

// forgetAttempt drops a record that was deleted, unless a newer one is known.
func (p *picture) forgetAttempt(job train.JobID, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision <= p.revisions[job] {
		return
	}
	delete(p.attempts, job)
	delete(p.revisions, job)
}

func (e *executor) sawAttempts() {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	e.picture.complete.attempts, e.picture.orphans = true, true
	e.nudge()
}

func (e *executor) seeJob(entry bus.Entry[train.Job], deleted bool) {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	if deleted {
		delete(e.picture.jobs, train.JobID(entry.Key))
	} else {
		e.picture.jobs[entry.Value.ID] = entry.Value
	}
	e.nudge()
}

func (e *executor) sawJobs() {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	e.picture.complete.jobs = true
	e.nudge()
}

func (e *executor) seeNode(entry bus.Entry[train.Node], deleted bool) {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	id := train.NodeID(entry.Key)
	switch {
	case deleted && e.realm.Backend != train.BackendLocal:
		delete(e.picture.nodes, id) // nothing is started where no agent serves the job API
	case deleted || entry.Value.Backend != e.realm.Backend || e.realm.Backend == train.BackendLocal && entry.Value.ID != e.realm.Node:
		return
	default:
		e.picture.nodes[id] = entry.Value
	}
	e.nudge()
}

// places describes the devices of an attempt as the nodes' agents do.
func (p *picture) places(a train.Attempt) ([]launch.Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []launch.Place
	for _, part := range a.Places() {
		node := p.nodes[part.Node]
		if node.ID == "" || node.JobAPI == "" {
			return nil, fmt.Errorf("the agent of node %s has not described it yet: %w", part.Node, bus.ErrAway)
		}
		place := launch.Place{Node: node}
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

func (e *executor) sawNodes() {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	e.picture.complete.nodes = true
	e.nudge()
}

func (e *executor) seeReport(entry bus.Entry[train.AttemptReport], deleted bool) {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	if deleted {
		job, number, _ := strings.Cut(entry.Key, ".")
		if n, err := strconv.Atoi(number); err == nil {
			delete(e.picture.reports, diff.ReportKey{Job: train.JobID(job), Number: n})
		}
		return
	}
	e.picture.reports[diff.ReportKey{Job: entry.Value.Job, Number: entry.Value.Attempt}] = entry.Value
}

func (e *executor) sawReports() {
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	e.picture.complete.reports = true
	e.nudge()
}

// followPlans takes over each newer plan as it is published.
func (e *executor) followPlans(ctx context.Context) error {
	subject := event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
	from := uint64(1)
	again := time.NewTicker(300 * time.Millisecond)
	defer again.Stop()
	for {
		last, err := e.bus.Last(ctx, event.StreamPlans, subject)
		if err == nil {
			from = last.Sequence
		}
		if err == nil || errors.Is(err, bus.ErrNotFound) {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
	return e.bus.Follow(ctx, event.StreamPlans, []string{subject.String()}, from, e.seePlan)
}

// planner is the service whose plans are followed.
const planner = "planner"

// seePlan accepts a plan unless a newer one was accepted before: also by an executor that ran here earlier.
func (e *executor) seePlan(m bus.Message) {
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err != nil {
		e.log.Error("plan cannot be read", "sequence", m.Sequence, "error", err)
		return
	}
	if m.Source != "" && m.Source != planner {
		e.metrics.refused.Inc()
		e.log.Warn("plan of somebody else refused", "generation", decided.Generation, "source", m.Source)
		return
	}
	accepted, err := e.fence.accept(decided.Generation)
	if err != nil {
		e.log.Error("plan not taken over", "generation", decided.Generation, "error", err)
		return
	}
	if !accepted {
		e.metrics.refused.Inc()
		e.log.Warn("plan refused: its generation is older, or too far ahead", "generation", decided.Generation, "accepted", e.fence.highest, "file", e.fence.path)
		return
	}
	e.picture.mu.Lock()
	defer e.picture.mu.Unlock()
	e.picture.plan, e.picture.planned = decided.Plan, true
	e.nudge()
}

// fence keeps the highest generation of a plan that was accepted here. It is a file and not a key of the bus, since what it guards against is a bus whose
// past was lost: a plan from a restored backup must not move jobs. Who starts over with an empty bus on purpose removes the file.
type fence struct {
	path    string
	highest uint64
}

func openFence(dataDir string) (*fence, error) {
	f := &fence{path: filepath.Join(dataDir, "executor.generation")}
	data, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		f.highest, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("read the highest accepted plan from %s: %w", f.path, err)
	}
	return f, nil
}

// farthestLeap bounds how far a generation may be ahead of the last one. Planners count by one; a number near the end of the range, once accepted, would have
// every later plan refused.
const farthestLeap = 1 << 40

// accept says whether a plan may be followed; what it accepted is on disk when it returns.
func (f *fence) accept(generation uint64) (bool, error) {
	switch {
	case generation < f.highest || generation-f.highest > farthestLeap:
		return false, nil
	case generation == f.highest:
		return true, nil
	}
	if err := local.WriteFile(f.path, strconv.AppendUint(nil, generation, 10)); err != nil {
		return false, err
	}
	f.highest = generation
	return true, nil
}
