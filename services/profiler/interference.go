package profiler

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// interference holds the records of how jobs slow each other down, by key. Each record stores the sequence of the
// last fact in it, so a fact counts once.
type interference struct {
	records map[string]*curve.InterferenceRecord
	// fresh are the keys of records that have not been written yet.
	fresh map[string]struct{}
	// devices are the devices of known nodes.
	devices map[deviceKey]train.Device
}

func newInterference() *interference {
	return &interference{records: map[string]*curve.InterferenceRecord{}, fresh: map[string]struct{}{}, devices: map[deviceKey]train.Device{}}
}

func (m *interference) observe(n train.Node) {
	for _, d := range n.Devices {
		m.devices[deviceKey{n.ID, d.ID}] = d
	}
}

// device describes a device; the zero value if it is unknown.
func (m *interference) device(node train.NodeID, device train.DeviceID) train.Device {
	return m.devices[deviceKey{node, device}]
}

// record returns the record for devices. It is nil if a device is unknown or of another type than the others, or if
// the fact at this position of the stream is counted already.
func (m *interference) record(at []deviceKey, sequence uint64) *curve.InterferenceRecord {
	d := m.devices[at[0]]
	key := curve.InterferenceKey(&d)
	for _, p := range at {
		if other, known := m.devices[p]; !known || curve.InterferenceKey(&other) != key {
			return nil
		}
	}
	newest := curve.NewestInterferenceRecord(m.records, d.Type())
	if newest != nil && sequence <= newest.Through {
		return nil
	}
	r := m.records[key]
	if r == nil {
		r = curve.NewInterferenceRecord(d.Type(), d.Driver, newest)
	}
	r.Through, m.records[key], m.fresh[key] = sequence, r, struct{}{}
	return r
}

// storeInterference stores the changed records.
func (s *store) storeInterference(ctx context.Context) error {
	for key, want := range s.estimator.changedInterference() {
		_, err := s.interference.Modify(ctx, key, func(found *curve.InterferenceRecord) (bool, error) {
			newer := want.Through > found.Through
			if newer {
				*found = want
			}
			return newer, nil
		})
		if err != nil {
			s.estimator.keepChanged(key)
			return fmt.Errorf("store the measurements of %s: %w", want.Device, err)
		}
	}
	return nil
}

// readInterference starts from the stored records and the present nodes: facts of the past are attributed to the
// devices of now.
func (s *store) readInterference(ctx context.Context) error {
	stored, err := s.interference.List(ctx)
	if err != nil {
		return err
	}
	present, err := s.nodes.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range present {
		s.estimator.onNode(e, false)
	}
	s.estimator.mu.Lock()
	defer s.estimator.mu.Unlock()
	for _, e := range stored {
		s.estimator.interference.records[e.Key] = &e.Value
	}
	return nil
}

// trackDevices follows a job to its devices and away from them.
func (e *estimator) trackDevices(j *learn.Job, m bus.Message, body any) {
	switch b := body.(type) {
	case *event.Started:
		if b.Attempt > j.Attempt() && len(b.Devices) > 0 {
			var at []deviceKey
			for _, p := range b.Places() {
				for _, d := range p.Devices {
					at = append(at, deviceKey{p.Node, d})
				}
			}
			e.residency.started(j.ID, curve.KindOf(j.Spec), at, m.Time).limited = b.Enforcement == train.EnforcedByMPS
		}
	case *event.AttemptLost:
		e.failed(j, m, b.Exit, b.Enlarged)
	case *event.Failed:
		e.failed(j, m, b.Exit, b.Enlarged)
	case *event.Preempted, *event.Succeeded, *event.Cancelled, *event.Rejected:
		e.residency.ended(j.ID, m.Time)
	}
}

// failed records that a job ended badly, perhaps because it ran out of memory beside a co-runner. If its steps were
// larger than submitted, they may be the cause instead, and nothing is recorded.
func (e *estimator) failed(j *learn.Job, m bus.Message, exit train.Exit, enlarged bool) {
	if sample, pair := e.residency.outOfMemory(j.ID); pair && !enlarged && exit.OutOfDeviceMemory() {
		if r := e.interference.record(sample.places, m.Sequence); r != nil {
			r.OutOfMemory(sample.self, sample.coRunners[0][0])
		}
	}
	e.residency.ended(j.ID, m.Time)
}

// measure takes an interference sample from the last epoch of a job.
func (e *estimator) measure(j *learn.Job, m bus.Message, b *event.EpochEnded) {
	last := j.History.Epochs[len(j.History.Epochs)-1]
	step := b.StepSeconds
	if step <= 0 {
		step = last.Seconds / float64(max(last.Steps, 1))
	}
	if usual := j.Spec.BatchSize * b.Steps; j.Spec.TuneEffectiveBatch && b.Samples > usual && usual > 0 {
		step *= float64(usual) / float64(b.Samples) // larger steps than submitted count as several
	}
	if sample, measured := e.residency.epochEnded(j.ID, m.Time, b.BatchesSince, last.Seconds, step); measured {
		if r := e.interference.record(sample.places, m.Sequence); r != nil {
			r.MeasuredOn(sample.self, sample.coRunners, sample.stepSeconds)
		}
	}
}

// changedInterference empties the set of unwritten records and returns them.
func (e *estimator) changedInterference() map[string]curve.InterferenceRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	due := map[string]curve.InterferenceRecord{}
	for key := range e.interference.fresh {
		due[key] = e.interference.records[key].Clone()
	}
	clear(e.interference.fresh)
	return due
}

// keepChanged marks a record that could not be written.
func (e *estimator) keepChanged(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interference.fresh[key] = struct{}{}
}

// onNode stores the devices of a node. A deleted node stays known, for the last facts of its jobs.
func (e *estimator) onNode(node bus.Entry[train.Node], deleted bool) {
	if deleted {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interference.observe(node.Value)
}

// onPod follows a pod of no job to the device of which it has memory, and away from it: jobs beside it are not alone.
func (e *estimator) onPod(pod bus.Entry[train.PlacedPod], deleted bool, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := train.PlainPodJob(pod.Key)
	at := []deviceKey{{pod.Value.Node, pod.Value.Device}}
	here := e.residency.live[id]
	switch {
	case deleted:
		e.residency.ended(id, now)
	case !pod.Value.SeenAt.IsZero() && (here == nil || here.places[0] != at[0]):
		iv := e.residency.started(id, curve.KindOf(pod.Value.Pod.Spec()), at, pod.Value.SeenAt)
		iv.trains, iv.silent = pod.Value.SeenAt, true
	}
}
