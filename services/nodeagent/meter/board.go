package meter

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// board is the last reading of one GPU.
type board struct {
	uuid string
	// simulated says that its power is made up.
	simulated bool
	last      gpu.Sample
	seen      bool
	// occupants are the processes that had a context at the last reading.
	occupants map[int]occupant
	// bare is the least power seen with nothing on the device: what it draws for being there.
	bare level
	// waiting is the least power seen with contexts that did not work. It tells something only where work can be seen: sampled.
	waiting level
	sampled bool
}

// level is the least power seen in some state.
type level struct {
	power unit.Power
	known bool
}

func (l *level) see(p unit.Power) {
	if !l.known || p < l.power {
		l.power, l.known = p, true
	}
}

// read closes an interval of length d; ok is false where there is nothing to compare with.
func (b *board) read(id train.DeviceID, s gpu.Sample, d time.Duration, on tenants) (event.Meter, bool) {
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
		return m, true // the counter was reset: whoever keeps the books is shown the step as it is
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
		// The clocks stay up as long as there is any context, however many there are.
		m.Context = (b.waiting.power - b.bare.power).Over(time.Duration(min(all.context, 1) * float64(d)))
	}
	// With strangers on the device the jobs pay by their part of the work; without, all of what is active is theirs.
	if on.crowd > 0 {
		m.Busy, m.ContextSeconds = all.work*d.Seconds(), all.context*d.Seconds()
	}
	return m, true
}

// learn remembers what the device draws in the states that can be told apart.
func (b *board) learn(p unit.Power, on tenants) {
	b.sampled = b.sampled || on.all().work > 0
	switch {
	case on.empty():
		b.bare.see(p)
	case b.sampled && on.lull():
		b.waiting.see(p)
	}
}
