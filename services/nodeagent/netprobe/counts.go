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
