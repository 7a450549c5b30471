package meter

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Spent is what a component spent since the last reading.
type Spent struct {
	Component string
	Energy    unit.Energy
	// Covered is the time that it was spent in, by a meter that keeps a time of its own; nil for the whole interval.
	Covered *time.Duration
}

// Source is a meter of the machine. GPUs have an interface of their own, gpu.Reader, since they also tell who uses them.
type Source interface {
	// Method names it on the wire.
	Method() string
	// Read gives what was spent since the last call, d ago: each component once, and none before there is something to compare with. A negative energy shows
	// that a counter was reset. An error says why nothing can be told.
	Read(d time.Duration) ([]Spent, error)
}

// readSources reads all sources, so that each has something to compare with the next time, and takes of each component the first one's word.
func (m *Meter) readSources(d time.Duration) map[string]event.Meter {
	told := map[string]event.Meter{}
	for _, s := range m.sources {
		spent, err := s.Read(d)
		m.say(s.Method(), err)
		if err != nil || d <= 0 {
			continue
		}
		for _, e := range spent {
			if _, better := told[e.Component]; better {
				continue
			}
			reading := event.Meter{Component: e.Component, Method: s.Method(), Energy: e.Energy}
			if e.Covered != nil {
				seconds := e.Covered.Seconds()
				reading.CoveredSeconds = &seconds
			}
			told[e.Component] = reading
		}
	}
	return told
}

// Status is what can be said of each meter: nothing where it works, else why it does not.
type Status struct {
	Method  string
	Trouble string
}
