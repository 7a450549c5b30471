package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/tune"
)

// tuner finds the micro-batches of jobs that share a device, while they run. The bucket is what node agents act on,
// and the only memory.
type tuner struct {
	bus     *bus.Bus
	log     *slog.Logger
	cache   *cache
	records ownRecords[contract.TuningRound]
	now     func() time.Time
}

func newTuner(ctx context.Context, b *bus.Bus, log *slog.Logger, known *cache) (*tuner, error) {
	t := &tuner{bus: b, log: log, cache: known, now: time.Now}
	return t, bus.Open(ctx, b, contract.TuningRounds, &t.records.kv)
}

// tuneEvery is the interval at which the heartbeats of jobs in tuning are checked.
const tuneEvery = time.Second

// run works until ctx ends.
func (t *tuner) run(ctx context.Context) error {
	for range tick.After(ctx, tuneEvery) {
		if !t.cache.ready() {
			continue
		}
		if err := t.pass(ctx); err != nil && ctx.Err() == nil {
			t.log.Warn("micro-batches not tuned", "error", err)
		}
	}
	return nil
}

// pass moves the tuning of each shared device on, and deletes that of devices on which nothing runs any more.
func (t *tuner) pass(ctx context.Context) error {
	if err := t.records.load(ctx); err != nil {
		return err
	}
	devices := t.cache.tenants()
	if err := t.records.keep(ctx, func(key string) bool { return len(devices[key]) > 0 }); err != nil {
		return err
	}
	var errs []error
	for key, tenants := range devices {
		errs = append(errs, t.device(ctx, key, tenants))
		if t.records.known == nil {
			break
		}
	}
	return errors.Join(errs...)
}

// device begins a round if the jobs on a device have changed or the last round was not answered. Otherwise it moves
// the present round on.
func (t *tuner) device(ctx context.Context, key string, tenants []tenant) error {
	e, tuned := t.records.known[key]
	record, now := tune.Record(e.Value), t.now().UTC()
	switch {
	case !tuned && len(tenants) < 2:
		return nil
	case !tuned || !sameTenants(record, tenants) || record.Due(now):
		return t.open(ctx, key, tenants, record, now)
	case record.Settled.Code != "":
		late, err := t.lateSpeaker(ctx, record)
		if err != nil || !late {
			return err
		}
		return t.open(ctx, key, tenants, record, now)
	default:
		beats, err := t.beats(ctx, record)
		if err != nil || !record.Move(beats, now) {
			return err
		}
	}
	return t.store(ctx, key, record)
}

// open begins a round, unless a round goes on for another device of one of the jobs, or a job has not reported yet.
func (t *tuner) open(ctx context.Context, key string, tenants []tenant, record tune.Record, now time.Time) error {
	if t.elsewhere(key, tenants) {
		return nil
	}
	record.Node, record.Device = tenants[0].node, tenants[0].device
	record.Bound(func(job train.JobID, attempt int) bool {
		return slices.ContainsFunc(tenants, func(one tenant) bool { return one.attempt.Job == job && one.attempt.Number == attempt })
	})
	sharers, met, err := t.meet(ctx, tenants, record.Most, now)
	if err != nil || !met {
		return err
	}
	return t.store(ctx, key, tune.Open(record, sharers, now))
}

func (t *tuner) store(ctx context.Context, key string, record tune.Record) error {
	if err := t.records.put(ctx, key, contract.TuningRound(record)); err != nil {
		return fmt.Errorf("tune the jobs on %s of %s: %w", record.Device, record.Node, err)
	}
	if record.Settled.Code != "" {
		t.log.Info("micro-batches settled", "node", record.Node, "device", record.Device, "batches", words(record.Tuning), "reason", record.Settled.Message)
	}
	return nil
}

// elsewhere reports whether a round goes on for another device of one of the jobs: its trials would show in the
// steps here.
func (t *tuner) elsewhere(key string, tenants []tenant) bool {
	for other, e := range t.records.known {
		if other == key || e.Value.Settled.Code != "" {
			continue
		}
		if slices.ContainsFunc(e.Value.Sharers, func(s contract.Sharer) bool {
			return slices.ContainsFunc(tenants, func(one tenant) bool { return one.attempt.Job == s.Job && one.attempt.Number == s.Attempt })
		}) {
			return true
		}
	}
	return false
}

