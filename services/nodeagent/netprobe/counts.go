package netprobe

import (
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// SlotOf is the number of the slot in which a time is.
func SlotOf(t time.Time) int64 { return t.Unix() / int64(train.ProbeSlot/time.Second) }

// counts are what was sent and received, by slot and flow.
type counts map[int64]*slot

type slot struct {
	sent, received map[uint32]*tally
}

// tally counts the probes of a flow, with how long each took, in seconds: the round trips of those sent, one way those received.
type tally struct {
	count int
	took  []float64
}

func (c counts) at(sent time.Time) *slot {
	number := SlotOf(sent)
	s, known := c[number]
	if !known {
		s = &slot{map[uint32]*tally{}, map[uint32]*tally{}}
		c[number] = s
	}
	return s
}

func of(flows map[uint32]*tally, id uint32) *tally {
	t, known := flows[id]
	if !known {
		t = &tally{}
		flows[id] = t
	}
	return t
}

func (s *slot) left(id uint32) { of(s.sent, id).count++ }

func (s *slot) acked(id uint32, rtt time.Duration) {
	t := of(s.sent, id)
	t.took = append(t.took, rtt.Seconds())
}

// arrived counts a probe that took so long, by the clocks of both ends.
func (s *slot) arrived(id uint32, took time.Duration) {
	t := of(s.received, id)
	t.count, t.took = t.count+1, append(t.took, took.Seconds())
}

// tenths is what so many tenths took at most; 0 of none.
func (t *tally) tenths(n int) float64 {
	if len(t.took) == 0 {
		return 0
	}
	slices.Sort(t.took)
	return t.took[(len(t.took)*n-1)/10]
}

// Counts is what one agent counted in a slot.
type Counts struct {
	Slot     int64
	Sent     []train.SentProbes
	Received []train.ReceivedProbes
	// Late are flows whose probes came for slots that had been reported before.
	Late []train.LateProbes
	// Stalled says that the agent did not get to run for a while of the slot; nothing else is told of it then.
	Stalled bool
}

// take removes a slot and those before it, and gives what was counted in it.
func (c counts) take(number int64) Counts {
	out := Counts{Slot: number, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
	if s, found := c[number]; found {
		for _, id := range slices.Sorted(maps.Keys(s.sent)) {
			t := s.sent[id]
			out.Sent = append(out.Sent, train.SentProbes{Flow: id, Sent: t.count, Acked: len(t.took), RTTSeconds: t.tenths(5), RTTHighSeconds: t.tenths(9)})
		}
		for _, id := range slices.Sorted(maps.Keys(s.received)) {
			t := s.received[id]
			out.Received = append(out.Received, train.ReceivedProbes{Flow: id, Count: t.count, DelaySeconds: t.tenths(5)})
		}
	}
	maps.DeleteFunc(c, func(n int64, _ *slot) bool { return n <= number })
	return out
}

// count counts a probe in its slot, or notes that the slot was reported without it.
func (p *Prober) count(in packet, now time.Time) {
	number := SlotOf(in.sent)
	switch {
	case number > p.reported:
		p.counts.at(in.sent).arrived(in.flow, now.Sub(in.sent))
		p.heard[number] = now
	case now.Sub(endOf(number)) >= settle:
		p.tooLate(in, now.Sub(in.sent))
	}
}

// tooLate notes that a probe cannot be counted because the clocks of both ends differ.
func (p *Prober) tooLate(in packet, age time.Duration) {
	if _, known := p.late[in.flow]; in.kind == kindProbe && age.Abs() > p.late[in.flow].Abs() && (known || len(p.late) < mostFlows) {
		p.late[in.flow] = age
	}
}

// endOf is when a slot ends.
func endOf(number int64) time.Time {
	return time.Unix((number+1)*int64(train.ProbeSlot/time.Second), 0)
}

// How long the counts of a slot wait for its last probes: the clock of their sender may be behind.
const (
	settle     = 2 * time.Second
	quietFor   = time.Second
	mostBehind = 10 * time.Second
	// mostOpen is how many slots may be over or under way that are not reported: as many as are judged together.
	mostOpen = 6
)

// Report takes the counts of the next slot that is over; false where there is none.
func (p *Prober) Report(now time.Time) (Counts, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beat(now)
	if len(p.list.Key) == 0 {
		return Counts{}, false
	}
	p.follow(now)
	number := p.reported + 1
	if late := now.Sub(endOf(number)); late < settle || late < mostBehind && now.Sub(p.heard[number]) < quietFor {
		return Counts{}, false
	}
	p.reported = number
	delete(p.heard, number)
	out := p.counts.take(number)
	if p.stalled[number] {
		out = Counts{Slot: number, Stalled: true}
		clear(p.late) // they waited for the agent, and say nothing of clocks
	}
	maps.DeleteFunc(p.stalled, func(n int64, _ bool) bool { return n <= number })
	for _, id := range slices.Sorted(maps.Keys(p.late)) {
		out.Late = append(out.Late, train.LateProbes{Flow: id, BehindSeconds: p.late[id].Seconds()})
	}
	clear(p.late)
	return out, true
}

// follow begins anew in the slot that is under way, where the wall clock was set or the machine slept. Of that slot only a part was counted.
func (p *Prober) follow(now time.Time) {
	current := SlotOf(now)
	if p.reported <= current && current-p.reported <= mostOpen {
		return
	}
	clear(p.counts)
	clear(p.heard)
	clear(p.stalled)
	p.reported, p.stalled[current] = current-1, true
}

const (
	// beatEvery is how often the prober looks whether it gets to run at all, and stalledAfter for how long it may not have. What comes meanwhile waits in the kernel,
	// and is read too late or not at all.
	beatEvery    = 250 * time.Millisecond
	stalledAfter = 2 * time.Second
)

// beat notes the slots in which the prober did not get to run: it was stopped, or its node is overloaded. Their counts would accuse links.
func (p *Prober) beat(now time.Time) {
	if !p.beaten.IsZero() && now.Sub(p.beaten) > stalledAfter {
		for slot := SlotOf(p.beaten); slot <= SlotOf(now); slot++ {
			p.stalled[slot] = true
		}
	}
	p.beaten = now
}
