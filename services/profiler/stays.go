package profiler

import (
	"cmp"
	"fmt"
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

// stay is one attempt on its devices.
type stay struct {
	job    train.JobID
	kind   curve.Kind
	places []place
	// held says that it gets no more memory than its part, whatever the others use.
	held bool
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

// measurement is the step time of a job alone on some devices, or beside others that were there all the time. On several it is that of the slowest one.
type measurement struct {
	places []place
	self   curve.Kind
	// companies are those that differ by kind, of all devices; none where it was alone.
	companies   [][]curve.Kind
	stepSeconds float64
}

// measureSeconds is how much training makes a measurement: short epochs vary, and the first of an attempt are slow.
const measureSeconds = 60

func newStays() *stays {
	return &stays{at: map[place][]*stay{}, live: map[train.JobID]*stay{}}
}

// arrive notes the start of an attempt on devices of one node. Jobs on several nodes are alone on all of them.
func (s *stays) arrive(job train.JobID, kind curve.Kind, at []place, since time.Time) *stay {
	s.leave(job, since)
	one := &stay{job: job, kind: kind.On(len(at)), places: at, since: since, epochAt: since}
	s.live[job] = one
	for _, p := range at {
		s.at[p] = append(s.at[p], one)
	}
	return one
}

// leave notes the end of what a job has running.
func (s *stays) leave(job train.JobID, until time.Time) {
	one := s.live[job]
	if one == nil {
		return
	}
	one.until = until
	delete(s.live, job)
	s.forget(one)
}

// forget drops stays on the devices of one that no epoch can reach back to any more.
func (s *stays) forget(one *stay) {
	for _, at := range one.places {
		oldest := s.oldest(at)
		s.at[at] = slices.DeleteFunc(s.at[at], func(o *stay) bool {
			return !o.until.IsZero() && (oldest.IsZero() || !o.until.After(oldest))
		})
		if len(s.at[at]) == 0 {
			delete(s.at, at)
		}
	}
}

// oldest is since when the next epochs may have begun of those that are on a device, or beside one of these elsewhere; zero where nobody is.
func (s *stays) oldest(at place) time.Time {
	var oldest time.Time
	for _, here := range s.at[at] {
		if !here.until.IsZero() {
			continue
		}
		for _, p := range here.places {
			for _, o := range s.at[p] {
				if o.until.IsZero() && (oldest.IsZero() || o.epochAt.Before(oldest)) {
					oldest = o.epochAt
				}
			}
		}
	}
	return oldest
}

// epochEnded notes an epoch of so many seconds, on devices where the micro-batches have stood since a moment. It is false as long as there is nothing to measure:
// somebody came or went meanwhile, a micro-batch was tried, or the epochs in this company are too few.
func (s *stays) epochEnded(job train.JobID, at, batchesSince time.Time, seconds, stepSeconds float64) (measurement, bool) {
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
	companies, known := s.companies(one, begun, at)
	for _, o := range slices.Concat(companies...) { // who is held up elsewhere disturbs less here
		its, all := s.companies(o, begun, at)
		known = known && all && len(its) == 1
	}
	s.forget(one)
	if !known || batchesSince.After(begun) || first && seconds < measureSeconds {
		one.gathered = gathered{}
		return measurement{}, false
	}
	var names strings.Builder
	kinds := make([][]curve.Kind, len(companies))
	for i, others := range companies {
		for _, o := range others {
			fmt.Fprintf(&names, "%d %s ", i, o.job)
			kinds[i] = append(kinds[i], o.kind)
		}
	}
	if names.String() != one.company {
		one.gathered = gathered{company: names.String()}
	}
	one.seconds, one.steps = one.seconds+seconds, one.steps+seconds/stepSeconds
	if one.seconds < measureSeconds {
		return measurement{}, false
	}
	m := measurement{places: one.places, self: one.kind, companies: kinds, stepSeconds: one.seconds / one.steps}
	one.gathered = gathered{company: one.company}
	return m, true
}

// companies are those that trained beside a job all the time from a moment to another, on one of its devices each, those that are alike by kind once. It is
// false where anybody was there for a part of it. Alone on a device it was held up by nobody.
func (s *stays) companies(one *stay, from, to time.Time) (companies [][]*stay, known bool) {
	for _, p := range one.places {
		here, all := s.beside(one, p, from, to)
		if !all {
			return nil, false
		}
		alike := func(others []*stay) bool {
			return slices.EqualFunc(here, others, func(x, y *stay) bool { return x.kind == y.kind })
		}
		if len(here) > 0 && !slices.ContainsFunc(companies, alike) {
			companies = append(companies, here)
		}
	}
	return companies, true
}

// beside are those that trained on a device of a stay all the time from a moment to another, by kind. It is false where anybody was there for a part of it.
func (s *stays) beside(one *stay, at place, from, to time.Time) (others []*stay, all bool) {
	for _, o := range s.at[at] {
		switch {
		case o == one, !o.since.Before(to), !o.until.IsZero() && !o.until.After(from):
		case o.trains.IsZero() || o.trains.After(from) || !o.until.IsZero() && o.until.Before(to):
			return nil, false
		default:
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(x, y *stay) int {
		return cmp.Or(cmp.Compare(x.kind.Family, y.kind.Family), cmp.Compare(x.kind.LocalBatch, y.kind.LocalBatch),
			cmp.Compare(x.kind.Devices, y.kind.Devices), cmp.Compare(x.job, y.job))
	})
	return others, true
}

// outOfMemory gives a measurement without a step time of a job that has just run out of memory beside one other; false where it had the device for itself,
// or several were there, on any device: then nobody knows which of them is too much. Who is held to its part has run out of that alone.
func (s *stays) outOfMemory(job train.JobID) (measurement, bool) {
	one := s.live[job]
	if one == nil || one.held {
		return measurement{}, false
	}
	var others []*stay
	for _, p := range one.places {
		for _, o := range s.at[p] {
			if o != one && o.until.IsZero() && !slices.Contains(others, o) {
				others = append(others, o)
			}
		}
	}
	if len(others) != 1 {
		return measurement{}, false
	}
	return measurement{places: one.places, self: one.kind, companies: [][]curve.Kind{{others[0].kind}}}, true
}
