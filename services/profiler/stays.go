package profiler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// stays know which jobs were on which device at what time, and tell of ended epochs beside whom they were. They follow from the facts alone.
type stays struct {
	at   map[place][]*stay
	live map[train.JobID]*stay
}

// place is one device.
type place struct {
	node   train.NodeID
	device train.DeviceID
}

// stay is one attempt on its device.
type stay struct {
	job   train.JobID
	kind  curve.Kind
	place place
	// since is when it was started, until when it left; zero while it is there.
	since, until time.Time
	// trains is when the first epoch that it told began: before that it loads, and disturbs nobody as it will later. Zero while it has told none.
	trains time.Time
	// epochAt is when its last epoch ended.
	epochAt time.Time
	gathered
}

// gathered are epochs in the same company that do not make a measurement yet.
type gathered struct {
	company        string
	seconds, steps float64
}

// measurement is the step time of a job alone, or beside others that were there all the time.
type measurement struct {
	place       place
	self        curve.Kind
	others      []curve.Kind
	stepSeconds float64
}

// measureSeconds is how much training makes a measurement: short epochs vary, and the first of an attempt are slow.
const measureSeconds = 60

func newStays() *stays {
	return &stays{at: map[place][]*stay{}, live: map[train.JobID]*stay{}}
}

// arrive notes the start of an attempt on one device. Jobs on several are alone on all of them.
func (s *stays) arrive(job train.JobID, kind curve.Kind, at place, since time.Time) {
	s.leave(job, since)
	one := &stay{job: job, kind: kind, place: at, since: since, epochAt: since}
	s.live[job] = one
	s.at[at] = append(s.at[at], one)
}

// leave notes the end of what a job has running.
func (s *stays) leave(job train.JobID, until time.Time) {
	one := s.live[job]
	if one == nil {
		return
	}
	one.until = until
	delete(s.live, job)
	s.forget(one.place)
}

// forget drops stays that no epoch can reach back to any more.
func (s *stays) forget(at place) {
	var oldest time.Time
	for _, one := range s.at[at] {
		if one.until.IsZero() && (oldest.IsZero() || one.epochAt.Before(oldest)) {
			oldest = one.epochAt
		}
	}
	s.at[at] = slices.DeleteFunc(s.at[at], func(one *stay) bool {
		return !one.until.IsZero() && (oldest.IsZero() || !one.until.After(oldest))
	})
	if len(s.at[at]) == 0 {
		delete(s.at, at)
	}
}

// epochEnded notes an epoch of so many seconds. It is false as long as there is nothing to measure: somebody came or went meanwhile, or the epochs in this
// company are too few.
func (s *stays) epochEnded(job train.JobID, at time.Time, seconds, stepSeconds float64) (measurement, bool) {
	one := s.live[job]
	if one == nil || !(seconds > 0) || !(stepSeconds > 0) {
		return measurement{}, false
	}
	begun := at.Add(-time.Duration(seconds * float64(time.Second)))
	first := one.trains.IsZero()
	if first {
		one.trains = begun
	}
	one.epochAt = at
	others, known := s.beside(one, begun, at)
	s.forget(one.place)
	if !known || first && seconds < measureSeconds {
		one.gathered = gathered{}
		return measurement{}, false
	}
	names, kinds := make([]string, len(others)), make([]curve.Kind, len(others))
	for i, o := range others {
		names[i], kinds[i] = string(o.job), o.kind
	}
	if company := strings.Join(names, " "); company != one.company {
		one.gathered = gathered{company: company}
	}
	one.seconds, one.steps = one.seconds+seconds, one.steps+seconds/stepSeconds
	if one.seconds < measureSeconds {
		return measurement{}, false
	}
	m := measurement{place: one.place, self: one.kind, others: kinds, stepSeconds: one.seconds / one.steps}
	one.gathered = gathered{company: one.company}
	return m, true
}

// beside are those that trained on the device of a stay all the time from a moment to another, by kind. It is false where anybody was there for a part of it.
func (s *stays) beside(one *stay, from, to time.Time) (others []*stay, known bool) {
	for _, o := range s.at[one.place] {
		switch {
		case o == one, !o.since.Before(to), !o.until.IsZero() && !o.until.After(from):
		case o.trains.IsZero() || o.trains.After(from) || !o.until.IsZero() && o.until.Before(to):
			return nil, false
		default:
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(x, y *stay) int {
		return cmp.Or(cmp.Compare(x.kind.Family, y.kind.Family), cmp.Compare(x.kind.LocalBatch, y.kind.LocalBatch), cmp.Compare(x.job, y.job))
	})
	return others, true
}

// outOfMemory gives a measurement without a step time of a job that has just run out of memory beside one other; false where it had the device for itself,
// or several were there: then nobody knows which of them is too much.
func (s *stays) outOfMemory(job train.JobID) (measurement, bool) {
	one := s.live[job]
	if one == nil {
		return measurement{}, false
	}
	var others []curve.Kind
	for _, o := range s.at[one.place] {
		if o != one && o.until.IsZero() {
			others = append(others, o.kind)
		}
	}
	return measurement{place: one.place, self: one.kind, others: others}, len(others) == 1
}
