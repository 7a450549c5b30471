package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// life holds what the facts of a job say about it.
type life struct {
	id        train.JobID
	spec      train.Spec
	submitted time.Time
	// finished is zero while the job goes on.
	finished time.Time
	attempts []attempt
	epochs   []sim.RecordedEpoch
	// spans are when the epochs ran, in the same order.
	spans []span
	done  int
	// anyStep says that its code can leave after any step.
	anyStep bool
	// devices holds the model of the devices of each node.
	devices map[train.NodeID]string
}

// span is the time of an epoch, or of several that were reported together, and the index of its attempt.
type span struct {
	attempt  int
	from, to time.Time
}

// attempt is one run; startup is the time before its first epoch.
type attempt struct {
	number         int
	node           train.NodeID
	devices        int
	on             []deviceOf
	started, ended time.Time
	// epochAt is the end of its last epoch; zero before the first.
	epochAt time.Time
	startup float64
	// lost: the work after its last epoch was in vain.
	lost bool
}

// nodes returns the number of nodes that the attempt is on.
func (a attempt) nodes() int {
	nodes := map[train.NodeID]bool{}
	for _, d := range a.on {
		nodes[d.node] = true
	}
	return len(nodes)
}

// lives folds the facts into jobs, in the order of their first facts. An array is none: it never runs, and its jobs
// have facts of their own.
func lives(h History) []*life {
	devices := map[train.NodeID]string{}
	for _, s := range h.Sightings {
		for _, n := range s.Nodes {
			if len(n.Devices) > 0 {
				devices[n.ID] = n.Devices[0].Model
			}
		}
	}
	byID := map[train.JobID]*life{}
	var all []*life
	for _, f := range h.Facts {
		_, id, body, ok := f.parsed()
		if !ok {
			continue
		}
		l := byID[id]
		if l == nil {
			l = &life{id: id, submitted: f.Time, devices: devices}
			byID[id] = l
			all = append(all, l)
		}
		l.take(f.Time, body)
	}
	return slices.DeleteFunc(all, func(l *life) bool { return l.spec.Array != "" })
}

func (l *life) take(at time.Time, body any) {
	switch b := body.(type) {
	case *event.Admitted:
		l.spec = b.Spec
	case *event.Tuned:
		l.spec = l.spec.WithBatchSize(cmp.Or(b.BatchSize, l.spec.BatchSize))
	case *event.EditDecided:
		l.edited(b)
	case *event.Started:
		l.started(at, b)
	case *event.EpochEnded:
		l.epochEnded(at, b)
	case *event.StopRequested:
		l.anyStep = l.anyStep || b.AnyStep
	case *event.Preempted:
		l.left(at, b.Attempt)
	case *event.AttemptLost:
		l.left(at, b.Attempt)
		if a := l.current(b.Attempt); a != nil {
			a.lost = true
		}
	case *event.Succeeded:
		l.end(at, b.Attempt)
	case *event.Failed:
		l.end(at, b.Attempt)
	case *event.Cancelled:
		l.end(at, b.Attempt)
	}
}

func (l *life) edited(b *event.EditDecided) {
	if next, err := l.spec.Edited(b.Edit); err == nil && len(b.Refused) == 0 {
		l.spec = next.WithDefaults()
	}
}

func (l *life) started(at time.Time, b *event.Started) {
	if n := len(l.attempts); n == 0 || l.attempts[n-1].number < b.Attempt {
		l.finished = time.Time{} // it may have been resumed
		l.attempts = append(l.attempts, attempt{number: b.Attempt, node: b.Node, devices: len(b.Devices), on: on(b), started: at})
	}
}

// current is the newest attempt if it has this number, else nil.
func (l *life) current(number int) *attempt {
	if n := len(l.attempts); n > 0 && l.attempts[n-1].number == number {
		return &l.attempts[n-1]
	}
	return nil
}

func (l *life) left(at time.Time, number int) {
	if a := l.current(number); a != nil && a.ended.IsZero() {
		a.ended = at
	}
}

