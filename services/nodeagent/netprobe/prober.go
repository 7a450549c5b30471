package netprobe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Config is what a prober needs.
type Config struct {
	Node train.NodeID
	// Listen are the addresses where probes are answered, one for each network interface that jobs use; port 0 takes
	// a free one.
	Listen []netip.AddrPort
	// ProbesPerSecond is how many probes are sent, ProbeBytes their size (at least HeaderBytes).
	ProbesPerSecond float64
	ProbeBytes      int
	// PacketsPerSecond and BytesPerSecond limit all that is sent: probes, their repetitions, answers and traces.
	PacketsPerSecond int
	BytesPerSecond   int
}

const (
	replyWithin = train.ProbeTimeout
	// confirmations is how many more probes are sent at once after one was lost.
	confirmations = 2
	// maxSockets bounds the source ports that a list can open.
	maxSockets = 64
)

// Prober is pinger and responder of one node.
type Prober struct {
	config    Config
	session   uint64
	listeners []*socket
	changed   tick.Signal

	mu         sync.Mutex
	list       train.Pinglist
	probes     []outgoing
	schedule   *Schedule
	sockets    map[netip.AddrPort]*socket
	registered map[netip.AddrPort]bool
	hosts      map[netip.Addr]bool
	budget     *budget
	guard      guard
	slotCounter
	sequence uint64
	waiting  map[uint64]waiting
	inOrder  []uint64
	trace    *probeTrace
}

// outgoing is a flow with its addresses parsed.
type outgoing struct {
	train.Flow
	id             uint32
	source, target netip.AddrPort
}

// waiting is an unanswered probe.
type waiting struct {
	flow outgoing
	sent time.Time
	// purpose is why it was sent.
	purpose purpose
}

// purpose is why a probe is sent.
type purpose int

const (
	itsTurn purpose = iota
	// confirms: another one was lost. It is as large as that one.
	confirms
	// extra: a flow is suspected. It is as small as it can be, and gives way to other packets.
	extra
)

// Open opens the addresses at which probes are answered.
func Open(ctx context.Context, c Config) (*Prober, error) {
	var session [8]byte
	if _, err := rand.Read(session[:]); err != nil {
		return nil, fmt.Errorf("draw the session of probes: %w", err)
	}
	p := &Prober{
		config: c, session: binary.BigEndian.Uint64(session[:]), changed: tick.NewSignal(),
		sockets: map[netip.AddrPort]*socket{}, budget: newBudget(c.PacketsPerSecond, c.BytesPerSecond), guard: guard{}, slotCounter: newSlotCounter(),
		waiting: map[uint64]waiting{}, schedule: NewSchedule(nil),
	}
	for _, at := range c.Listen {
		s, err := openSocket(ctx, at)
		if err != nil {
			p.close()
			return nil, err
		}
		p.listeners = append(p.listeners, s)
	}
	return p, nil
}

// Addresses are where probes are answered, as host:port.
func (p *Prober) Addresses() []string {
	var all []string
	for _, s := range p.listeners {
		all = append(all, s.local.String())
	}
	return all
}

func (p *Prober) close() {
	for _, s := range p.listeners {
		_ = s.conn.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sockets {
		_ = s.conn.Close()
	}
}

// Register sets where all registered nodes answer probes; nothing is sent anywhere else.
func (p *Prober) Register(addresses []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered, p.hosts = map[netip.AddrPort]bool{}, map[netip.Addr]bool{}
	for _, a := range addresses {
		p.registered[a], p.hosts[a.Addr()] = true, true
	}
}

// Use replaces what is probed. Flows that are invalid, or whose source cannot be opened, are left out, and the error
// names them.
func (p *Prober) Use(ctx context.Context, list train.Pinglist, now time.Time) error {
	probes, err := parseFlows(list.Probes)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list.Key) == 0 {
		// Only a part of the current slot will have been counted.
		p.reported = SlotOf(now)
	}
	p.list, p.probes = list, probes
	p.schedule = scheduleOf(probes)
	return errors.Join(err, p.reopen(ctx))
}

func scheduleOf(probes []outgoing) *Schedule {
	flows := make([]train.Flow, len(probes))
	for i, f := range probes {
		flows[i] = f.Flow
	}
	return NewSchedule(flows)
}

func parseFlows(flows []train.Flow) ([]outgoing, error) {
	var all []outgoing
	var errs []error
	for _, f := range flows {
		source, err := netip.ParseAddrPort(f.Source)
		target, bad := netip.ParseAddrPort(f.Target)
		if err := errors.Join(err, bad); err != nil || f.DSCP < 0 || f.DSCP > 63 {
			errs = append(errs, fmt.Errorf("flow %s > %s, class %d: %w", f.Source, f.Target, f.DSCP, err))
			continue
		}
		all = append(all, outgoing{f, f.ID(), source, target})
	}
	return all, errors.Join(errs...)
}

// Run probes and answers until ctx ends, and closes the sockets.
func (p *Prober) Run(ctx context.Context) error {
	var readers conc.WaitGroup
	defer readers.Wait()
	defer p.close()
	for _, s := range p.listeners {
		readers.Go(func() { p.read(s) })
	}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / p.config.ProbesPerSecond))
	defer ticker.Stop()
	beats, reopens := time.NewTicker(beatInterval), time.NewTicker(reopenInterval)
	defer beats.Stop()
	defer reopens.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-beats.C:
			p.mu.Lock()
			p.beat(now)
			p.mu.Unlock()
		case <-reopens.C:
			p.mu.Lock()
			_ = p.reopen(ctx) // reported when the list arrived
			p.mu.Unlock()
		case <-p.changed:
			for _, s := range p.unread() {
				readers.Go(func() { p.read(s) })
			}
		case <-ticker.C:
			p.tick(time.Now())
		}
	}
}

