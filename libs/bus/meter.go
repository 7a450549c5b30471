package bus

import (
	"sync"
	"time"
)

// Meter counts what connections do. It may be shared by several. A nil Meter counts nothing.
type Meter struct {
	// Wrote is called with the time from a write to its acknowledgement, which includes the wait for its turn and a sync
	// of the server's disk.
	Wrote func(took time.Duration)
	// Reconnected is called when the server is back, SetAside with each message that becomes poison.
	Reconnected func()
	SetAside    func(consumer string)

	mu   sync.Mutex
	lags map[string]Lag
}

// Lag is how far a consumer is behind its stream.
type Lag struct {
	Consumer string
	// Pending is how many messages it has still to handle, OldestStored when the oldest of them was stored; zero without
	// any.
	Pending      uint64
	OldestStored time.Time
}

// Lags returns how far the consumers are behind.
func (m *Meter) Lags() []Lag {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Lag, 0, len(m.lags))
	for _, l := range m.lags {
		all = append(all, l)
	}
	return all
}

func (m *Meter) behind(l Lag) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lags == nil {
		m.lags = map[string]Lag{}
	}
	m.lags[l.Consumer] = l
}

func (m *Meter) wrote(began time.Time, err error) {
	if err == nil && m != nil && m.Wrote != nil {
		m.Wrote(time.Since(began))
	}
}

func (m *Meter) reconnected() {
	if m != nil && m.Reconnected != nil {
		m.Reconnected()
	}
}

func (m *Meter) setAside(consumer string) {
	if m != nil && m.SetAside != nil {
		m.SetAside(consumer)
	}
}
