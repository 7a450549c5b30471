package planner

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// cache is what the planner knows, kept by watches.
type cache struct {
	mu       sync.Mutex
	jobs     map[string]train.Job
	nodes    map[string]train.Node
	silence  silence
	attempts map[string]train.Attempt
	reports  map[string]train.AttemptReport
	models   map[string]train.Model
	meetings map[string]*curve.InterferenceRecord
	links    map[string]train.Link
	crossed  map[string]pinglist.Crossing
	wishes   map[string]train.Setting
	missing  map[string]bool
	restarts restartMean
	// changed has room for one signal that something is new.
	changed chan struct{}
}

func newCache() *cache {
	return &cache{
		jobs: map[string]train.Job{}, nodes: map[string]train.Node{}, attempts: map[string]train.Attempt{},
		reports: map[string]train.AttemptReport{}, models: map[string]train.Model{}, meetings: map[string]*curve.InterferenceRecord{},
		links: map[string]train.Link{}, wishes: map[string]train.Setting{}, changed: make(chan struct{}, 1),
		restarts: restartMean{left: map[train.JobID]train.Attempt{}}, silence: newSilence(),
		missing: map[string]bool{
			string(contract.Jobs): true, string(contract.Nodes): true, string(contract.Attempts): true, string(contract.Reports): true, string(contract.Models): true,
			string(contract.Rates):        true,
			string(contract.Interference): true, string(contract.Links): true, string(contract.Settings): true,
		},
	}
}

// complete is called when a bucket was seen as a whole.
func (p *cache) complete(bucket string) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.missing[bucket] {
			delete(p.missing, bucket)
			p.wake()
		}
	}
}

// ready reports whether every bucket was read: before that, a missing record means nothing. If a link loses packets,
// the jobs that cross it must be known, too.
func (p *cache) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.missing) == 0 && (p.crossed != nil || len(p.degraded()) == 0)
}

func (p *cache) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// observe enters a value and wakes if that changes anything: a watch repeats itself.
func observe[T any](p *cache, known map[string]T, e bus.Entry[T], deleted bool) {
	before, had := known[e.Key]
	switch {
	case deleted && had:
		delete(known, e.Key)
	case deleted || had && reflect.DeepEqual(before, e.Value):
		return
	default:
		known[e.Key] = e.Value
	}
	p.wake()
}

func (p *cache) observeJob(e bus.Entry[train.Job], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Value.State.Terminal() {
		// An ended job is of no interest, and there may be very many of them.
		deleted = true
	}
	observe(p, p.jobs, e, deleted)
}

