package planner

import "time"

const (
	// nodeTimeout is the silence of a node after which nothing new is placed there: agents refresh its record every
	// 5 s.
	nodeTimeout = 20 * time.Second
	// nodeLost is the silence after which what runs there is assumed to be gone, too. Until then it keeps its
	// devices: an agent that restarts must not have its jobs stopped.
	nodeLost = 2 * time.Minute
	// listenEvery is how often the time is noted; a step longer than deafAfter was no listening.
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
	if age.Abs() >= nodeTimeout {
		s.since[node] -= nodeTimeout
	}
}

func (s *silence) broken(node string) { s.since[node] = s.listened }

func (s *silence) forget(node string) { delete(s.since, node) }

// of returns how long a node has been silent.
func (s *silence) of(node string) time.Duration { return s.listened - s.since[node] }
