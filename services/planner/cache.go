package planner

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// cache is what the planner knows, kept by watches.
type cache struct {
	mu      sync.Mutex
	jobs    map[string]*train.Job
	nodes   map[string]train.Node
	silence silence
	// attempts has the newest attempt of each job, ended or not; live has those that hold devices.
	attempts map[string]train.Attempt
	live     map[string]train.Attempt
	reports  map[string]train.AttemptReport
	models   map[string]train.Model
	meetings map[string]*curve.InterferenceRecord
	links    map[string]train.Link
	crossed  map[string]pinglist.Crossing
	wishes   map[string]train.Setting
	// conditions and eligible are by node.
	conditions map[string]train.NodeCondition
	eligible   map[string]train.Eligibility
	// bounds are those of tenants, spendings the energy that they have used.
	bounds    map[string]access.Tenant
	spendings map[string]contract.Spending
	// placed are the pods of no job for which this planner or the one before it has booked memory, asking those that
	// wait for it, by UID. tunings are the micro-batches that these planners try.
	placed   map[string]train.PlacedPod
	tunings  map[string]train.Tuning
	asking   map[string]*asking
	usage    usage
	missing  map[string]bool
	restarts restartMean
	// changed has room for one signal that something is new, learned for one that models are.
	changed, learned tick.Signal
}

