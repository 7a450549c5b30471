// Package audit stores what people and agents asked for and may not do, for `switchyard events --audit`. It does not
// decide what they may do.
package audit

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// Refusals stores refusals. A person who asks again and again fills no disk: after some refusals at once there is one
// in a second, which counts the others.
type Refusals struct {
	bus *bus.Bus
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	rate   *rate.Limiter
	missed int
}

const (
	// atOnce are stored without a pause, then one in every.
	atOnce = 100
	every  = time.Second
	// wait bounds the wait for the bus. An answer does not depend on it.
	wait = 2 * time.Second
	// maxRequest bounds what is stored of a request.
	maxRequest = 200
)

// New makes a store of refusals. now is its clock.
func New(b *bus.Bus, log *slog.Logger, now func() time.Time) *Refusals {
	return &Refusals{bus: b, log: log, now: now, rate: rate.NewLimiter(rate.Every(every), atOnce)}
}

// Note stores a refusal.
func (s *Refusals) Note(ctx context.Context, r event.AccessRefused) {
	key, err := access.Key(r.Person)
	missed, stored := s.turn()
	if err != nil || !stored {
		return
	}
	r.Request, r.Missed = r.Request[:min(len(r.Request), maxRequest)], missed
	fact := event.Fact{
		Subject: event.Subject{Entity: event.EntityAccess, ID: key, Fact: event.FactRefused, Version: 1}, Key: "access/" + key + "/refused/" + rand.Text(), Body: r,
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := s.bus.Publish(ctx, fact); err != nil {
		s.log.Warn("a refusal is not stored", "person", r.Person, "operation", r.Operation, "error", err)
	}
}

// turn reports whether a refusal is to be stored, and how many before it were not.
func (s *Refusals) turn() (missed int, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.rate.AllowN(s.now(), 1) {
		s.missed++
		return 0, false
	}
	missed, s.missed = s.missed, 0
	return missed, true
}
