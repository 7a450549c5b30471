package linkhealth

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

const (
	// slowSeconds is what half of the packets of a slot must take longer than usual, at least, for their path to be slow.
	slowSeconds = 1e-3
	// slowSpreads is how many times the usual spread that must be, too.
	slowSpreads = 6
	// learnSlots have to be timed before it is known what is usual; memorySlots are remembered: five minutes.
	learnSlots, memorySlots = 6, 30
)

// timed is how long half of the packets of a flow took at most in a slot. The round trip is measured with one clock, but its way back is not known. The way there is measured
// with two, of which one may be set anew. What is slow on the links of the flow shows in both.
type timed struct{ roundTrip, oneWay float64 }

// pace is what is usual for a flow, and what it was lately.
type pace struct {
	links []string
	// roundTrip and oneWay are those of slots in which the flow was not slow.
	roundTrip, oneWay memory
	lately            [windowSlots]verdict
}

// verdict is one slot of a flow.
type verdict struct {
	timed, slow bool
	excess      float64
}

// memory holds the last values, oldest first.
type memory []float64

func (m memory) with(v float64) memory {
	return append(m[max(0, len(m)-memorySlots+1):], v)
}

// beyond is how far a value lies above what is usual, and whether that is far.
func (m memory) beyond(v float64) (excess float64, far bool) {
	middle := median(m)
	var off []float64
	for _, x := range m {
		off = append(off, math.Abs(x-middle))
	}
	const normal = 1.4826 // by which the median of deviations becomes the standard deviation of a normal distribution
	excess = v - middle
	return excess, excess > max(slowSeconds, slowSpreads*normal*median(off))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// add takes up a slot. While the flow is slow its usual pace stays what it was, however long that lasts.
func (p *pace) add(t timed, found bool) {
	copy(p.lately[1:], p.lately[:])
	p.lately[0] = verdict{}
	if !found {
		return
	}
	if len(p.roundTrip) < learnSlots {
		p.roundTrip, p.oneWay = p.roundTrip.with(t.roundTrip), p.oneWay.with(t.oneWay)
		return
	}
	round, farRound := p.roundTrip.beyond(t.roundTrip)
	way, farWay := p.oneWay.beyond(t.oneWay)
	p.lately[0] = verdict{timed: true, slow: farRound && farWay, excess: min(round, way)}
	if !p.lately[0].slow { // one alone changes when a clock is set, or with the way back, and may stay so
		p.roundTrip, p.oneWay = p.roundTrip.with(t.roundTrip), p.oneWay.with(t.oneWay)
	}
}

// lag sums up the last slots, and notes in which of them the flow was slow.
func (p *pace) lag() (sum diagnose.Lag, slots uint) {
	var excess []float64
	for i, v := range p.lately {
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

// time is how long the packets of a flow took in a slot; false where too little arrived to tell.
func (w *Watch) time(f train.Flow, slot int64) (timed, bool) {
	sent, received := w.reports[slot][f.From].sent[f.ID()], w.reports[slot][f.To].received[f.ID()]
	if sent.Sent == 0 || received.Count == 0 {
		return timed{}, false
	}
	t := timed{sent.RTTSeconds, received.DelaySeconds}
	if sent.Acked == 0 {
		t.roundTrip = train.ProbeTimeout.Seconds() // or more: answers that take longer are not waited for
	}
	return t, true
}

// slowness times all flows in a slot and sums up the window that ends with it.
func (w *Watch) slowness(flows []train.Flow, slot int64) ([]diagnose.Lag, []uint) {
	lags, slots, paces := make([]diagnose.Lag, len(flows)), make([]uint, len(flows)), make(map[uint32]*pace, len(flows))
	for i, f := range flows {
		p := w.paces[f.ID()]
		if p == nil || !slices.Equal(p.links, f.Links) {
			p = &pace{links: f.Links} // on another way nothing is known of what is usual
		}
		p.add(w.time(f, slot))
		lags[i], slots[i] = p.lag()
		paces[f.ID()] = p
	}
	w.paces = paces
	return lags, slots
}
