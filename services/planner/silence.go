package planner

import (
	"time"

	"github.com/switchyard-dl/switchyard/services/planner/records"
)

const (
	// listenEvery is the interval at which the time is noted. In a step longer than deafAfter the planner heard nothing.
	listenEvery = time.Second
	deafAfter   = 5 * listenEvery
)

// silence measures for how long each node has reported nothing new, in time during which this planner would have
// heard it. Clocks of other machines do not count, nor does time in which this process, the machine or the bus
// stood still: after a pause every node is as alive as before.
type silence struct {
	// listened is the time spent listening, until is when it was noted last.
	listened time.Duration
	until    time.Time
	// since is the value of listened at the last sign of life of a node.
	since map[string]time.Duration
}

func newSilence() silence { return silence{since: map[string]time.Duration{}} }

// listen adds the time since the last call, if the bus could be heard and the process was awake.
func (s *silence) listen(now time.Time, connected bool) {
	step := now.Sub(s.until)
	if connected && !s.until.IsZero() && step > 0 && step < deafAfter {
		s.listened += step
	}
	s.until = now
}

// meet begins with a node whose record has some age by this machine's clock. If it is too old or lies in the
// future, only the next sign of life counts. Until then what runs there goes on and nothing new is placed there.
func (s *silence) meet(node string, age time.Duration) {
	s.since[node] = s.listened
	if age.Abs() >= records.NodeTimeout {
		s.since[node] -= records.NodeTimeout
	}
}

func (s *silence) broken(node string) { s.since[node] = s.listened }

func (s *silence) forget(node string) { delete(s.since, node) }

// of returns how long a node has been silent.
func (s *silence) of(node string) time.Duration { return s.listened - s.since[node] }
