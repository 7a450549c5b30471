package netprobe

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	mostHops  = 16
	hopTries  = 2
	hopWithin = 200 * time.Millisecond
	hopPoll   = 5 * time.Millisecond
	// maxSilent is how many hops in a row may be silent: more than the routers between two nodes of a network of four
	// tiers.
	maxSilent = 8
	// tracePart is the part of the packet budget that traces may use.
	tracePart = 4
)

// probeTrace is the packet of the current trace; there is one at a time.
type probeTrace struct {
	sequence uint64
	from     *socket
	target   netip.AddrPort
	sent     []byte
	hop      netip.Addr
	reached  bool
}

// arrived records that the target has answered.
func (t *probeTrace) arrived(sequence uint64) {
	if t != nil && t.sequence == sequence {
		t.reached = true
	}
}

// Trace finds the paths of the flows of the list, as far as routers answer; it returns false if ctx ends before that.
// It takes its time, because what it sends is part of the budget. A flow whose source port is busy has no hops at
// all, not even silent ones.
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
	for hops, silent := 1, 0; hops <= mostHops && silent < maxSilent; hops++ {
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

// traceHop sends one packet with a hop limit, and waits for the answer. It returns false if the budget has no room
// now, which says nothing about routers.
func (p *Prober) traceHop(ctx context.Context, f outgoing, hops int) (probeTrace, bool) {
	s, tried := p.sendTrace(f, hops, time.Now())
	if s == nil {
		return probeTrace{}, tried
	}
	within, cancel := context.WithTimeout(ctx, hopWithin)
	defer cancel()
	var got probeTrace
	for range tick.Every(within, hopPoll) {
		p.refused(s)
		p.mu.Lock()
		got = *p.trace
		p.mu.Unlock()
		if got.reached || got.hop.IsValid() {
			break
		}
	}
	return got, true
}

// sendTrace returns the socket that it has sent from; nil if it could not send, and false if a retry may succeed
// soon.
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

// refused records what routers answered to the current trace; about other packets they say nothing that matters.
func (p *Prober) refused(s *socket) {
	for _, r := range s.refusals() {
		p.mu.Lock()
		p.trace.refused(s, r)
		p.mu.Unlock()
	}
}

// leastQuoted is how much of a packet has to be returned to be believed: up to its session and sequence, which a host
// off the path cannot guess. A router that returns less counts as silent.
const leastQuoted = 32

// refused records an answer to this packet only: an answer to another packet may be forged, or from an old path.
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
