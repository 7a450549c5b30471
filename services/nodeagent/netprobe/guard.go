package netprobe

import "time"

// staleAfter is how far the clocks of two nodes may differ, and how long a probe may travel.
const staleAfter = time.Minute

// maxFlows bounds the remembered flows, because a sender that knows the key could fill the memory.
const maxFlows = 1 << 14

// guard admits each probe once. Per flow it remembers the newest sequence of the newest session and which of the 64
// before it have arrived.
type guard map[uint32]*seen

type seen struct {
	session uint64
	newest  uint64
	before  uint64 // bit i: newest-1-i has arrived
	sent    time.Time
}

// admit reports whether a probe arrives for the first time and is not stale.
func (g guard) admit(p packet, now time.Time) bool {
	s, known := g[p.flow]
	switch {
	case !known:
		if len(g) >= maxFlows {
			g.forget(now)
		}
		if len(g) >= maxFlows {
			return false
		}
		g[p.flow] = &seen{session: p.session, newest: p.sequence, sent: p.sent}
		return true
	case s.session != p.session:
		// A new session begins later than everything that arrived of the old one; an older probe is a replay.
		if !p.sent.After(s.sent) {
			return false
		}
		*s = seen{session: p.session, newest: p.sequence, sent: p.sent}
		return true
	}
	return s.admit(p)
}

// admit moves the window of a session.
func (s *seen) admit(p packet) bool {
	if p.sequence > s.newest {
		shift := p.sequence - s.newest
		s.before = s.before<<shift | 1<<(shift-1)
		s.newest, s.sent = p.sequence, later(s.sent, p.sent)
		return true
	}
	back := s.newest - p.sequence
	if back == 0 || back > 64 || s.before&(1<<(back-1)) != 0 {
		return false
	}
	s.before |= 1 << (back - 1)
	s.sent = later(s.sent, p.sent)
	return true
}

// forget drops the flows whose probes would be stale by now.
func (g guard) forget(now time.Time) {
	for flow, s := range g {
		if now.Sub(s.sent) > 2*staleAfter {
			delete(g, flow)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
