package netprobe

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// suspectFor is how long an agent sends more probes after it lost one: as long as the profiler looks back.
	suspectFor = time.Minute
	// restFor is how long a flow is not suspected afterwards. A flow that always loses answers, because its other end has
	// no budget for them, would keep its agent at the higher rate.
	restFor = 3 * time.Minute
	// toldFor is how long an agent sends more probes after another one told it to.
	toldFor = 5 * time.Second
	// extraProbes are sent with each probe while a flow is suspected.
	extraProbes = 4
)

// Schedule decides which flows are probed next. A flow has a turn for each of its links, so that links which few flows
// cross are probed about as often as those at the ends. When a flow loses a probe, the agent sends more for a while,
// over all of its flows: those without losses tell which link of the lossy one is to blame.
type Schedule struct {
	// turns are positions of flows.
	turns    []int
	next     int
	extra    int
	flows    []uint32
	suspects map[uint32]time.Time // when each was last suspected
	told     time.Time
}

// NewSchedule returns the schedule of a list of flows.
func NewSchedule(flows []train.Flow) *Schedule {
	s := &Schedule{suspects: map[uint32]time.Time{}}
	for _, f := range flows {
		s.flows = append(s.flows, f.ID())
	}
	for round, more := 0, true; more; round++ {
		more = false
		for i, f := range flows {
			if round < max(len(f.Links), 1) {
				s.turns, more = append(s.turns, i), true
			}
		}
	}
	return s
}

// Lost records that a flow lost a probe other than an extra one. It returns false if the flow was suspected lately.
func (s *Schedule) Lost(flow uint32, now time.Time) bool {
	if since, known := s.suspects[flow]; known && now.Sub(since) < suspectFor+restFor {
		return false
	}
	s.suspects[flow] = now
	return true
}

// Told records that another agent, which suspects a flow to this one, has sent an extra probe. Its flows and those of
// this agent share links, so both send more.
func (s *Schedule) Told(now time.Time) { s.told = now }

// Next returns the position of the flow whose turn it is, and of those that get an extra probe. There has to be a flow.
func (s *Schedule) Next(now time.Time) (turn int, extra []int) {
	s.next = (s.next + 1) % len(s.turns)
	if s.Suspects(now) || now.Sub(s.told) < toldFor {
		for range extraProbes {
			s.extra = (s.extra + 1) % len(s.turns)
			extra = append(extra, s.turns[s.extra])
		}
	}
	return s.turns[s.next], extra
}

// Suspects reports whether a flow lost a probe lately.
func (s *Schedule) Suspects(now time.Time) bool {
	for _, since := range s.suspects {
		if now.Sub(since) < suspectFor {
			return true
		}
	}
	return false
}
