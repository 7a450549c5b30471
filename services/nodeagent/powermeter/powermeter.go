// Package powermeter measures the power of a whole node: by a PDU that reports the watts of its outlets, or by the
// Redfish service of the node's management controller. It does not decide what the node's components used.
//
// Both are polled over the network at their own interval. Energy is the power from one answer to the next, by the
// trapezoidal rule over the time that really passed. If answers fail for too long, the time between is a gap without
// invented energy.
package powermeter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
)

// A Gauge returns the present power of a node.
type Gauge interface {
	Power(ctx context.Context) (unit.Power, error)
}

// gapIntervals and leastGap are how long answers may be missing before the time between two of them is a gap.
const (
	gapIntervals = 5
	leastGap     = 10 * time.Second
)

// Meter polls a gauge. It is a meter.Source.
type Meter struct {
	method   string
	gauge    Gauge
	interval time.Duration

	mu sync.Mutex
	// spent and covered are the energy and the time between answers since the last Read.
	spent   unit.Energy
	covered time.Duration
	// last is the power in the last answer, at is when it arrived; zero before the first one.
	last    unit.Power
	at      time.Time
	trouble error
}

// New makes a meter. Nothing is known until Run polls.
func New(method string, gauge Gauge, interval time.Duration) *Meter {
	return &Meter{method: method, gauge: gauge, interval: interval, trouble: errors.New("not asked yet")}
}

// Method is the meter's name.
func (m *Meter) Method() string { return m.method }

// Run polls until ctx ends. An answer may take as long as the interval, but at least a second.
func (m *Meter) Run(ctx context.Context) error {
	for range tick.Every(ctx, m.interval) {
		m.poll(ctx)
	}
	return nil
}

func (m *Meter) poll(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, max(m.interval, time.Second))
	defer cancel()
	power, err := m.gauge.Power(within)
	if ctx.Err() == nil {
		m.take(power, err, time.Now())
	}
}

// take records an answer that arrived at a time.
func (m *Meter) take(power unit.Power, err error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trouble = err; err != nil {
		return
	}
	if passed := now.Sub(m.at); !m.at.IsZero() && passed > 0 && passed <= m.longest() {
		m.spent += ((power + m.last) / 2).Over(passed)
		m.covered += passed
	}
	m.last, m.at = power, now
}

func (m *Meter) longest() time.Duration { return max(gapIntervals*m.interval, leastGap) }

// Read returns the energy between the answers since the last call. It ignores d, because the meter has its own clock.
// A single missing answer is no fault yet: the next one covers its time.
func (m *Meter) Read(time.Duration) ([]meter.Spent, error) {
	return m.read(time.Now())
}

func (m *Meter) read(now time.Time) ([]meter.Spent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	covered := m.covered
	spent := meter.Spent{Component: event.ComponentNode, Energy: m.spent, Covered: &covered}
	m.spent, m.covered = 0, 0
	if covered > 0 || !m.at.IsZero() && now.Sub(m.at) <= m.longest() {
		return []meter.Spent{spent}, nil
	}
	return nil, m.trouble
}

// answerLimit is the largest answer that is read.
const answerLimit = 4 << 20

// get reads a document over HTTP.
func get(ctx context.Context, client *http.Client, address, user, password string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s", redacted(address)) // the error itself contains the address with its password
	}
	request.Header.Set("Accept", "application/json")
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for power: %w", err) // it contains the address without its password
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerLimit))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", request.URL.Redacted(), err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s", request.URL.Redacted(), answer.Status)
	}
	return body, nil
}

// redacted returns an address without its password.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	return u.Redacted()
}

// watts checks a number that a device reported as its power.
func watts(w float64) (unit.Power, error) {
	const most = 1_000_000
	if !(w >= 0 && w <= most) {
		return 0, fmt.Errorf("%g W: want 0 to %d", w, most)
	}
	return unit.Watts(w), nil
}
