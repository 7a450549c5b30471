package netprobe

import "time"

// staleAfter is how far the clocks of two nodes may be apart, and how long a probe may travel.
const staleAfter = time.Minute

// mostFlows bounds what is remembered of flows: those who know the key could else fill the memory.
const mostFlows = 1 << 14

// guard lets each probe through once. Per flow it remembers the newest sequence of the newest session and which of the 64 before it have come.
type guard map[uint32]*seen

type seen struct {
	session uint64
	newest  uint64
	before  uint64 // bit i: newest-1-i has come
	sent    time.Time
}

// admit says whether a probe has not come before, if it is not stale.
func (g guard) admit(p packet, now time.Time) bool {
	s, known := g[p.flow]
	switch {
	case !known:
		if len(g) >= mostFlows {
			g.forget(now)
		}
		if len(g) >= mostFlows {
			return false
		}
		g[p.flow] = &seen{session: p.session, newest: p.sequence, sent: p.sent}
		return true
	case s.session != p.session:
		// A new session begins later than all that came of the old one; what is older was kept by somebody to be sent again.
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

// forget drops the flows whose probes would be too old by now.
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