func newCache() *cache {
	return &cache{
		jobs: map[string]*train.Job{}, nodes: map[string]train.Node{}, attempts: map[string]train.Attempt{}, live: map[string]train.Attempt{},
		reports: map[string]train.AttemptReport{}, models: map[string]train.Model{}, meetings: map[string]*curve.InterferenceRecord{},
		links: map[string]train.Link{}, wishes: map[string]train.Setting{}, changed: tick.NewSignal(), learned: tick.NewSignal(),
		conditions: map[string]train.NodeCondition{}, eligible: map[string]train.Eligibility{}, bounds: map[string]access.Tenant{},
		spendings: map[string]contract.Spending{}, placed: map[string]train.PlacedPod{}, tunings: map[string]train.Tuning{}, asking: map[string]*asking{}, usage: newUsage(),
		restarts: restartMean{counted: map[train.JobID]int{}}, silence: newSilence(),
		missing: map[string]bool{
			string(contract.Jobs): true, string(contract.Nodes): true, string(contract.Attempts): true, string(contract.Reports): true, string(contract.Models): true,
			string(contract.Rates): true, string(contract.Conditions): true, string(contract.Eligibility): true, string(contract.Tenants): true,
			string(contract.Spendings): true, string(contract.PlacedPods): true, string(contract.Tunings): true,
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

func (p *cache) wake() { p.changed.Send() }

// stale reports whether something has changed since the last decision began.
func (p *cache) stale() bool { return len(p.changed) > 0 }

// observe enters a value and wakes if that changes anything: a watch repeats itself.
func observe[T any](p *cache, known map[string]T, e bus.Entry[T], deleted bool) {
	if enter(known, e, deleted) {
		p.wake()
	}
}

// enter enters a value and reports whether that changes anything.
func enter[T any](known map[string]T, e bus.Entry[T], deleted bool) bool {
	before, had := known[e.Key]
	switch {
	case deleted && had:
		delete(known, e.Key)
	case deleted || had && reflect.DeepEqual(before, e.Value):
		return false
	default:
		known[e.Key] = e.Value
	}
	return true
}

// observeModel enters the model of a job. With many jobs, some model changes all the time: that alone is not decided on
// at once.
func (p *cache) observeModel(e bus.Entry[train.Model], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if enter(p.models, e, deleted) {
		p.learned.Send()
	}
}

func (p *cache) observeJob(e bus.Entry[*train.Job], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Value.State.Terminal() {
		// An ended job is of no interest, and there may be very many of them.
		deleted = true
		p.usage.leave(e.Value)
	}
	before := p.jobs[e.Key]
	if deleted {
		delete(p.jobs, e.Key)
	} else {
		p.jobs[e.Key] = e.Value
	}
	if known := before != nil; known == deleted || known && !reflect.DeepEqual(lean(before), lean(e.Value)) {
		p.wake()
	}
}

// lean is a record without what no decision reads: most facts about a job that waits only say why.
func lean(j *train.Job) train.Job {
	l := *j
	l.Reason, l.Message, l.Hint, l.LogTail, l.Blockers, l.Warnings, l.Edits, l.History = "", "", "", "", nil, nil, nil, nil
	l.LastSequence, l.Generation, l.Since = 0, 0, time.Time{}
	for _, c := range j.History {
		if c.Fact == event.FactPreempted || j.State.Active() {
			l.History = append(l.History, c)
		}
	}
	return l
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
	missed := p.silence.of(e.Key) >= records.NodeTimeout
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

// listen notes that time went by, and whether the bus could be heard. It wakes if a node has now been silent for so
// long that this matters.
func (p *cache) listen(now time.Time, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.silence.listened
	p.silence.listen(now, connected)
	step := p.silence.listened - before
	for node := range p.nodes {
		for _, limit := range []time.Duration{records.NodeTimeout, records.NodeLost} {
			if silent := p.silence.of(node); silent >= limit && silent-step < limit {
				p.wake()
			}
		}
	}
}

func (p *cache) observeAttempt(e bus.Entry[train.Attempt], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted {
		p.usage.forget(e.Key)
	} else {
		p.restarts.see(e.Value)
		p.usage.see(e.Value)
	}
	if delete(p.live, e.Key); e.Value.Live() && !deleted {
		p.live[e.Key] = e.Value
	}
	observe(p, p.attempts, e, deleted)
}

// observeReport takes note of the steps of an attempt, but each of them is not worth a decision.
func (p *cache) observeReport(e bus.Entry[train.AttemptReport], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, had := p.reports[e.Key]; had && !deleted {
		before.Steps = e.Value.Steps
		p.reports[e.Key] = before
	}
	observe(p, p.reports, e, deleted)
}

// noting returns what keeps some records of the cache.
func noting[V any](p *cache, records map[string]V) func(bus.Entry[V], bool) {
	return func(e bus.Entry[V], deleted bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		observe(p, records, e, deleted)
	}
}

// observeSpending takes note of the energy that a tenant has used: the decisions that come anyway see it.
func (p *cache) observeSpending(e bus.Entry[contract.Spending], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.spendings, e.Key); !deleted {
		p.spendings[e.Key] = e.Value
	}
}

// node returns a node, and how many nodes there are.
func (p *cache) node(id train.NodeID) (train.Node, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[string(id)]
	n.ID = id
	return n, len(p.nodes)
}

// abandoned reports whether a node is silent, and no attempt has devices of it. n is its newest record.
func (p *cache) abandoned(n train.Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.live {
		if a.IsOn(n.ID) {
			return false
		}
	}
	known, is := p.nodes[string(n.ID)]
	return is && known.SeenAt.Equal(n.SeenAt) && p.silence.of(string(n.ID)) >= records.NodeTimeout
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

// state returns the input of a decision on what the planner knows.
func (p *cache) state(now time.Time, last train.Plan, known bool, terms plan.State) plan.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	return p.records().State(now, last, known, terms)
}

func (p *cache) records() records.Records {
	return records.Records{
		Jobs: maps.Values(p.jobs), Nodes: maps.Values(p.nodes), Attempts: p.attempts, Reports: p.reports, Models: p.models, Settings: p.wishes, Tunings: p.tunings,
		Links: p.degraded(), Silence: func(n train.NodeID) time.Duration { return p.silence.of(string(n)) }, Interference: p.interference,
		RestartSeconds: p.restarts.seconds(), Conditions: p.conditions, Eligibility: p.eligible, Tenants: p.bounds,
		Spendings: p.spendings, Usage: p.usage.DeviceSeconds, Placed: p.placed, Asking: p.requests(),
	}
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

// waits says whether a job has no live attempt by the register, and what it is known to wait for: only then is it of
// use to say why it waits. If its devices were taken back before an attempt began, it waits, although the register
// still has it starting.
func (p *cache) waits(id train.JobID) ([]train.Reason, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.jobs[string(id)]
	if j == nil {
		return nil, false
	}
	begins := j.State == train.StateStarting && !p.attempts[string(id)].Live()
	return j.Blockers, begins || !j.State.Active()
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