func (l *life) end(at time.Time, number int) {
	l.left(at, number)
	if l.finished.IsZero() {
		l.finished = at
	}
}

// epochEnded adds the epochs since the one before, with their time by the clock, so that all that a job does
// between its steps is included. The first epoch of an attempt counts with its reported time, and the rest of the
// time since the start is the price of the start.
func (l *life) epochEnded(at time.Time, b *event.EpochEnded) {
	a := l.current(b.Attempt)
	// A leap this wide is no report that was lost.
	const widest = 10_000
	if b.EpochsDone <= l.done || b.EpochsDone-l.done > widest || a == nil {
		return
	}
	more := b.EpochsDone - l.done
	seconds := at.Sub(a.epochAt).Seconds()
	if a.epochAt.IsZero() {
		seconds = at.Sub(a.started).Seconds()
		if reported := b.EpochSeconds * float64(more); reported > 0 && reported < seconds {
			a.startup, seconds = seconds-reported, reported
		}
	}
	devices := b.Devices
	if devices < 1 {
		devices = a.devices
	}
	steps := b.Steps
	if steps < 1 {
		steps = l.spec.StepsPerEpoch(devices)
	}
	for i := range more {
		l.epochs = append(l.epochs, sim.RecordedEpoch{Device: l.devices[a.node], EpochRecord: curve.EpochRecord{
			Epoch: l.done + i + 1, Seconds: math.Max(seconds, 0) / float64(more), Steps: steps,
			Config: l.spec.On(max(devices, 1), 1),
		}})
		l.spans = append(l.spans, span{len(l.attempts) - 1, at.Add(-time.Duration(seconds * float64(time.Second))), at})
	}
	l.done, a.epochAt = b.EpochsDone, at
}

// startSeconds is the mean time of attempts before their first and after their last epoch.
func (l *life) startSeconds() float64 {
	sum, starts := 0.0, 0
	for _, a := range l.attempts {
		if a.epochAt.IsZero() {
			continue
		}
		sum += a.startup
		if !a.ended.IsZero() && !a.lost {
			sum += math.Max(a.ended.Sub(a.epochAt).Seconds(), 0)
		}
		starts++
	}
	return sum / float64(max(starts, 1))
}

// ranSeconds returns how long the last attempt ran, until a given time if it goes on. Attempts before it were lost:
// a job that says nothing of itself is not asked to leave.
func (l *life) ranSeconds(until time.Time) float64 {
	if len(l.attempts) == 0 {
		return 0
	}
	last := l.attempts[len(l.attempts)-1]
	if last.ended.IsZero() {
		last.ended = until
	}
	return math.Max(last.ended.Sub(last.started).Seconds(), 0)
}

// recorded returns the job in the form of the simulator. why says what is missing if that is not possible.
func (l *life) recorded(until time.Time) (r *sim.Recorded, why string) {
	r = &sim.Recorded{Spec: l.spec, Priority: train.Job{Spec: l.spec}.EffectivePriority(), Seen: l.epochs, StartSeconds: l.startSeconds(), LeavesAtSteps: l.anyStep}
	over := !l.finished.IsZero()
	switch {
	case over && len(l.attempts) == 0:
		return nil, "ended before it had started"
	case over && l.done > 0:
		r.Epochs = l.done
	case over:
		r.RunSeconds = math.Max(l.ranSeconds(until), 1e-3)
	case l.done > 0:
		r.Epochs = max(int(math.Ceil(l.spec.Epochs())), l.done)
	case l.spec.EstimatedHours > 0:
		r.RunSeconds = math.Max(l.spec.EstimatedHours*3600, l.ranSeconds(until))
	default:
		r.Epochs = int(math.Ceil(l.spec.Epochs()))
		return r, "goes on, has ended no epoch and has no estimate: nothing tells how fast it is"
	}
	return r, ""
}

// like says whether two jobs run the same training, as far as the records tell.
func (l *life) like(other *life) bool {
	x, y := l.spec, other.spec
	return x.Name == y.Name && x.ScriptPath == y.ScriptPath && x.BatchSize == y.BatchSize && x.TrainingSetSize == y.TrainingSetSize
}
