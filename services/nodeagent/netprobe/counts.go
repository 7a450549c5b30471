package netprobe

import (
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// SlotOf returns the number of the slot that contains a time.
func SlotOf(t time.Time) int64 { return t.Unix() / int64(train.ProbeSlot/time.Second) }

// counts are the probes sent and received, by slot and flow.
type counts map[int64]*slot

type slot struct {
	sent, received map[uint32]*tally
}

// tally counts the probes of a flow, with the time each took, in seconds: the round trip of sent probes, one way for
// received ones.
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

// arrived counts a probe with its travel time by the clocks of both ends.
func (s *slot) arrived(id uint32, took time.Duration) {
	t := of(s.received, id)
	t.count, t.took = t.count+1, append(t.took, took.Seconds())
}

// tenths returns the largest time of the fastest n tenths, or 0 without times.
func (t *tally) tenths(n int) float64 {
	if len(t.took) == 0 {
		return 0
	}
	slices.Sort(t.took)
	return t.took[(len(t.took)*n-1)/10]
}

// take removes a slot and those before it, and returns its counts.
func (c counts) take(number int64) event.ProbesCounted {
	out := event.ProbesCounted{Slot: number, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
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

// slotCounter counts probes by slot until the slots are reported.
type slotCounter struct {
	counts counts
	// lastArrival is when the last probe of each slot arrived. reported is the last slot whose counts were taken;
	// nothing is counted up to it.
	lastArrival map[int64]time.Time
	reported    int64
	// late is the age, by the clocks of both ends, of the probes of a flow that could not be counted since the last
	// report.
	late map[uint32]time.Duration
	// beaten is when the prober last got to run, stalled are the slots in which it did not for a while.
	beaten  time.Time
	stalled map[int64]bool
}

func newSlotCounter() slotCounter {
	return slotCounter{counts: counts{}, lastArrival: map[int64]time.Time{}, late: map[uint32]time.Duration{}, stalled: map[int64]bool{}}
}

// count counts a probe, which waited on this node for a while, in its slot, or records that the slot was reported
// without it.
func (s *slotCounter) count(in packet, now time.Time, waited time.Duration) {
	number := SlotOf(in.sent)
	switch {
	case number > s.reported:
		s.counts.at(in.sent).arrived(in.flow, now.Sub(in.sent)-waited)
		s.lastArrival[number] = now
	case now.Sub(endOf(number)) >= settle:
		s.tooLate(in, now.Sub(in.sent))
	}
}

// tooLate records that a probe cannot be counted because the clocks of both ends differ.
func (s *slotCounter) tooLate(in packet, age time.Duration) {
	if _, known := s.late[in.flow]; in.kind == kindProbe && age.Abs() > s.late[in.flow].Abs() && (known || len(s.late) < maxFlows) {
		s.late[in.flow] = age
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
	// maxOpen is how many slots may be unreported, the current one included: as many as are judged together.
	maxOpen = 6
)

// Report takes the counts of the next slot that is over. It returns false if no slot is over.
func (p *Prober) Report(now time.Time) (event.ProbesCounted, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beat(now)
	if len(p.list.Key) == 0 {
		return event.ProbesCounted{}, false
	}
	return p.take(now)
}

// take removes and returns the counts of the next slot that is over. It returns false if no slot is over.
func (s *slotCounter) take(now time.Time) (event.ProbesCounted, bool) {
	s.follow(now)
	number := s.reported + 1
	if late := now.Sub(endOf(number)); late < settle || late < mostBehind && now.Sub(s.lastArrival[number]) < quietFor {
		return event.ProbesCounted{}, false
	}
	s.reported = number
	delete(s.lastArrival, number)
	out := s.counts.take(number)
	if s.stalled[number] {
		out = event.ProbesCounted{Slot: number, Stalled: true}
		clear(s.late) // they waited for the agent, and say nothing about clocks
	}
	maps.DeleteFunc(s.stalled, func(n int64, _ bool) bool { return n <= number })
	for _, id := range slices.Sorted(maps.Keys(s.late)) {
		out.Late = append(out.Late, train.LateProbes{Flow: id, BehindSeconds: s.late[id].Seconds()})
	}
	clear(s.late)
	return out, true
}

// follow starts again in the current slot if the wall clock was set or the machine slept. Only a part of that slot was
// counted.
func (s *slotCounter) follow(now time.Time) {
	current := SlotOf(now)
	if s.reported <= current && current-s.reported <= maxOpen {
		return
	}
	clear(s.counts)
	clear(s.lastArrival)
	clear(s.stalled)
	s.reported, s.stalled[current] = current-1, true
}

const (
	// beatInterval is how often the prober checks that it gets to run at all; after a pause of stalledAfter it counts
	// as stalled. Probes that arrive meanwhile wait in the kernel, and are read too late or not at all.
	beatInterval = 250 * time.Millisecond
	stalledAfter = 2 * time.Second
)

// beat records the slots in which the prober did not get to run, because it was stopped or its node is overloaded.
// Their counts would accuse links.
func (s *slotCounter) beat(now time.Time) {
	if !s.beaten.IsZero() && now.Sub(s.beaten) > stalledAfter {
		for slot := SlotOf(s.beaten); slot <= SlotOf(now); slot++ {
			s.stalled[slot] = true
		}
	}
	s.beaten = now
}
