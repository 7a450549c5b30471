package linkhealth

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

const (
	// slowSeconds is how much longer than usual half of the packets of a slot must take at least, for their path to
	// be slow.
	slowSeconds = 1e-3
	// slowSpreads is how many times the usual spread that excess must be at least.
	slowSpreads = 6
	// learnSlots have to be timed before it is known what is usual; memorySlots (five minutes) are remembered.
	learnSlots, memorySlots = 6, 30
	// A flow may be slow from the start, so until youngSlots were usual for it, it is also compared with the flows over as
	// many links, if there are leastAlike.
	youngSlots, leastAlike = 18, 6
)

// timed is the longest time of the faster half of a flow's packets in a slot. One clock measures the round trip, but
// its way back is unknown. Two clocks measure the one-way time, and one of them may be set. A slow link of the flow
// shows in both.
type timed struct{ roundTrip, oneWay float64 }

// baseline is what is usual for a flow, and its last slots.
type baseline struct {
	links []string
	usual
	recent [windowSlots]slotResult
}

// usual holds the times of slots in which a flow was not slow.
type usual struct{ roundTrip, oneWay memory }

// slotResult is one slot of a flow.
type slotResult struct {
	timed, slow bool
	excess      float64
}

// memory holds the last values, oldest first.
type memory []float64

func (m memory) with(v float64) memory {
	return append(m[max(0, len(m)-memorySlots+1):], v)
}

// beyond returns how far a value lies above what is usual, and whether that is far.
func (m memory) beyond(v float64) (excess float64, far bool) {
	middle := median(m)
	var off []float64
	for _, x := range m {
		off = append(off, math.Abs(x-middle))
	}
	const normal = 1.4826 // the factor from the median deviation to the standard deviation of a normal distribution
	excess = v - middle
	return excess, excess > max(slowSeconds, slowSpreads*normal*median(off))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func (u usual) with(t timed) usual {
	return usual{u.roundTrip.with(t.roundTrip), u.oneWay.with(t.oneWay)}
}

func (u usual) learnt() bool { return len(u.roundTrip) >= learnSlots }

func (u usual) young() bool { return len(u.roundTrip) < youngSlots }

// beyond returns how far times lie above the usual ones, and whether both are far.
func (u usual) beyond(t timed) (excess timed, far bool) {
	round, farRound := u.roundTrip.beyond(t.roundTrip)
	way, farWay := u.oneWay.beyond(t.oneWay)
	return timed{round, way}, farRound && farWay
}

// slow reports whether a time is far beyond the usual ones of the flow or, while the flow is young, of the others.
func (p *baseline) slow(t timed, others usual) (excess timed, slow bool) {
	if excess, slow = p.beyond(t); slow || !p.young() || len(others.roundTrip) < leastAlike {
		return excess, slow
	}
	excess, slow = others.beyond(t)
	// If the way is late by more than the round trip, the clocks of its ends differ.
	return excess, slow && excess.oneWay <= excess.roundTrip+slowSeconds
}

// add adds a slot. While the flow is slow, its baseline stays as it was, however long that lasts.
func (p *baseline) add(t timed, found bool, others usual) {
	copy(p.recent[1:], p.recent[:])
	p.recent[0] = slotResult{}
	if !found {
		return
	}
	if p.learnt() {
		excess, slow := p.slow(t, others)
		if p.recent[0] = (slotResult{timed: true, slow: slow, excess: min(excess.roundTrip, excess.oneWay)}); slow {
			return
		}
	}
	p.usual = p.with(t) // one time alone changes when a clock is set, or with the way back, and may stay so
}

// lag sums up the last slots, and returns in which of them the flow was slow.
func (p *baseline) lag() (sum diagnose.Lag, slots uint) {
	var excess []float64
	for i, v := range p.recent {
		if v.timed {
			sum.Slots++
		}
		if v.slow {
			sum.Slow, slots, excess = sum.Slow+1, slots|1<<i, append(excess, v.excess)
		}
	}
	if sum.Slow > 0 {
		sum.Excess = median(excess)
	}
	return sum, slots
}

// time returns how long the packets of a flow took in a slot; false if too few arrived.
func (c *collector) time(f train.Flow, slot int64) (timed, bool) {
	sent, received := c.reports[slot][f.From].sent[f.ID()], c.reports[slot][f.To].received[f.ID()]
	if sent.Sent == 0 || received.Count == 0 {
		return timed{}, false
	}
	t := timed{sent.RTTSeconds, received.DelaySeconds}
	if sent.Acked == 0 {
		t.roundTrip = train.ProbeTimeout.Seconds() // or more: later answers are not waited for
	}
	return t, true
}

// slowness times all flows in a slot and sums up the window that ends with it.
func (w *Watch) slowness(flows []train.Flow, slot int64) ([]diagnose.Lag, []uint) {
	lags, slots, baselines := make([]diagnose.Lag, len(flows)), make([]uint, len(flows)), make(map[uint32]*baseline, len(flows))
	others := w.typical()
	for i, f := range flows {
		p := w.baselines[f.ID()]
		if p == nil || !slices.Equal(p.links, f.Links) {
			p = &baseline{links: f.Links} // on another path the usual time is unknown
		}
		t, found := w.time(f, slot)
		p.add(t, found, others[len(f.Links)])
		lags[i], slots[i] = p.lag()
		baselines[f.ID()] = p
	}
	w.baselines = baselines
	return lags, slots
}

// typical returns the usual times of flows, by their number of links. Where all flows are old it returns none.
func (w *Watch) typical() map[int]usual {
	all, young := map[int]usual{}, false
	for _, p := range w.baselines {
		if p.learnt() {
			young = young || p.young()
			u := all[len(p.links)]
			all[len(p.links)] = usual{append(u.roundTrip, median(p.roundTrip)), append(u.oneWay, median(p.oneWay))}
		}
	}
	if !young {
		return nil
	}
	return all
}
