package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// cache is what the executor knows; watches keep it up to date. Its lock is held only to read or write it, never
// during a call to another service.
type cache struct {
	queue  *workqueue
	synced *synced

	mu sync.Mutex
	// realm has the nodes on which attempts may be started.
	realm diff.Realm
	jobs  map[train.JobID]bus.Entry[*train.Job]
	// attempts has the newest attempt of each job, ended or not; live has the jobs whose newest attempt holds devices.
	attempts map[train.JobID]bus.Entry[train.Attempt]
	live     map[train.JobID]bool
	reports  map[diff.ReportKey]train.AttemptReport
	settings map[train.JobID]train.Setting
	plan     acceptedPlan
	tally    attemptTally
}

func newCache(realm diff.Realm) *cache {
	realm.Nodes = map[train.NodeID]train.Node{}
	queue := newWorkqueue()
	return &cache{
		queue: queue, synced: &synced{queue: queue}, realm: realm,
		jobs: map[train.JobID]bus.Entry[*train.Job]{}, attempts: map[train.JobID]bus.Entry[train.Attempt]{}, live: map[train.JobID]bool{},
		reports: map[diff.ReportKey]train.AttemptReport{}, settings: map[train.JobID]train.Setting{}, tally: newAttemptTally(realm),
	}
}

// take takes the jobs from the queue that are to be looked at now.
func (c *cache) take(now time.Time) []train.JobID {
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs, all := c.queue.take(now)
	if !all {
		return slices.Collect(maps.Keys(jobs))
	}
	maps.DeleteFunc(c.reports, func(k diff.ReportKey, _ train.AttemptReport) bool {
		_, known := c.jobs[k.Job]
		return !known
	})
	list := slices.Collect(maps.Keys(c.jobs))
	for id := range c.attempts {
		if _, listed := c.jobs[id]; !listed {
			list = append(list, id)
		}
	}
	return list
}

// actions decides what is to be done now about some jobs, and queues what becomes due for them by the clock.
func (c *cache) actions(jobs []train.JobID, now time.Time, l diff.Limits, retunes map[diff.ReportKey]train.Reason) []diff.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range jobs {
		if _, tried := c.attempts[id]; c.droppable(c.record(id), tried) {
			delete(c.jobs, id)
		}
		a := c.attempts[id].Value
		c.tally.noteSeen(a, c.reports[diff.ReportKey{Job: a.Job, Number: a.Number}].Steps, now)
	}
	s := c.state(jobs, now, retunes)
	for id, at := range diff.Due(s, l) {
		c.queue.addAt(id, at)
	}
	return diff.Actions(s, l)
}

// state returns what the records show about some jobs.
func (c *cache) state(jobs []train.JobID, now time.Time, retunes map[diff.ReportKey]train.Reason) diff.State {
	s := diff.State{
		Now: now, Realm: c.realm, Plan: c.plan.restrictedTo(jobs), Planned: c.plan.known, Jobs: make(map[train.JobID]train.Job, len(jobs)),
		Attempts: make(map[train.JobID]train.Attempt, len(jobs)), Reports: c.reports, Held: c.tally.held, StopSeen: c.tally.stopSeen, ExitSeen: c.tally.exitSeen,
		StepsSeen: c.tally.stepsSeen,
		Retunes:   retunes,
	}
	for _, id := range jobs {
		if e, known := c.jobs[id]; known {
			s.Jobs[id] = *e.Value
		}
		if e, known := c.attempts[id]; known {
			s.Attempts[id] = e.Value
		}
	}
	s.Plan.Allocations = slices.DeleteFunc(s.Plan.Allocations, func(w train.Allocation) bool { return paused(s, w.Job, c.settings[w.Job]) })
	return s
}

// paused reports whether a job is paused and has left: the plan may be older than the pause.
func paused(s diff.State, job train.JobID, setting train.Setting) bool {
	a := s.Attempts[job]
	done := max(s.Jobs[job].EpochsDone, s.Reports[diff.ReportKey{Job: job, Number: a.Number}].EpochsDone)
	return !a.Live() && setting.Pauses(done)
}

// droppable reports whether a job has ended and has no attempt record (any more). An unknown job is never started, so
// the cache can drop it.
func (c *cache) droppable(job train.Job, tried bool) bool {
	return job.State.Terminal() && !tried && c.synced.attemptsKnown()
}

// expired lists the attempt records of jobs that ended long ago, a few at a time, and queues when the others will
// have.
func (c *cache) expired(jobs []train.JobID, now time.Time) []bus.Entry[train.Attempt] {
	const atOnce = 64
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []bus.Entry[train.Attempt]
	for _, id := range jobs {
		e := c.attempts[id]
		job, a := c.record(id), e.Value
		switch {
		case !c.realm.Owns(a) || a.Phase != train.PhaseExited || !a.Published || !job.State.Terminal() || job.FinishedAt.IsZero():
		case !job.LongEnded(now):
			c.queue.addAt(id, job.FinishedAt.Add(train.KeepEnded))
		case len(list) < atOnce:
			list = append(list, e)
		default:
			c.queue.addAt(id, now.Add(launch.Later))
		}
	}
	return list
}

