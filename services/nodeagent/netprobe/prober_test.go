package netprobe

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// hour begins a slot.
func hour() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func open(t *testing.T, at string) *Prober {
	t.Helper()
	p, err := Open(t.Context(), Config{
		Node: "n", Listen: []netip.AddrPort{netip.MustParseAddrPort(at)}, ProbesPerSecond: 200, ProbeBytes: 200,
		PacketsPerSecond: 5000, BytesPerSecond: 5_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs probers until the test ends.
func start(t *testing.T, probers ...*Prober) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running conc.WaitGroup
	for _, p := range probers {
		running.Go(func() { _ = p.Run(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
}

// until waits for a condition that packets bring about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.After(2 * time.Minute); !holds(); {
		select {
		case <-deadline:
			t.Fatalf("still not: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// totals adds up what a prober holds, without taking it.
func totals(p *Prober) (sent, acked, received int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.counts {
		for _, f := range s.sent {
			sent, acked = sent+f.count, acked+len(f.took)
		}
		for _, n := range s.received {
			received += n.count
		}
	}
	return sent, acked, received
}

func flow(from, to *Prober, port int) train.Flow {
	host := to.listeners[0].local.Addr()
	return train.Flow{From: "a", To: "b", Source: netip.AddrPortFrom(host, uint16(port)).String(), Target: to.Addresses()[0], DSCP: 10}
}

func TestProbesAreCountedAtBothEnds(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(host, func(t *testing.T) {
			if host == "[::1]:0" && !hasIPv6(t) {
				t.Skip("this machine has no IPv6")
			}
			a, b := open(t, host), open(t, host)
			use(t, a, b, train.Pinglist{Key: []byte("k"), Probes: []train.Flow{flow(a, b, 0)}})
			start(t, a, b)
			until(t, "thirty answers", func() bool { _, acked, _ := totals(a); return acked >= 30 })
			// Probes go on meanwhile: those that were answered are counted first, those that were sent last.
			_, acked, _ := totals(a)
			_, _, received := totals(b)
			sent, _, _ := totals(a)
			if received < acked || received > sent+confirmations+1 {
				t.Errorf("%d sent, %d received, %d answered", sent, received, acked)
			}
			number := SlotOf(time.Now())
			a.mu.Lock()
			a.reported = number - 2
			a.mu.Unlock()
			counts, over := a.Report(time.Now().Add(mostBehind))
			if !over || counts.Slot != number-1 {
				t.Errorf("report %+v, %v", counts, over)
			}
		})
	}
}

func hasIPv6(t *testing.T) bool {
	t.Helper()
	l, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp6", "[::1]:0")
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// use gives both the list and registers them with each other.
func use(t *testing.T, a, b *Prober, list train.Pinglist) {
	t.Helper()
	for _, p := range []*Prober{a, b} {
		p.Register([]netip.AddrPort{a.listeners[0].local, b.listeners[0].local})
	}
	at := time.Now().Add(-2 * train.ProbeSlot)
	if err := a.Use(t.Context(), list, at); err != nil {
		t.Fatal(err)
	}
	if err := b.Use(t.Context(), train.Pinglist{Key: list.Key}, at); err != nil {
		t.Fatal(err)
	}
}

func TestNothingGoesToAnAddressThatIsNotRegistered(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	stranger, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	foreign := flow(a, b, 0)
	foreign.Target = stranger.LocalAddr().String()
	use(t, a, b, train.Pinglist{Key: []byte("k"), Probes: []train.Flow{flow(a, b, 0), foreign}})
	start(t, a, b)
	until(t, "twenty answers", func() bool { _, acked, _ := totals(a); return acked >= 20 })
	if err := stranger.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := stranger.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes went to an address that is not registered", n)
	}
}

func TestAProbeIsAnsweredOnceAndForgedOnesNever(t *testing.T) {
	b := open(t, "127.0.0.1:0")
	start(t, b)
	peer, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	b.Register([]netip.AddrPort{netip.MustParseAddrPort(peer.LocalAddr().String())})
	if err := b.Use(t.Context(), train.Pinglist{Key: []byte("k")}, time.Now().Add(-2*train.ProbeSlot)); err != nil {
		t.Fatal(err)
	}
	probe := func(sequence uint64, key string, age time.Duration) []byte {
		p := packet{kind: kindProbe, flow: 9, session: 1, sequence: sequence, sent: time.Now().Add(-age)}
		return append(p.append(nil, []byte(key)), slices.Repeat([]byte{1}, 300)...)
	}
	first := probe(1, "k", 0)
	for _, data := range [][]byte{first, first, probe(2, "wrong", 0), probe(3, "k", 2*time.Minute), probe(4, "", 0), []byte("noise"), probe(5, "k", 0), probe(6, "k", 0)} {
		if _, err := peer.WriteTo(data, net.UDPAddrFromAddrPort(b.listeners[0].local)); err != nil {
			t.Fatal(err)
		}
	}
	var answered []uint64
	for answer := [1000]byte{}; !slices.Contains(answered, 6); {
		if err := peer.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, _, err := peer.ReadFrom(answer[:])
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(answer[:n], []byte("k"))
		if err != nil || got.kind != kindReply || n != HeaderBytes {
			t.Errorf("answer of %d bytes: %+v, %v", n, got, err)
		}
		answered = append(answered, got.sequence)
	}
	if !slices.Equal(answered, []uint64{1, 5, 6}) {
		t.Errorf("answered: %v", answered)
	}
	if _, _, received := totals(b); received != 3 {
		t.Errorf("%d probes were counted", received)
	}
}

// The time for which a packet waits for a busy process is subtracted, on the node that answers and on the one that
// asked.
func TestTheWaitForTheProcessIsNotCounted(t *testing.T) {
	s, err := openSocket(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	before := time.Now()
	if err := s.send([]byte("x"), s.local, 0, 0); err != nil {
		t.Fatal(err)
	}
	there := time.Now()
	until(t, "20 ms have passed", func() bool { return time.Since(there) > 20*time.Millisecond })
	least := time.Since(there)
	n, _, waited, err := s.receive(make([]byte, 10))
	if most := time.Since(before); err != nil || n != 1 || waited < least-time.Millisecond || waited > most+time.Millisecond {
		t.Errorf("%d bytes waited %v, want %v to %v: %v", n, waited, least, most, err)
	}

	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	defer a.close()
	defer b.close()
	use(t, a, b, train.Pinglist{Key: []byte("k"), Probes: []train.Flow{flow(a, b, 0)}})
	sent := time.Now()
	a.tick(sent)
	target, source := b.listeners[0], a.sockets[netip.MustParseAddrPort(flow(a, b, 0).Source)]
	data := make([]byte, 2048)
	pass := func(p *Prober, at *socket, took, waited time.Duration) {
		n, from, _, err := at.receive(data)
		if err != nil {
			t.Fatal(err)
		}
		p.handle(at, data[:n], from, sent.Add(took+waited), waited)
	}
	pass(b, target, 2*time.Millisecond, 30*time.Millisecond)
	pass(a, source, 35*time.Millisecond, 50*time.Millisecond)
	got, came := a.counts.take(SlotOf(sent)).Sent, b.counts.take(SlotOf(sent)).Received
	if len(got) != 1 || len(came) != 1 || got[0].RTTSeconds != 0.005 || came[0].DelaySeconds != 0.002 {
		t.Errorf("sent %+v, received %+v: want a round trip of 5 ms, one way of 2 ms", got, came)
	}
}

func TestALostProbeIsConfirmed(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	defer b.close()
	use(t, a, b, train.Pinglist{Key: []byte("k"), Probes: []train.Flow{flow(a, b, 0)}})
	defer a.close()
	// The sockets have no readers, so no answer is ever seen.
	now := hour()
	a.tick(now)
	a.tick(now.Add(replyWithin / 2))
	if sent, _, _ := totals(a); sent != 2 {
		t.Fatalf("%d sent before any was overdue", sent)
	}
	a.tick(now.Add(replyWithin))
	if sent, _, _ := totals(a); sent != 3+confirmations+extraProbes {
		t.Errorf("%d sent after one was lost", sent)
	}
	a.tick(now.Add(10 * replyWithin))
	if sent, _, _ := totals(a); sent != 4+confirmations+2*extraProbes {
		t.Errorf("%d sent after two more and the confirmations were lost: those of a suspected flow are not confirmed", sent)
	}
}

func TestASlotIsReportedWhenItsProbesHaveCome(t *testing.T) {
	p := open(t, "127.0.0.1:0")
	defer p.close()
	if _, over := p.Report(hour().Add(time.Hour)); over {
		t.Error("a report without a list")
	}
	if err := p.Use(t.Context(), train.Pinglist{Key: []byte("k")}, hour().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	begin := hour().Add(train.ProbeSlot) // of the first whole slot
	end := begin.Add(train.ProbeSlot)
	probe := func(sequence uint64, sent, comes time.Time) {
		p.answer(p.listeners[0], packet{kind: kindProbe, flow: 9, session: 1, sequence: sequence, sent: sent}, netip.AddrPort{}, comes, 0)
	}
	ran := begin
	report := func(at time.Time) (event.ProbesCounted, bool) {
		for ; ran.Before(at); ran = ran.Add(beatInterval) {
			p.beat(ran)
		}
		return p.Report(at)
	}
	probe(1, hour().Add(2*time.Second), hour().Add(2*time.Second)) // of the slot that had begun before
	probe(2, begin.Add(time.Second), begin.Add(time.Second))
	probe(3, end.Add(-time.Second), end.Add(settle)) // its clock is behind
	if _, over := report(end.Add(settle)); over {
		t.Error("a slot is reported while its probes come")
	}
	got, over := report(end.Add(settle + quietFor))
	if !over || got.Slot != SlotOf(begin) || len(got.Received) != 1 || got.Received[0].Count != 2 {
		t.Errorf("got %+v, %v", got, over)
	}
	probe(4, begin.Add(2*time.Second), end.Add(settle+quietFor))
	if got, over := report(end.Add(train.ProbeSlot + settle)); !over || got.Slot != SlotOf(begin)+1 || len(got.Received) != 0 ||
		!slices.Equal(got.Late, []train.LateProbes{{Flow: 9, BehindSeconds: 11}}) {
		t.Errorf("the next slot: %+v, %v", got, over)
	}
	if got, over := report(end.Add(2*train.ProbeSlot + settle)); !over || got.Late != nil {
		t.Errorf("what was late is reported twice: %+v, %v", got, over)
	}
}
