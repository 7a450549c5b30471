package history

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// residency is the time of one attempt on a device. until is zero while it goes on.
type residency struct {
	life        *life
	kind        curve.Kind
	from, until time.Time
}

// sharing knows who was on which device at what time, and so how long work would have taken alone: a simulation
// slows jobs that share a device by itself, and must not start from times that are slow already.
type sharing struct {
	residencies  map[deviceOf][]residency
	devices      map[deviceOf]train.Device
	interference map[string]*curve.Interference
}

func newSharing(h History, all []*life, known map[string]*curve.Interference) *sharing {
	s := &sharing{residencies: map[deviceOf][]residency{}, devices: map[deviceOf]train.Device{}, interference: map[string]*curve.Interference{}}
	for key, one := range known {
		s.interference[key] = one.Clone()
	}
	for _, sighting := range h.Sightings {
		for _, n := range sighting.Nodes {
			for _, d := range n.Devices {
				s.devices[deviceOf{n.ID, d.ID}] = d
			}
		}
	}
	for _, l := range all {
		if l.spec.SharedMemory() == 0 {
			continue
		}
		kind := curve.KindOf(l.spec)
		for _, a := range l.attempts {
			for _, d := range a.on {
				s.residencies[d] = append(s.residencies[d], residency{l, kind.On(len(a.on), a.nodes()), a.started, a.ended})
			}
		}
	}
	return s
}

// on lists the devices of an attempt.
func on(b *event.Started) []deviceOf {
	var all []deviceOf
	for _, p := range b.Places() {
		for _, d := range p.Devices {
			all = append(all, deviceOf{p.Node, d})
		}
	}
	return all
}

// others lists the times of other jobs on a device that overlap with a time.
func (s *sharing) others(l *life, at deviceOf, from, to time.Time) []residency {
	var all []residency
	for _, r := range s.residencies[at] {
		if r.life != l && r.from.Before(to) && (r.until.IsZero() || r.until.After(from)) {
			all = append(all, r)
		}
	}
	return all
}

// alone returns the part of a time that the work of an attempt in it takes alone.
func (s *sharing) alone(l *life, a attempt, from, to time.Time) float64 {
	var cuts []time.Time
	for _, d := range a.on {
		for _, r := range s.others(l, d, from, to) {
			cuts = append(cuts, r.from, r.until)
		}
	}
	total := to.Sub(from).Seconds()
	if len(cuts) == 0 || total <= 0 {
		return 1
	}
	cuts = append(slices.DeleteFunc(cuts, func(t time.Time) bool { return !t.After(from) || !t.Before(to) }), from, to)
	slices.SortFunc(cuts, time.Time.Compare)
	sum := 0.0
	for i := 1; i < len(cuts); i++ {
		sum += cuts[i].Sub(cuts[i-1]).Seconds() * s.rate(l, a, cuts[i-1], cuts[i])
	}
	return sum / total
}

// rate predicts the speed of an attempt in a time in which the jobs beside it did not change, as a part of its
// speed alone.
func (s *sharing) rate(l *life, a attempt, from, to time.Time) float64 {
	const slowest = 0.01
	rate, self := math.Inf(1), curve.KindOf(l.spec).On(len(a.on), a.nodes())
	for _, d := range a.on {
		var others []curve.Kind
		for _, r := range s.others(l, d, from, to) {
			others = append(others, r.kind)
		}
		one, _ := s.known(d).RateAmong(self, others)
		rate = min(rate, max(one, slowest))
	}
	return rate
}

// known is the interference on a device.
func (s *sharing) known(at deviceOf) *curve.Interference {
	d := s.devices[at]
	key := curve.InterferenceKey(&d)
	if s.interference[key] == nil {
		s.interference[key] = curve.NewInterference(d.Driver, nil)
	}
	return s.interference[key]
}

// separate turns the recorded times of a job that shared devices into those that it takes alone.
func (s *sharing) separate(l *life) {
	if l.spec.SharedMemory() == 0 {
		return
	}
	for i := range l.epochs {
		span := l.spans[i]
		l.epochs[i].Seconds *= s.alone(l, l.attempts[span.attempt], span.from, span.to)
	}
}

// aloneAtLast is alone for the last attempt of a job that says nothing of itself.
func (s *sharing) aloneAtLast(l *life, until time.Time) float64 {
	a := l.attempts[len(l.attempts)-1]
	if a.ended.IsZero() {
		a.ended = until
	}
	return s.alone(l, a, a.started, a.ended)
}

// knownState is what the planner knew beside the jobs: what it knows now, or what it knew at the recorded decision.
func (h History) knownState() plan.State {
	switch {
	case h.State != nil:
		return *h.State
	case h.Input != nil:
		return h.Input.State
	}
	return plan.State{}
}
