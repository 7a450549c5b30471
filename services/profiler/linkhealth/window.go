package linkhealth

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// trip is the round trip time of a flow in a window: its median and 90th percentile; 0 if nothing was answered.
type trip struct{ median, high float64 }

// roundTrips sums up what senders reported in the slots up to last.
func (c *collector) roundTrips(flows []train.Flow, last int64) []trip {
	trips := make([]trip, len(flows))
	for i, f := range flows {
		var medians []float64
		for slot := last - windowSlots + 1; slot <= last; slot++ {
			if sent := c.reports[slot][f.From].sent[f.ID()]; sent.Acked > 0 {
				medians, trips[i].high = append(medians, sent.RTTSeconds), max(trips[i].high, sent.RTTHighSeconds)
			}
		}
		if len(medians) > 0 {
			trips[i].median = median(medians)
		}
	}
	return trips
}

// Links returns what the last window showed of each probed link.
func (w *Watch) Links() []train.LinkWindow { return w.last }

// describe returns what a window showed of each link with paths over it.
func (w *Watch) describe(s window) []train.LinkWindow {
	var all []train.LinkWindow
	for number, id := range w.links {
		number := int32(number)
		over := s.matrix.Over(number)
		if len(over) == 0 {
			continue
		}
		l := train.LinkWindow{ID: id, State: train.LinkIsWell}
		if bad, degraded := w.published[number]; degraded {
			l.State, l.Loss, l.DelaySeconds = bad.Kind, bad.Loss, bad.DelaySeconds
		}
		var medians []float64
		for _, r := range over {
			l.Sent, l.Lost = l.Sent+s.counts[r].Sent, l.Lost+s.counts[r].Lost
			if t := s.trips[r]; t.median > 0 {
				medians, l.RTTHighSeconds = append(medians, t.median), max(l.RTTHighSeconds, t.high)
			}
		}
		if len(medians) > 0 {
			l.RTTSeconds = median(medians)
		}
		all = append(all, l)
	}
	return all
}

// alike returns the other links on exactly the same paths. No probe can distinguish them.
func (w *Watch) alike(s window, link int32) []string {
	over := s.matrix.Over(link)
	if len(over) == 0 {
		return nil
	}
	var all []string
	for _, other := range s.matrix.Rows[over[0]] {
		if other != link && slices.Equal(s.matrix.Over(other), over) {
			all = append(all, w.links[other])
		}
	}
	return all
}
