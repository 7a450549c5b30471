package meter

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Spent is the energy of a component since the last reading.
type Spent struct {
	Component string
	Energy    unit.Energy
	// Covered is the time it covers, for a meter with its own clock; nil for the whole interval.
	Covered *time.Duration
}

// Source is a meter of the machine. GPUs have their own interface, gpu.Reader, because they also report their users.
type Source interface {
	// Method names it on the wire.
	Method() string
	// Read returns the energy since the last call, d ago: each component once, and none without an earlier reading. A
	// negative energy shows that a counter was reset. An error says why nothing can be read.
	Read(d time.Duration) ([]Spent, error)
}

// readSources reads all sources, so that each has something to compare with the next time, and takes the first report
// of each component.
func (m *Meter) readSources(d time.Duration) map[string]event.Meter {
	reported := map[string]event.Meter{}
	for _, s := range m.config.Sources {
		spent, err := s.Read(d)
		m.logChange(s.Method(), err)
		if err != nil || d <= 0 {
			continue
		}
		for _, e := range spent {
			if _, better := reported[e.Component]; better {
				continue
			}
			reading := event.Meter{Component: e.Component, Method: s.Method(), Energy: e.Energy}
			if e.Covered != nil {
				seconds := e.Covered.Seconds()
				reading.CoveredSeconds = &seconds
			}
			reported[e.Component] = reading
		}
	}
	return reported
}

// Status is the state of a meter: Trouble is empty if it works, else it says why it does not.
type Status struct {
	Method  string
	Trouble string
}