// liveAttempts lists those attempts of some jobs that this executor is responsible for and that may have processes.
func (c *cache) liveAttempts(jobs []train.JobID) []train.Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []train.Attempt
	for _, id := range jobs {
		if a := c.attempts[id].Value; c.realm.Owns(a) && a.Live() {
			list = append(list, a)
		}
	}
	return list
}

// running returns the number of attempts here that may have processes.
func (c *cache) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.live
}

func (c *cache) job(id train.JobID) (train.Job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.jobs[id]
	return c.record(id), known
}

// record returns the record of a job, or an empty one.
func (c *cache) record(id train.JobID) train.Job {
	if e, known := c.jobs[id]; known {
		return *e.Value
	}
	return train.Job{}
}

// restarts reports whether an attempt resumes from saved state.
func (c *cache) restarts(a train.Attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return diff.Restarts(diff.State{Reports: c.reports, Jobs: map[train.JobID]train.Job{a.Job: c.record(a.Job)}}, a)
}

func (c *cache) attempt(job train.JobID) (train.Attempt, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.attempts[job]
	return e.Value, e.Revision
}

func (c *cache) setting(job train.JobID) train.Setting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings[job]
}

// progress is how far an attempt has got with being tuned, as far as the cache knows.
type progress struct {
	// planned is how many devices the newest plan gives the job.
	planned int
	// up is set if the code of the attempt has come up, as far as it will ever show that.
	up bool
	// trains is set if the attempt is past the time in which code may start up silently: it has ended an epoch, or its
	// output is all it ever reports.
	trains bool
}

func (c *cache) progress(a train.Attempt) progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	report := c.reports[diff.ReportKey{Job: a.Job, Number: a.Number}]
	onlyOutput := c.record(a.Job).Spec.LogFormat != ""
	return progress{planned: c.plan.devices(a.Job), up: report.Spoke || onlyOutput, trains: report.EpochsDone > a.StartedEpochs || onlyOutput}
}

// report returns what the code of an attempt has reported.
func (c *cache) report(a train.Attempt) train.AttemptReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[diff.ReportKey{Job: a.Job, Number: a.Number}]
}

// home returns the node of the first rank of an attempt, whose agent takes its reports; zero if it is unknown.
func (c *cache) home(a train.Attempt) train.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.realm.Nodes[a.Home()]
}

// places returns the devices of an attempt as the agents of their nodes describe them.
func (c *cache) places(a train.Attempt) ([]launch.Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []launch.Place
	servers := map[train.NodeID]int{}
	for _, s := range a.ServerParts() {
		servers[s.Node] += s.Count
	}
	for _, part := range a.Places() {
		node := c.realm.Nodes[part.Node]
		if node.ID == "" || node.JobAPI == "" {
			return nil, fmt.Errorf("the agent of node %s has not described it yet: %w", part.Node, bus.ErrAway)
		}
		place := launch.Place{Node: node, Memory: part.Memory, Servers: servers[part.Node]}
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

// buckets are the records that the executor reads; it writes attempts and conditions.
type buckets struct {
	attempts *bus.KV[train.Attempt]
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	settings *bus.KV[train.Setting]
	reports  *bus.KV[train.AttemptReport]
	// conditions are written by the executor of pods.
	conditions *bus.KV[train.NodeCondition]
}

func openBuckets(ctx context.Context, b *bus.Bus) (kv buckets, err error) {
	err = errors.Join(
		bus.Open(ctx, b, contract.Attempts, &kv.attempts), bus.Open(ctx, b, contract.Jobs, &kv.jobs),
		bus.Open(ctx, b, contract.Nodes, &kv.nodes), bus.Open(ctx, b, contract.Reports, &kv.reports),
		bus.Open(ctx, b, contract.Settings, &kv.settings), bus.Open(ctx, b, contract.Conditions, &kv.conditions),
	)
	return kv, err
}

func (kv buckets) watch(loops *pool.ContextPool, c *cache) {
	s := c.synced
	loops.Go(func(ctx context.Context) error {
		return kv.attempts.Watch(ctx, c.onAttempt, s.mark(&s.attempts, &s.orphans))
	})
	loops.Go(func(ctx context.Context) error { return kv.jobs.WatchShared(ctx, c.onJob, s.mark(&s.jobs)) })
	loops.Go(func(ctx context.Context) error { return kv.nodes.Watch(ctx, c.onNode, s.mark(&s.nodes)) })
	loops.Go(func(ctx context.Context) error { return kv.reports.Watch(ctx, c.onReport, s.mark(&s.reports)) })
	loops.Go(func(ctx context.Context) error { return kv.settings.Watch(ctx, c.onSetting, s.mark(&s.settings)) })
}
