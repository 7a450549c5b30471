package netprobe

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestASourcePortThatIsInUseIsTriedAgain(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	defer a.close()
	defer b.close()
	other, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := flow(a, b, other.LocalAddr().(*net.UDPAddr).Port)
	list := train.Pinglist{Key: []byte("k"), Probes: []train.Flow{f}, Trace: []train.Flow{f}}
	if err := a.Use(t.Context(), list, time.Now()); err == nil {
		t.Error("a port that is in use was opened")
	}
	if found, whole := a.Trace(t.Context()); !whole || len(found.Paths) != 1 || !found.Paths[0].Closed() {
		t.Errorf("found %+v, %v", found, whole)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.reopen(t.Context()); err != nil || len(a.unread()) != 1 {
		t.Errorf("the port is free and still not open: %v", err)
	}
}

func TestATraceWaitsForTheBudget(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	use(t, a, b, train.Pinglist{Key: []byte("k"), Trace: []train.Flow{flow(a, b, 0)}})
	a.budget = newBudget(4, 100_000)
	for now := time.Now(); a.budget.allow(now, HeaderBytes); {
	}
	start(t, a, b)
	if found, whole := a.Trace(t.Context()); !whole || len(found.Paths) != 1 || !found.Paths[0].Complete {
		t.Errorf("found %+v, %v", found, whole)
	}
}

func TestOnlyAnswersToTheTraceUnderWayAreBelieved(t *testing.T) {
	ours, others := &socket{}, &socket{}
	target, router := netip.MustParseAddrPort("10.0.0.2:7070"), netip.MustParseAddr("10.9.9.9")
	sent := aPacket().append(nil, []byte("key"))
	altered := slices.Clone(sent)
	altered[leastQuoted-1]++
	for name, c := range map[string]struct {
		at           *socket
		r            refusal
		hop, reached bool
	}{
		"a router's":               {at: ours, r: refusal{sent, target, router, true}, hop: true},
		"with padding":             {at: ours, r: refusal{append(slices.Clone(sent), 0, 0), target, router, true}, hop: true},
		"its beginning":            {at: ours, r: refusal{sent[:leastQuoted], target, router, true}, hop: true},
		"the target's":             {at: ours, r: refusal{sent, target, target.Addr(), false}, reached: true},
		"too little of it":         {at: ours, r: refusal{sent[:leastQuoted-1], target, router, true}},
		"nothing of it":            {at: ours, r: refusal{nil, target, router, true}},
		"of another packet":        {at: ours, r: refusal{altered, target, router, true}},
		"of another socket":        {at: others, r: refusal{sent, target, router, true}},
		"sent to another address":  {at: ours, r: refusal{sent, netip.MustParseAddrPort("10.0.0.3:7070"), router, true}},
		"a router that forbids it": {at: ours, r: refusal{sent, target, router, false}},
	} {
		trace := &probeTrace{sequence: 6, from: ours, target: target, sent: sent}
		trace.refused(c.at, c.r)
		if trace.hop.IsValid() != c.hop || trace.reached != c.reached {
			t.Errorf("%s: hop %v, reached %v", name, trace.hop, trace.reached)
		}
	}
}

func TestAWrongClockIsReportedAndNotCounted(t *testing.T) {
	p := open(t, "127.0.0.1:0")
	defer p.close()
	now := hour()
	if err := p.Use(t.Context(), train.Pinglist{Key: []byte("k")}, now); err != nil {
		t.Fatal(err)
	}
	for i, age := range []time.Duration{2 * time.Minute, -5 * time.Minute} {
		at := netip.AddrPort{}
		p.answer(p.listeners[0], packet{kind: kindProbe, flow: uint32(i), session: 1, sequence: 1, sent: now.Add(-age)}, at, now, 0)
		p.answer(p.listeners[0], packet{kind: kindTrace, flow: 9, session: 1, sequence: 2, sent: now.Add(-age)}, at, now, 0)
	}
	got, over := p.Report(now.Add(2*train.ProbeSlot + settle))
	if want := []train.LateProbes{{Flow: 0, BehindSeconds: 120}, {Flow: 1, BehindSeconds: -300}}; !over || !slices.Equal(got.Late, want) || len(got.Received) != 0 {
		t.Errorf("%+v, %v", got, over)
	}
}

func TestSlotsInWhichTheAgentDidNotRunAreNotCounted(t *testing.T) {
	p := open(t, "127.0.0.1:0")
	defer p.close()
	begin := hour().Add(train.ProbeSlot)
	if err := p.Use(t.Context(), train.Pinglist{Key: []byte("k")}, hour().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	stalled := func(slot int, now time.Time) bool {
		t.Helper()
		got, over := p.Report(now)
		if !over || got.Slot != SlotOf(begin)+int64(slot) || (got.Sent == nil) != got.Stalled || (got.Received == nil) != got.Stalled || got.Late != nil {
			t.Errorf("slot %d: %+v, %v", slot, got, over)
		}
		return got.Stalled
	}
	for now := begin; now.Before(begin.Add(25 * time.Second)); now = now.Add(beatInterval) {
		p.beat(now)
	}
	resumed := begin.Add(41 * time.Second)
	// waited is a probe that waited in the kernel meanwhile.
	sequence := uint64(0)
	waited := func(sent time.Duration) {
		sequence++
		p.answer(p.listeners[0], packet{kind: kindProbe, flow: 9, session: 1, sequence: sequence, sent: begin.Add(sent)}, netip.AddrPort{}, resumed, 0)
	}
	waited(22 * time.Second)
	for slot, want := range []bool{false, false, true, true} {
		if got := stalled(slot, resumed.Add(2*time.Second)); got != want {
			t.Errorf("slot %d: stalled is %v", slot, got)
		}
		if slot > 0 { // after that slot was reported
			waited(23 * time.Second)
			waited(-20 * time.Second)
		}
	}
	p.beat(begin.Add(44 * time.Second))
	p.beat(begin.Add(45 * time.Second))
	if !stalled(4, begin.Add(53*time.Second)) {
		t.Error("the slot in which it went on is whole")
	}
}

func TestReportsFollowAClockThatIsSet(t *testing.T) {
	for name, leap := range map[string]time.Duration{"the machine slept": 5 * time.Hour, "forward": 61 * time.Second, "back": -time.Hour, "back a little": -25 * time.Second} {
		p := open(t, "127.0.0.1:0")
		defer p.close()
		if err := p.Use(t.Context(), train.Pinglist{Key: []byte("k")}, hour()); err != nil {
			t.Fatal(err)
		}
		now, sequence := hour(), uint64(0)
		// pass advances the time, with a probe each second, and returns the reports.
		pass := func(d time.Duration) (all []event.ProbesCounted) {
			for end := now.Add(d); now.Before(end); now = now.Add(beatInterval) {
				if now.Nanosecond() == 0 {
					sequence++
					p.answer(p.listeners[0], packet{kind: kindProbe, flow: 9, session: 1, sequence: sequence, sent: now}, netip.AddrPort{}, now, 0)
				}
				if got, over := p.Report(now); over {
					all = append(all, got)
				}
			}
			return all
		}
		if got := pass(5 * train.ProbeSlot); len(got) != 3 || got[2].Stalled || got[2].Received[0].Count != 10 {
			t.Errorf("%s: before: %+v", name, got)
		}
		p.beaten = time.Time{} // the reference does not jump with the wall clock
		now = now.Add(leap)
		leapt := SlotOf(now)
		got := pass(4 * train.ProbeSlot)
		if len(got) < 3 || got[0].Slot != leapt || !got[0].Stalled {
			t.Fatalf("%s: after slot %d: %+v", name, leapt, got)
		}
		for i, c := range got[1:] {
			if c.Slot != leapt+1+int64(i) || c.Stalled || len(c.Received) != 1 || c.Received[0].Count != 10 || c.Late != nil {
				t.Errorf("%s: after slot %d: %+v", name, leapt, c)
			}
		}
		for _, c := range pass(max(0, -leap)) {
			if c.Received[0].Count != 10 {
				t.Errorf("%s: what was counted before is counted again: %+v", name, c)
			}
		}
	}
}