func sameTenants(r tune.Record, tenants []tenant) bool {
	return slices.EqualFunc(r.Sharers, tenants, func(s contract.Sharer, t tenant) bool { return s.Job == t.attempt.Job && s.Attempt == t.attempt.Number })
}

func words(t train.Tuning) string {
	all := make([]string, 0, len(t.Tenants))
	for _, one := range t.Tenants {
		all = append(all, fmt.Sprintf("%s %s", one.Job, one))
	}
	return strings.Join(all, ", ")
}

// meet finds out which of the jobs can be tuned: those that report their micro-batch. It waits a while for a job
// that has reported nothing yet.
func (t *tuner) meet(ctx context.Context, tenants []tenant, most map[train.JobID]int, now time.Time) (sharers []contract.Sharer, met bool, err error) {
	for _, one := range tenants {
		beat, spoke, err := t.lastBeat(ctx, one.attempt.Job, one.attempt.Number)
		if err != nil {
			return nil, false, err
		}
		// StartedAt may be by the clock of the node.
		if !spoke && now.Sub(one.attempt.StartedAt).Abs() < tune.AnswerTimeout && len(tenants) > 1 {
			return nil, false, nil
		}
		sharers = append(sharers, one.sharer(spoke, beat.MicroBatch > 0, most))
	}
	return sharers, true, nil
}

// lastBeat returns the newest heartbeat of an attempt, from any of its processes; false if it has sent none.
func (t *tuner) lastBeat(ctx context.Context, job train.JobID, attempt int) (event.Stepped, bool, error) {
	beat, sent, err := bus.LastOf[event.Stepped](ctx, t.bus, event.StreamSamples, heartbeatsOf(job))
	return beat, sent && beat.Attempt == attempt, err
}

// lateSpeaker reports whether a job that was given up as silent in an earlier round reports steps after all: some
// import and compile for long.
func (t *tuner) lateSpeaker(ctx context.Context, r tune.Record) (bool, error) {
	for _, s := range r.Sharers {
		if !s.Silent {
			continue
		}
		if _, spoke, err := t.lastBeat(ctx, s.Job, s.Attempt); err != nil || spoke {
			return spoke, err
		}
	}
	return false, nil
}

// beats returns the heartbeats that may be answers, in order. Stored times are the server's, so some older ones are
// read, too.
func (t *tuner) beats(ctx context.Context, r tune.Record) ([]tune.Beat, error) {
	const slack = 10 * time.Second
	var subjects []string
	for _, s := range r.Sharers {
		subjects = append(subjects, heartbeatsOf(s.Job).String())
	}
	var all []tune.Beat
	err := t.bus.Stored(ctx, event.StreamSamples, subjects, r.Since.Add(-slack), func(m bus.Message) {
		if beat, ok := beatOf(m); ok {
			all = append(all, beat)
		}
	})
	return all, err
}

func heartbeatsOf(job train.JobID) event.Subject {
	return event.Subject{Entity: "sample", ID: string(job), Fact: event.FactStepped, Version: 1}
}

// beatOf reads a heartbeat of a job's first process; false for other messages.
func beatOf(m bus.Message) (tune.Beat, bool) {
	b, err := event.Decode[event.Stepped](m.Data)
	if err != nil || b.Rank != 0 || b.Attempt == 0 {
		return tune.Beat{}, false
	}
	return tune.Beat{
		Job: train.JobID(m.Parsed.ID), Attempt: b.Attempt, At: m.Time, Generation: b.Generation, MicroBatch: b.MicroBatch, Step: b.Step, Steps: b.Steps, StepSeconds: b.StepSeconds,
	}, true
}

