package netprobe

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	mostHops  = 16
	hopTries  = 2
	hopWithin = 200 * time.Millisecond
	hopPoll   = 5 * time.Millisecond
	// mostSilent is how many hops in a row may be silent: more than the routers between two nodes of a network of four tiers.
	mostSilent = 8
	// tracePart is the part of the packet budget that traces may use.
	tracePart = 4
)

// probeTrace is the packet of a trace that is under way: one at a time.
type probeTrace struct {
	sequence uint64
	from     *socket
	target   netip.AddrPort
	sent     []byte
	hop      netip.Addr
	reached  bool
}

// arrived notes that the target has answered.
func (t *probeTrace) arrived(sequence uint64) {
	if t != nil && t.sequence == sequence {
		t.reached = true
	}
}

// Trace finds the paths of the flows of the list, as far as routers answer; false where ctx ends before that. It takes its time: what it sends is a part of
// the budget. A flow whose source port is busy has no hops at all, not even silent ones.
func (p *Prober) Trace(ctx context.Context) (train.Paths, bool) {
	p.mu.Lock()
	flows, _ := parseFlows(p.list.Trace)
	p.mu.Unlock()
	found := train.Paths{Node: p.config.Node, Paths: []train.Path{}}
	pace := time.NewTicker(time.Second * tracePart / time.Duration(max(p.config.PacketsPerSecond, 1)))
	defer pace.Stop()
	for _, f := range flows {
		path, err := p.traceFlow(ctx, f, pace)
		if err != nil {
			return found, false
		}
		found.Paths = append(found.Paths, path)
	}
	return found, true
}

// traceFlow asks hop by hop until the target answers.
func (p *Prober) traceFlow(ctx context.Context, f outgoing, pace *time.Ticker) (train.Path, error) {
	path := train.Path{Flow: f.Flow, Hops: []string{}}
	p.mu.Lock()
	_, open := p.sockets[f.source]
	p.mu.Unlock()
	if !open {
		return path, nil
	}
	for hops, silent := 1, 0; hops <= mostHops && silent < mostSilent; hops++ {
		var got probeTrace
		for try := 0; try < hopTries && !got.reached && !got.hop.IsValid(); {
			select {
			case <-ctx.Done():
				return path, ctx.Err()
			case <-pace.C:
			}
			var tried bool
			if got, tried = p.traceHop(ctx, f, hops); tried {
				try++
			}
		}
		switch {
		case got.reached:
			path.Complete = true
			return path, nil
		case got.hop.IsValid():
			path.Hops, silent = append(path.Hops, got.hop.Unmap().String()), 0
		default:
			path.Hops, silent = append(path.Hops, ""), silent+1
		}
	}
	return path, nil
}

// traceHop sends one packet that lives for so many hops, and waits for what is said of it; false where the budget has no room for it now, which says nothing of routers.
func (p *Prober) traceHop(ctx context.Context, f outgoing, hops int) (probeTrace, bool) {
	s, tried := p.sendTrace(f, hops, time.Now())
	if s == nil {
		return probeTrace{}, tried
	}
	poll := time.NewTicker(hopPoll)
	defer poll.Stop()
	within, cancel := context.WithTimeout(ctx, hopWithin)
	defer cancel()
	for {
		p.refused(s)
		p.mu.Lock()
		got := *p.trace
		p.mu.Unlock()
		if got.reached || got.hop.IsValid() {
			return got, true
		}
		select {
		case <-within.Done():
			return got, true
		case <-poll.C:
		}
	}
}

// sendTrace gives the socket that it has sent from; nil where it could not, and false where that may be otherwise soon.
func (p *Prober) sendTrace(f outgoing, hops int, now time.Time) (*socket, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, open := p.sockets[f.source]
	if !open || !p.registered[f.target] || len(p.list.Key) == 0 {
		return nil, true
	}
	if !p.budget.allow(now, s.wire(HeaderBytes)) {
		return nil, false
	}
	p.sequence++
	out := packet{kind: kindTrace, dscp: byte(f.DSCP), hops: byte(hops), flow: f.id, session: p.session, sequence: p.sequence, sent: now}
	p.trace = &probeTrace{sequence: p.sequence, from: s, target: f.target, sent: out.append(nil, p.list.Key)}
	if err := s.send(p.trace.sent, f.target, f.DSCP, hops); err != nil {
		return nil, true
	}
	return s, true
}

// refused notes what routers said of the trace that is under way; of other packets it says nothing that counts would not.
func (p *Prober) refused(s *socket) {
	for _, r := range s.refusals() {
		p.mu.Lock()
		p.trace.refused(s, r)
		p.mu.Unlock()
	}
}

// leastQuoted is how much of a packet has to be given back to be believed: up to its session and sequence, which nobody off the path can guess. A router that gives
// back less counts as silent.
const leastQuoted = 32

// refused notes an answer to this packet and to no other: to anybody else's it may be forged, or of a path that is no more.
func (t *probeTrace) refused(s *socket, r refusal) {
	if t == nil || s != t.from || r.target != t.target || len(r.original) < leastQuoted {
		return
	}
	if n := min(len(r.original), len(t.sent)); !bytes.Equal(r.original[:n], t.sent[:n]) {
		return
	}
	switch {
	case r.from.Unmap() == t.target.Addr():
		t.reached = true
	case r.expired:
		t.hop = r.from
	}
}
