package meter

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// gpuMeter is the last reading of one GPU.
type gpuMeter struct {
	uuid string
	// simulated is set if its power is invented.
	simulated bool
	last      gpu.Sample
	seen      bool
	// occupants are the processes that had a context at the last reading.
	occupants map[int]occupant
	// bare is the least power seen with nothing on the device: the cost of being there.
	bare level
	// waiting is the least power seen with contexts that did not work. It means something only if work is visible,
	// that is, sampled.
	waiting level
	sampled bool
}

// level is the least power seen in some state.
type level struct {
	power unit.Power
	known bool
}

func (l *level) observe(p unit.Power) {
	if !l.known || p < l.power {
		l.power, l.known = p, true
	}
}

// read closes an interval of length d; ok is false if there is no earlier reading to compare with.
func (b *gpuMeter) read(id train.DeviceID, s gpu.Sample, d time.Duration, on deviceUse) (event.Meter, bool) {
	last, seen := b.last, b.seen
	b.last, b.seen = s, true
	if !seen || d <= 0 {
		return event.Meter{}, false
	}
	m := event.Meter{Component: event.ComponentGPU, Device: id, Capacity: d.Seconds(), Board: &s.Board}
	switch {
	case s.HasEnergy && last.HasEnergy:
		m.Method, m.Energy = methodCounter, s.Energy-last.Energy
	case s.HasPower && last.HasPower:
		m.Method, m.Energy = methodPower, ((s.Power + last.Power) / 2).Over(d)
	default:
		return event.Meter{}, false
	}
	if b.simulated {
		m.Method = methodModelled
	}
	if m.Energy < 0 {
		return m, true // the counter was reset: the ledger gets the step as it is
	}
	b.learn(unit.Watts(m.Energy.Joules()/d.Seconds()), on)
	if on.empty() {
		m.Idle = m.Energy
		return m, true
	}
	if b.bare.known {
		m.Idle = min(m.Energy, b.bare.power.Over(d))
	}
	all := on.all()
	if b.bare.known && b.waiting.known && b.waiting.power > b.bare.power {
		// The clocks stay up while there is any context, however many there are.
		m.Context = (b.waiting.power - b.bare.power).Over(time.Duration(min(all.context, 1) * float64(d)))
	}
	// With other processes on the device, jobs pay for their share of the work; without, all active energy is theirs.
	if on.otherCount > 0 {
		m.Busy, m.ContextSeconds = all.work*d.Seconds(), all.context*d.Seconds()
	}
	return m, true
}

// learn remembers what the device draws in the states that can be distinguished.
func (b *gpuMeter) learn(p unit.Power, on deviceUse) {
	b.sampled = b.sampled || on.all().work > 0
	switch {
	case on.empty():
		b.bare.observe(p)
	case b.sampled && on.idle():
		b.waiting.observe(p)
	}
}
