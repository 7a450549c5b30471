package planner

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// picture is what the planner knows, kept by watches.
type picture struct {
	mu       sync.Mutex
	jobs     map[string]train.Job
	nodes    map[string]train.Node
	silence  silence
	attempts map[string]train.Attempt
	reports  map[string]train.AttemptReport
	models   map[string]train.Model
	meetings map[string]*curve.Meetings
	links    map[string]train.Link
	crossed  map[string]pinglist.Crossing
	wishes   map[string]train.Setting
	missing  map[string]bool
	restarts restartMean
	// changed has room for one signal that something is new.
	changed chan struct{}
}

func newPicture() *picture {
	return &picture{
		jobs: map[string]train.Job{}, nodes: map[string]train.Node{}, attempts: map[string]train.Attempt{},
		reports: map[string]train.AttemptReport{}, models: map[string]train.Model{}, meetings: map[string]*curve.Meetings{},
		links: map[string]train.Link{}, wishes: map[string]train.Setting{}, changed: make(chan struct{}, 1),
		restarts: restartMean{left: map[train.JobID]train.Attempt{}}, silence: newSilence(),
		missing: map[string]bool{
			event.BucketJobs: true, event.BucketNodes: true, event.BucketAttempts: true, event.BucketReports: true, event.BucketModels: true,
			event.BucketRates:    true,
			event.BucketMeetings: true, event.BucketLinks: true, event.BucketSettings: true,
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

// ready says whether every bucket was seen: before that, what is missing means nothing. Where a link loses packets, it must be known, too, who crosses it.
func (p *picture) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.missing) == 0 && (p.crossed != nil || len(p.degraded()) == 0)
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

// seeNode keeps each sign of life, but only what else is new, or the first sign after a silence, is worth a decision.
func (p *picture) seeNode(now time.Time, e bus.Entry[train.Node], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, had := p.nodes[e.Key]
	if deleted {
		p.silence.forget(e.Key)
		take(p, p.nodes, e, true)
		return
	}
	missed := p.silence.of(e.Key) >= nodeTimeout
	if !had {
		p.silence.meet(e.Key, now.Sub(e.Value.SeenAt))
	} else if !e.Value.SeenAt.Equal(before.SeenAt) {
		p.silence.broken(e.Key)
		same := e.Value
		same.SeenAt = before.SeenAt
		if !missed && reflect.DeepEqual(before, same) {
			p.nodes[e.Key] = e.Value
			return
		}
	}
	take(p, p.nodes, e, false)
}

// listen notes that time went by, and whether the bus could be heard.
func (p *picture) listen(now time.Time, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence.listen(now, connected)
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

// seeSetting takes note of how far a job may train for now, and on how many devices.
func (p *picture) seeSetting(e bus.Entry[train.Setting], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	take(p, p.wishes, e, deleted)
}

// seeMeetings keeps what is known until something else is: with it, what was computed from it.
func (p *picture) seeMeetings(e bus.Entry[curve.Meetings], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, had := p.meetings[e.Key]
	switch {
	case deleted || e.Value.Known == nil:
		delete(p.meetings, e.Key)
	case had && slices.Equal(before.Known.Encounters(), e.Value.Known.Encounters()):
		e.Value.Known = before.Known
		p.meetings[e.Key] = &e.Value // step times alone are of use to whoever tunes micro-batches, and no news for a plan
		return
	default:
		p.meetings[e.Key] = &e.Value
	}
	p.nudge()
}

// interference is what is known of the devices of nodes, by key. What was measured with another driver is a hint until this one has a record.
func (p *picture) interference(nodes []train.Node) map[string]*curve.Interference {
	known := map[string]*curve.Interference{}
	for _, n := range nodes {
		for i := range n.Devices {
			d := &n.Devices[i]
			key := curve.MeetingsKey(d)
			if p.meetings[key] == nil {
				newest := curve.NewestMeetings(p.meetings, d.Type())
				if newest == nil {
					continue
				}
				p.meetings[key] = curve.NewMeetings(d.Type(), d.Driver, newest)
			}
			known[key] = p.meetings[key].Known
		}
	}
	return known
}

// state is the picture as the decision wants it. last is the newest plan; known is false where there has never been one. Terms
// are what does not change.
func (p *picture) state(now time.Time, last train.Plan, known bool, terms plan.State) plan.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := terms
	s.Now, s.Memory = now, last.Memory
	if s.Tuning.RestartSeconds == 0 {
		s.Tuning.RestartSeconds = p.restarts.seconds()
	}
	for key, n := range p.nodes {
		silent := p.silence.of(key)
		if silent >= nodeTimeout {
			n.Devices = p.inUse(n)
		}
		if silent >= nodeLost || len(n.Devices) == 0 {
			continue
		}
		if s.Nodes = append(s.Nodes, n); silent >= nodeTimeout {
			s.Silent = append(s.Silent, n.ID)
		}
	}
	// A gang is spread over nodes only by Kubernetes, and a plan does not tell one job's nodes from another's.
	s.Tuning.OneNode = len(s.Nodes) == 0 || slices.ContainsFunc(s.Nodes, func(n train.Node) bool { return n.Backend != train.BackendKubernetes })
	s.Links = p.degraded()
	planned := make(map[train.JobID]*plan.Holding, len(last.Allocations))
	for _, a := range last.Allocations {
		h := plan.HoldingOf(a)
		planned[a.Job] = &h
	}
	for key, j := range p.jobs {
		a, tried := p.attempts[key]
		waitsForAdmission := j.State == train.StateNone || j.State == train.StateSubmitted
		paused := !a.Live() && p.wishes[key].Pauses(j.EpochsDone)
		if waitsForAdmission || paused || j.AwaitsBatch() || tried && a.Outcome.Terminal() {
			continue
		}
		job := p.job(j, now)
		job.Planned = planned[j.ID]
		if !known && job.Running != nil {
			job.Planned = &job.Running.Holding
		}
		s.Jobs = append(s.Jobs, job)
	}
	if slices.ContainsFunc(s.Jobs, func(j plan.Job) bool { return j.Spec.SharedMemory() > 0 }) {
		s.Interference = p.interference(s.Nodes)
	}
	if !slices.ContainsFunc(s.Jobs, func(j plan.Job) bool { return j.Spec.Energy != nil && j.Spec.Energy.StartBy != nil }) {
		s.Rates = nil // nobody waits for better ones
	}
	return s
}

// highestPower is the most that one device draws, in watts; 0 where none is known.
func (p *picture) highestPower() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := 0.0
	for _, n := range p.nodes {
		for i := range n.Devices {
			most = max(most, n.Devices[i].BusyPower().Watts())
		}
	}
	return most
}

// powerOf is what devices draw at most, in watts; 0 where the job has a part of one only, or one is not known.
func (p *picture) powerOf(parts []train.Part) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0.0
	for _, part := range parts {
		for _, id := range part.Devices {
			devices := p.nodes[string(part.Node)].Devices
			at := slices.IndexFunc(devices, func(d train.Device) bool { return d.ID == id })
			if at < 0 || part.Memory > 0 {
				return 0
			}
			sum += devices[at].BusyPower().Watts()
		}
	}
	return sum
}

