package planner

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

const (
	// nodeTimeout is the age of a node's record at which nothing new is placed there: agents refresh it every 5 s.
	nodeTimeout = 20 * time.Second
	// nodeLost is the age at which what runs there is taken to be gone, too. Until then it keeps its devices: an agent that restarts must not
	// have its jobs stopped.
	nodeLost = 2 * time.Minute
)

// picture is what the planner knows, kept by watches.
type picture struct {
	mu       sync.Mutex
	jobs     map[string]train.Job
	nodes    map[string]train.Node
	attempts map[string]train.Attempt
	reports  map[string]train.AttemptReport
	models   map[string]train.Model
	missing  map[string]bool
	restarts restartMean
	// changed has room for one signal that something is new.
	changed chan struct{}
}

func newPicture() *picture {
	return &picture{
		jobs: map[string]train.Job{}, nodes: map[string]train.Node{}, attempts: map[string]train.Attempt{},
		reports: map[string]train.AttemptReport{}, models: map[string]train.Model{}, changed: make(chan struct{}, 1),
		restarts: restartMean{left: map[train.JobID]train.Attempt{}},
		missing: map[string]bool{
			event.BucketJobs: true, event.BucketNodes: true, event.BucketAttempts: true, event.BucketReports: true, event.BucketModels: true,
		},
	}
}

// complete is called when a bucket was seen as a whole.
func (p *picture) complete(bucket string) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.missing[bucket] {
			delete(p.missing, bucket)
			p.nudge()
		}
	}
}

// ready says whether every bucket was seen: before that, what is missing means nothing.
func (p *picture) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.missing) == 0
}

func (p *picture) nudge() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// take enters a value and nudges if that changes anything: a watch repeats itself.
func take[T any](p *picture, known map[string]T, e bus.Entry[T], deleted bool) {
	before, had := known[e.Key]
	switch {
	case deleted && had:
		delete(known, e.Key)
	case deleted || had && reflect.DeepEqual(before, e.Value):
		return
	default:
		known[e.Key] = e.Value
	}
	p.nudge()
}

func (p *picture) seeJob(e bus.Entry[train.Job], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Value.State.Terminal() {
		// An ended job is of no interest, and there may be very many of them.
		deleted = true
	}
	take(p, p.jobs, e, deleted)
}

// seeNode keeps each sign of life, but only what else is new is worth a decision.
func (p *picture) seeNode(e bus.Entry[train.Node], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, had := p.nodes[e.Key]
	if had && !deleted && e.Value.SeenAt.Sub(before.SeenAt) < nodeTimeout {
		same := e.Value
		same.SeenAt = before.SeenAt
		if reflect.DeepEqual(before, same) {
			p.nodes[e.Key] = e.Value
			return
		}
	}
	take(p, p.nodes, e, deleted)
}

func (p *picture) seeAttempt(e bus.Entry[train.Attempt], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !deleted {
		p.restarts.see(e.Value)
	}
	take(p, p.attempts, e, deleted)
}

func (p *picture) seeReport(e bus.Entry[train.AttemptReport], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	take(p, p.reports, e, deleted)
}

func (p *picture) seeModel(e bus.Entry[train.Model], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	take(p, p.models, e, deleted)
}

// state is the picture as the decision wants it. last is the newest plan; known is false where there has never been one.
func (p *picture) state(now time.Time, last train.Plan, known bool, tuning plan.Tuning) plan.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := plan.State{Now: now, Tuning: tuning, Memory: last.Memory}
	if tuning.RestartSeconds == 0 {
		s.Tuning.RestartSeconds = p.restarts.seconds()
	}
	for _, n := range p.nodes {
		age := now.Sub(n.SeenAt)
		if age >= nodeTimeout {
			n.Devices = p.inUse(n)
		}
		if age < nodeLost && len(n.Devices) > 0 {
			s.Nodes = append(s.Nodes, n)
		}
	}
	planned := make(map[train.JobID]*plan.Holding, len(last.Allocations))
	for _, a := range last.Allocations {
		planned[a.Job] = &plan.Holding{Node: a.Node, Devices: a.Devices, Parts: a.Parts}
	}
	for key, j := range p.jobs {
		a, tried := p.attempts[key]
		waitsForAdmission := j.State == train.StateNone || j.State == train.StateSubmitted
		if waitsForAdmission || tried && a.Outcome.Terminal() {
			continue
		}
		job := p.job(j, now)
		job.Planned = planned[j.ID]
		if !known && job.Running != nil {
			job.Planned = &job.Running.Holding
		}
		s.Jobs = append(s.Jobs, job)
	}
	return s
}

// inUse are the devices of a node on which attempts are live.
func (p *picture) inUse(n train.Node) []train.Device {
	var used []train.Device
	for _, d := range n.Devices {
		for _, a := range p.attempts {
			if a.Node == n.ID && a.Live() && slices.Contains(a.Devices, d.ID) {
				used = append(used, d)
				break
			}
		}
	}
	return used
}

// job puts together what the buckets say of one job.
func (p *picture) job(j train.Job, now time.Time) plan.Job {
	key := string(j.ID)
	job := plan.Job{
		ID: j.ID, Spec: j.Spec, Priority: j.EffectivePriority(), SubmittedAt: j.SubmittedAt, EpochsDone: j.EpochsDone,
		RunSeconds: j.RunSeconds, CancelRequested: j.CancelRequested,
	}
	if m, ok := p.models[key]; ok {
		job.Model = &m
	}
	a, ok := p.attempts[key]
	if !ok || !a.Live() {
		return job
	}
	report := p.reports[fmt.Sprintf("%s.%d", key, a.Number)]
	job.EpochsDone = max(job.EpochsDone, report.EpochsDone)
	job.Running = &plan.Running{
		Holding: plan.Holding{Node: a.Node, Devices: a.Devices}, StopPending: a.Stop != train.StopNone,
		Epochs: max(report.EpochsDone-a.StartedEpochs, 0), Spoke: report.Spoke,
	}
	if !a.StartedAt.IsZero() {
		job.Running.Seconds = max(now.Sub(a.StartedAt).Seconds(), 0)
		job.RunSeconds += job.Running.Seconds
	}
	return job
}

// waits says whether a job has no live attempt by the register: only then is it of use to say what it waits for.
func (p *picture) waits(id train.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j, known := p.jobs[string(id)]
	return known && !j.State.Active()
}

// knows says whether a job is in the register and has not ended.
func (p *picture) knows(id train.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.jobs[string(id)]
	return known
}

// restartMean is the mean time from the end of an attempt that was asked to leave to the start of the next one, over the last ones seen.
type restartMean struct {
	left       map[train.JobID]train.Attempt
	sum, count float64
}

// remembered is about how many restarts count.
const remembered = 20

func (r *restartMean) see(a train.Attempt) {
	if a.Phase == train.PhaseExited {
		if a.Outcome == train.OutcomePreempted && !a.ExitedAt.IsZero() {
			r.left[a.Job] = a
		}
		return
	}
	before, left := r.left[a.Job]
	if !left || a.StartedAt.IsZero() {
		return
	}
	delete(r.left, a.Job)
	if a.Number != before.Number+1 {
		return
	}
	if r.count == remembered {
		r.sum, r.count = r.sum*(remembered-1)/remembered, remembered-1
	}
	r.sum += max(a.StartedAt.Sub(before.ExitedAt).Seconds(), 0)
	r.count++
}

// seconds is 0 where no restart was seen.
func (r *restartMean) seconds() float64 {
	if r.count == 0 {
		return 0
	}
	return r.sum / r.count
}
