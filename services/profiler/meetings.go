package profiler

import (
	"context"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// meetings are the records of how jobs get on with each other, by key. A fact counts once: records say through which one they have come.
type meetings struct {
	records map[string]*curve.Meetings
	// fresh are the keys of records that were not written yet.
	fresh map[string]struct{}
	// devices are those of the nodes that there are.
	devices map[place]train.Device
}

func newMeetings() *meetings {
	return &meetings{records: map[string]*curve.Meetings{}, fresh: map[string]struct{}{}, devices: map[place]train.Device{}}
}

// see takes note of a node.
func (m *meetings) see(n train.Node) {
	for _, d := range n.Devices {
		m.devices[place{n.ID, d.ID}] = d
	}
}

// record gives the record for devices, nil where one of them is not known or of another type than the others, or the fact of a place in the stream counts
// already.
func (m *meetings) record(at []place, sequence uint64) *curve.Meetings {
	d := m.devices[at[0]]
	key := curve.MeetingsKey(&d)
	for _, p := range at {
		if other, known := m.devices[p]; !known || curve.MeetingsKey(&other) != key {
			return nil
		}
	}
	newest := curve.NewestMeetings(m.records, d.Type())
	if newest != nil && sequence <= newest.Through {
		return nil
	}
	r := m.records[key]
	if r == nil {
		r = curve.NewMeetings(d.Type(), d.Driver, newest)
	}
	r.Through, m.records[key], m.fresh[key] = sequence, r, struct{}{}
	return r
}

// storeMeetings stores the records that have changed.
func (t *teacher) storeMeetings(ctx context.Context) error {
	for key, want := range t.learner.newMeetings() {
		_, err := t.meetings.Modify(ctx, key, func(found *curve.Meetings) (bool, error) {
			newer := want.Through > found.Through
			if newer {
				*found = want
			}
			return newer, nil
		})
		if err != nil {
			t.learner.keepMeetings(key)
			return fmt.Errorf("store what was measured of %s: %w", want.Device, err)
		}
	}
	return nil
}

// readMeetings starts from what was stored, and from the nodes that there are: facts of the past are put down to the devices of now.
func (t *teacher) readMeetings(ctx context.Context) error {
	stored, err := t.meetings.List(ctx)
	if err != nil {
		return err
	}
	present, err := t.nodes.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range present {
		t.learner.seeNode(e, false)
	}
	t.learner.mu.Lock()
	defer t.learner.mu.Unlock()
	for _, e := range stored {
		t.learner.meetings.records[e.Key] = &e.Value
	}
	return nil
}

// meet follows a job to its devices and away from them.
func (l *learner) meet(j *job, m bus.Message, body any) {
	switch b := body.(type) {
	case *event.Started:
		if b.Attempt > j.attempt && len(b.Parts) == 0 && len(b.Devices) > 0 {
			at := make([]place, len(b.Devices))
			for i, d := range b.Devices {
				at[i] = place{b.Node, d}
			}
			l.stays.arrive(j.id, curve.KindOf(j.spec), at, m.Time).held = b.Enforcement == train.EnforcedByMPS
		}
	case *event.AttemptLost:
		l.exited(j, m, b.Exit, b.Enlarged)
	case *event.Failed:
		l.exited(j, m, b.Exit, b.Enlarged)
	case *event.Preempted, *event.Succeeded, *event.Cancelled, *event.Rejected:
		l.stays.leave(j.id, m.Time)
	}
}

// exited notes that a job has ended with trouble: for want of memory beside another, perhaps. With larger steps than the submitted ones it may be these.
func (l *learner) exited(j *job, m bus.Message, exit train.Exit, enlarged bool) {
	if met, pair := l.stays.outOfMemory(j.id); pair && !enlarged && exit.OutOfDeviceMemory() {
		if r := l.meetings.record(met.places, m.Sequence); r != nil {
			r.OutOfMemory(met.self, met.companies[0][0])
		}
	}
	l.stays.leave(j.id, m.Time)
}

// measure learns from the last epoch of a job.
func (l *learner) measure(j *job, m bus.Message, b *event.EpochEnded) {
	last := j.history.Epochs[len(j.history.Epochs)-1]
	step := b.StepSeconds
	if step <= 0 {
		step = last.Seconds / float64(max(last.Steps, 1))
	}
	if usual := j.spec.BatchSize * b.Steps; j.spec.TuneEffectiveBatch && b.Samples > usual && usual > 0 {
		step *= float64(usual) / float64(b.Samples) // larger steps than submitted count as several
	}
	if met, measured := l.stays.epochEnded(j.id, m.Time, b.BatchesSince, last.Seconds, step); measured {
		if r := l.meetings.record(met.places, m.Sequence); r != nil {
			r.MeasuredOn(met.self, met.companies, met.stepSeconds)
		}
	}
}

// newMeetings empties the set of records that were not written yet.
func (l *learner) newMeetings() map[string]curve.Meetings {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := map[string]curve.Meetings{}
	for key := range l.meetings.fresh {
		due[key] = l.meetings.records[key].Clone()
	}
	clear(l.meetings.fresh)
	return due
}

// keepMeetings notes a record that could not be written.
func (l *learner) keepMeetings(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meetings.fresh[key] = struct{}{}
}

// seeNode takes note of a node; one that is gone stays known, for the last facts of its jobs.
func (l *learner) seeNode(e bus.Entry[train.Node], deleted bool) {
	if deleted {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meetings.see(e.Value)
}