// reopenInterval is how often a busy source port is retried.
const reopenInterval = 10 * time.Second

// reopen opens the sockets that the lists need, and closes the others.
func (p *Prober) reopen(ctx context.Context) error {
	needed := map[netip.AddrPort]bool{}
	traced, _ := parseFlows(p.list.Trace)
	var errs []error
	for _, f := range slices.Concat(p.probes, traced) {
		if len(needed) == maxSockets && !needed[f.source] {
			errs = append(errs, fmt.Errorf("flow from %s: more than %d source ports", f.source, maxSockets))
			continue
		}
		needed[f.source] = true
	}
	for at, s := range p.sockets {
		if !needed[at] {
			_ = s.conn.Close()
			delete(p.sockets, at)
		}
	}
	for at := range needed {
		if _, open := p.sockets[at]; open {
			continue
		}
		s, err := openSocket(ctx, at)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.sockets[at] = s
		p.changed.Send()
	}
	return errors.Join(errs...)
}

// unread returns the sockets without a reader.
func (p *Prober) unread() []*socket {
	p.mu.Lock()
	defer p.mu.Unlock()
	var fresh []*socket
	for _, s := range p.sockets {
		if !s.read {
			s.read = true
			fresh = append(fresh, s)
		}
	}
	return fresh
}

// tick sends the next probes, and repeats lost ones.
func (p *Prober) tick(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.expired(now) {
		if w.purpose == itsTurn && p.schedule.Lost(w.flow.id, now) {
			for range confirmations {
				p.probe(w.flow, now, confirms)
			}
		}
	}
	if len(p.probes) == 0 {
		return
	}
	turn, more := p.schedule.Next(now)
	p.probe(p.probes[turn], now, itsTurn)
	for _, i := range more {
		p.probe(p.probes[i], now, extra)
	}
}

// expired takes the probes whose answer is overdue.
func (p *Prober) expired(now time.Time) []waiting {
	var late []waiting
	for len(p.inOrder) > 0 {
		w, unanswered := p.waiting[p.inOrder[0]]
		if unanswered && now.Sub(w.sent) < replyWithin {
			break
		}
		if unanswered {
			late = append(late, w)
			delete(p.waiting, p.inOrder[0])
		}
		p.inOrder = p.inOrder[1:]
	}
	return late
}

// probe sends one probe if that is allowed.
func (p *Prober) probe(f outgoing, now time.Time, why purpose) {
	s, open := p.sockets[f.source]
	if !open || !p.registered[f.target] || len(p.list.Key) == 0 {
		return
	}
	size, allow, marks := p.config.ProbeBytes, p.budget.allow, flags(0)
	if why == extra {
		size, allow, marks = HeaderBytes, p.budget.spare, isExtra
		if p.schedule.Suspects(now) {
			marks |= isSuspected
		}
	}
	if !allow(now, s.wire(size)) {
		return
	}
	p.sequence++
	data := packet{kind: kindProbe, dscp: byte(f.DSCP), flags: marks, flow: f.id, session: p.session, sequence: p.sequence, sent: now}.append(nil, p.list.Key)
	data = append(data, make([]byte, max(size-len(data), 0))...)
	if err := s.send(data, f.target, f.DSCP, 0); err != nil {
		return // it has not left this machine, so it says nothing about the network
	}
	p.counts.at(now).left(f.id)
	if why != extra {
		p.waiting[p.sequence] = waiting{f, now, why}
		p.inOrder = append(p.inOrder, p.sequence)
	}
}

// read handles what arrives at a socket until it is closed.
func (p *Prober) read(s *socket) {
	data := make([]byte, 2048)
	for {
		n, from, waited, err := s.receive(data)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // a router has rejected something
			p.refused(s)
		default:
			p.handle(s, data[:n], from, time.Now(), waited)
		}
	}
}

// handle counts and answers a probe, or records an answer. Before, the packet waited on this node for a while.
func (p *Prober) handle(s *socket, data []byte, from netip.AddrPort, now time.Time, waited time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, err := parse(data, p.list.Key)
	if err != nil {
		return
	}
	switch in.kind {
	case kindProbe, kindTrace:
		p.answer(s, in, from, now, waited)
	case kindReply:
		w, open := p.waiting[in.sequence]
		if open && in.session == p.session && in.flow == w.flow.id {
			delete(p.waiting, in.sequence)
			p.counts.at(w.sent).acked(w.flow.id, max(now.Sub(w.sent)-waited-in.held, 0))
		}
	case kindTraceReply:
		if in.session == p.session {
			p.trace.arrived(in.sequence)
		}
	}
}

// answer counts a received probe and, if it asks for that and the budget allows, answers it. The count does not depend
// on the answer.
func (p *Prober) answer(s *socket, in packet, from netip.AddrPort, now time.Time, waited time.Duration) {
	if age := now.Sub(in.sent); age.Abs() > staleAfter {
		p.tooLate(in, age) // a replay, or from a wrong clock: it is no loss
		return
	}
	if !p.guard.admit(in, now) {
		return
	}
	if in.kind == kindProbe {
		p.count(in, now, waited)
	}
	if in.flags&isSuspected != 0 {
		p.schedule.Told(now)
	}
	if in.flags&isExtra != 0 || !p.hosts[from.Addr().Unmap()] || !p.budget.spare(now, s.wire(HeaderBytes)) {
		return
	}
	out := in
	out.kind, out.held = in.kind.answer(), waited
	_ = s.send(out.append(nil, p.list.Key), from, int(in.dscp), 0)
}