// tenant is a running attempt on a device, which may be one of several of its devices, with the records of its
// job.
type tenant struct {
	attempt train.Attempt
	node    train.NodeID
	device  train.DeviceID
	job     *train.Job
	model   train.Model
	// batch is the batch size of the job on its devices.
	batch int
	// alone is the time of a step of such a job alone on as many such devices; 0 if it was not measured.
	alone float64
	// own says that the experiment of the job chooses its micro-batch.
	own bool
}

// tenants returns the attempts that run on each device, by the key of its tuning, in the order of their jobs.
func (p *cache) tenants() map[string][]tenant {
	p.mu.Lock()
	defer p.mu.Unlock()
	devices := map[string][]tenant{}
	for key, a := range p.live {
		j, known := p.jobs[key]
		if !known || a.Phase != train.PhaseRunning {
			continue
		}
		wish := p.wishes[key]
		one := tenant{
			attempt: a, job: j, model: p.models[key], batch: wish.BatchOn(a.DeviceCount(), j.Spec.BatchSize),
			alone: p.alone(a, j.Spec), own: wish.Wants(train.SettingMicroBatch),
		}
		for _, part := range a.Places() {
			for _, d := range part.Devices {
				at := train.TuningKey(part.Node, d)
				one.node, one.device = part.Node, d
				devices[at] = append(devices[at], one)
			}
		}
	}
	for _, all := range devices {
		slices.SortFunc(all, func(a, b tenant) int { return strings.Compare(string(a.attempt.Job), string(b.attempt.Job)) })
	}
	return devices
}

// alone returns the measured time of a step of a job alone on as many devices of such a type.
func (p *cache) alone(a train.Attempt, spec train.Spec) float64 {
	first := a.Places()[0]
	devices := p.nodes[string(first.Node)].Devices
	at := slices.IndexFunc(devices, func(d train.Device) bool { return slices.Contains(first.Devices, d.ID) })
	if at < 0 {
		return 0
	}
	met := p.meetings[curve.InterferenceKey(&devices[at])]
	if met == nil {
		return 0
	}
	seconds, _ := met.StepAlone(curve.KindOf(spec).On(a.DeviceCount(), len(a.Places())))
	return seconds
}

// mostDoublings bounds how far the effective batch may exceed the submitted one, if it may at all.
const mostDoublings = 2

// sharer is the job as a round of tuning sees it. The micro-batch of a job on several devices stays: it would
// change on all of them.
func (t tenant) sharer(spoke, tunable bool, most map[train.JobID]int) contract.Sharer {
	batch := max(t.batch, 1)
	s := contract.Sharer{
		Job: t.attempt.Job, Attempt: t.attempt.Number, BatchSize: batch, Batches: []int{batch}, Gains: []float64{1},
		AloneSeconds: t.alone,
		Weight:       float64(max(t.job.EffectivePriority(), 1)), Fixed: !tunable || t.own || t.attempt.DeviceCount() > 1, Silent: !spoke,
	}
	if s.Fixed {
		return s
	}
	largest := t.largest(batch)
	if bound, bounded := most[s.Job]; bounded {
		largest = min(largest, bound)
	}
	s.Batches, s.Gains = tune.Batches(batch, largest), nil
	for _, b := range s.Batches {
		gain := 1.0
		if b > batch {
			gain = t.model.Efficiency.Gain(b) / t.model.Efficiency.Gain(batch)
		}
		s.Gains = append(s.Gains, gain)
	}
	return s
}

// largest returns the micro-batch up to which the optimizer step may grow: as far as it fits into the job's part of
// the device, and only if the user allows it and the gradient's noise shows what a larger step is worth. A batch
// with which an attempt ran out of memory is too large on every device.
func (t tenant) largest(batch int) int {
	m := t.model
	if !t.job.Spec.TuneEffectiveBatch || t.job.StepsTooLarge || m.Memory == nil || m.Efficiency == nil || !(m.Efficiency.Variance > 0) {
		return batch
	}
	largest := batch
	for _, b := range tune.Batches(batch, batch<<mostDoublings) {
		if b > batch && m.Memory.Reserved(b) <= t.attempt.Memory {
			largest = b
		}
	}
	return largest
}