// inUse are the devices of a node on which attempts are live.
func (p *picture) inUse(n train.Node) []train.Device {
	var used []train.Device
	for _, d := range n.Devices {
		for _, a := range p.attempts {
			if a.Live() && slices.Contains(a.DevicesOn(n.ID), d.ID) {
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
	wish := p.wishes[key]
	job := plan.Job{
		ID: j.ID, Spec: j.Spec, Priority: j.EffectivePriority(), SubmittedAt: j.SubmittedAt, EpochsDone: j.EpochsDone,
		RunSeconds: j.RunSeconds, DeviceSeconds: j.DeviceSeconds, Restarts: j.Restarts, CancelRequested: j.CancelRequested,
		RecentRestarts: recentRestarts(j, now), Outgrown: j.Outgrown, WantsDevices: int(wish.Values[train.SettingDevices]), BatchDevices: wish.BatchDevices,
	}
	if m, ok := p.models[key]; ok {
		job.Model, job.Slow = &m, m.Stragglers
	}
	a, ok := p.attempts[key]
	if !ok || !a.Live() {
		return job
	}
	report := p.reports[fmt.Sprintf("%s.%d", key, a.Number)]
	job.EpochsDone = max(job.EpochsDone, report.EpochsDone)
	job.Running = &plan.Running{
		Holding: plan.Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Parts: a.Parts}, StopPending: a.Stop != train.StopNone,
		Epochs: max(report.EpochsDone-a.StartedEpochs, 0), Spoke: report.Spoke,
	}
	if !a.StartedAt.IsZero() {
		job.Running.Seconds = max(now.Sub(a.StartedAt).Seconds(), 0)
		job.RunSeconds += job.Running.Seconds
		job.DeviceSeconds += job.Running.Seconds * float64(len(a.Devices))
	}
	return job
}

// recentRestarts counts how often plans had a job leave within the last hour.
func recentRestarts(j train.Job, now time.Time) int {
	n := 0
	for _, c := range j.History {
		if c.Fact == event.FactPreempted && now.Sub(c.At) < time.Hour {
			n++
		}
	}
	return n
}

// waits says whether a job has no live attempt by the register: only then is it of use to say what it waits for.
func (p *picture) waits(id train.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j, known := p.jobs[string(id)]
	return known && !j.State.Active()
}

// generation is the highest one of a plan that was acted on.
func (p *picture) generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	highest := uint64(0)
	for _, a := range p.attempts {
		if a.Generation <= lastGeneration {
			highest = max(highest, a.Generation)
		}
	}
	return highest
}

// wants says whether a parameter of a job is its experiment's to choose.
func (p *picture) wants(job, parameter string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wishes[job].Wants(parameter)
}

// knows says whether a job is in the register and has not ended.
func (p *picture) knows(id train.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.jobs[string(id)]
	return known
}
