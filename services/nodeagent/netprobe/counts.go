package netprobe

import (
	"cmp"
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
	sent     map[uint32]*train.SentProbes
	received map[uint32]int
}

func (c counts) at(sent time.Time) *slot {
	number := SlotOf(sent)
	s, known := c[number]
	if !known {
		s = &slot{map[uint32]*train.SentProbes{}, map[uint32]int{}}
		c[number] = s
	}
	return s
}

func (s *slot) flow(id uint32) *train.SentProbes {
	f, known := s.sent[id]
	if !known {
		f = &train.SentProbes{Flow: id}
		s.sent[id] = f
	}
	return f
}

func (s *slot) acked(id uint32, rtt time.Duration) {
	f := s.flow(id)
	f.Acked++
	if seconds := rtt.Seconds(); f.Acked == 1 || seconds < f.RTTSeconds {
		f.RTTSeconds = seconds
	}
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
			out.Sent = append(out.Sent, *s.sent[id])
		}
		for id, n := range s.received {
			out.Received = append(out.Received, train.ReceivedProbes{Flow: id, Count: n})
		}
		slices.SortFunc(out.Received, func(a, b train.ReceivedProbes) int { return cmp.Compare(a.Flow, b.Flow) })
	}
	maps.DeleteFunc(c, func(n int64, _ *slot) bool { return n <= number })
	return out
}