// observeNode keeps each sign of life, but only what else is new, or the first sign after a silence, is worth a
// decision.
func (p *cache) observeNode(now time.Time, e bus.Entry[train.Node], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, had := p.nodes[e.Key]
	if deleted {
		p.silence.forget(e.Key)
		observe(p, p.nodes, e, true)
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
	observe(p, p.nodes, e, false)
}

// listen notes that time went by, and whether the bus could be heard.
func (p *cache) listen(now time.Time, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence.listen(now, connected)
}

func (p *cache) observeAttempt(e bus.Entry[train.Attempt], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !deleted {
		p.restarts.see(e.Value)
	}
	observe(p, p.attempts, e, deleted)
}

func (p *cache) observeReport(e bus.Entry[train.AttemptReport], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	observe(p, p.reports, e, deleted)
}

func (p *cache) observeModel(e bus.Entry[train.Model], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	observe(p, p.models, e, deleted)
}

// observeSetting takes note of how far a job may train for now, and on how many devices.
func (p *cache) observeSetting(e bus.Entry[train.Setting], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	observe(p, p.wishes, e, deleted)
}

// observeInterference keeps what is known until something else is: with it, what was computed from it.
func (p *cache) observeInterference(e bus.Entry[curve.InterferenceRecord], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, had := p.meetings[e.Key]
	switch {
	case deleted || e.Value.Known == nil:
		delete(p.meetings, e.Key)
	case had && slices.Equal(before.Known.Samples(), e.Value.Known.Samples()):
		e.Value.Known = before.Known
		p.meetings[e.Key] = &e.Value // only the tuner of micro-batches uses step times: no news for a plan
		return
	default:
		p.meetings[e.Key] = &e.Value
	}
	p.wake()
}

// interference returns the interference measured on the devices of nodes, by key. A measurement with another driver is
// a hint until this driver has a record.
func (p *cache) interference(nodes []train.Node) map[string]*curve.Interference {
	known := map[string]*curve.Interference{}
	for _, n := range nodes {
		for i := range n.Devices {
			d := &n.Devices[i]
			key := curve.InterferenceKey(d)
			if p.meetings[key] == nil {
				newest := curve.NewestInterferenceRecord(p.meetings, d.Type())
				if newest == nil {
					continue
				}
				p.meetings[key] = curve.NewInterferenceRecord(d.Type(), d.Driver, newest)
			}
			known[key] = p.meetings[key].Known
		}
	}
	return known
}

// state returns the input of a decision. last is the newest plan; known is false if there has never been one. terms is
// the part that does not change.
func (p *cache) state(now time.Time, last train.Plan, known bool, terms plan.State) plan.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := terms
	s.Now, s.Memory = now, last.Memory
	if s.Tuning.RestartSeconds == 0 {
		s.Tuning.RestartSeconds = p.restarts.seconds()
	}
	s.Nodes, s.Silent = p.liveNodes()
	// A gang is spread over nodes only by Kubernetes, and a plan does not tell one job's nodes from another's.
	s.Tuning.OneNode = len(s.Nodes) == 0 || slices.ContainsFunc(s.Nodes, func(n train.Node) bool { return n.Backend != train.BackendKubernetes })
	s.Links = p.degraded()
	s.Jobs = p.plannable(now, last, known)
	if slices.ContainsFunc(s.Jobs, func(j plan.Job) bool { return j.Spec.SharedMemory() > 0 }) {
		s.Interference = p.interference(s.Nodes)
	}
	if !slices.ContainsFunc(s.Jobs, func(j plan.Job) bool { return j.Spec.Energy != nil && j.Spec.Energy.StartBy != nil }) {
		s.Rates = nil // nobody waits for better ones
	}
	return s
}

// liveNodes returns the nodes that are not lost, and which of them are silent. A silent node keeps only the devices
// on which attempts are live.
func (p *cache) liveNodes() (live []train.Node, quiet []train.NodeID) {
	for key, n := range p.nodes {
		silent := p.silence.of(key)
		if silent >= nodeTimeout {
			n.Devices = p.inUse(n)
		}
		if silent >= nodeLost || len(n.Devices) == 0 {
			continue
		}
		if live = append(live, n); silent >= nodeTimeout {
			quiet = append(quiet, n.ID)
		}
	}
	return live, quiet
}

// plannable returns the jobs that the decision is about, with what the last plan gave them. Without a last plan, a
// running job counts as planned where it runs.
func (p *cache) plannable(now time.Time, last train.Plan, known bool) []plan.Job {
	planned := make(map[train.JobID]*plan.Holding, len(last.Allocations))
	for _, a := range last.Allocations {
		h := plan.HoldingOf(a)
		planned[a.Job] = &h
	}
	var jobs []plan.Job
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
		jobs = append(jobs, job)
	}
	return jobs
}

// highestPower is the most that one device draws, in watts; 0 if no device is known.
func (p *cache) highestPower() float64 {
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
func (p *cache) powerOf(parts []train.Part) float64 {
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
func (p *cache) inUse(n train.Node) []train.Device {
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
func (p *cache) job(j train.Job, now time.Time) plan.Job {
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
func (p *cache) waits(id train.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j, known := p.jobs[string(id)]
	return known && !j.State.Active()
}

// generation is the highest one of a plan that was acted on.
func (p *cache) generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	highest := uint64(0)
	for _, a := range p.attempts {
		if a.Generation <= decision.LastGeneration {
			highest = max(highest, a.Generation)
		}
	}
	return highest
}

// wants says whether a parameter of a job is its experiment's to choose.
func (p *cache) wants(job, parameter string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wishes[job].Wants(parameter)
}

// knows says whether a job is in the register and has not ended.
func (p *cache) knows(id train.JobID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.jobs[string(id)]
	return known
}
