// Package audit stores what people and agents asked for and may not do, for `switchyard events --audit`. It does not
// decide what they may do.
package audit

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/throttle"
)

// Refusals stores refusals. A person who asks again and again fills no disk, and hides no refusals of others: after
// some at once, one of his is stored in a second, which counts the others.
type Refusals struct {
	bus *bus.Bus
	log *slog.Logger
	now func() time.Time

	rates *throttle.Rates
	mu    sync.Mutex
	// missed counts those of each person that were not stored since the last one that was.
	missed map[string]int
}

const (
	// perMinute is how many refusals of a person are stored at once, and in each minute after that.
	perMinute = 100
	// wait bounds the wait for the bus. An answer does not depend on it.
	wait = 2 * time.Second
	// maxRequest bounds what is stored of a request.
	maxRequest = 200
)

// New makes a store of refusals. now is its clock.
func New(b *bus.Bus, log *slog.Logger, now func() time.Time) *Refusals {
	return &Refusals{bus: b, log: log, now: now, rates: throttle.New(), missed: map[string]int{}}
}

// Note stores a refusal.
func (s *Refusals) Note(ctx context.Context, r event.AccessRefused) {
	key, err := access.Key(r.Person)
	missed, stored := s.turn(r.Person)
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

// turn reports whether a refusal of a person is to be stored, and how many before it were not.
func (s *Refusals) turn(person string) (missed int, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, stored = s.rates.Take(person, perMinute, s.now()); !stored {
		s.missed[person]++
		return 0, false
	}
	missed = s.missed[person]
	delete(s.missed, person)
	return missed, true
}
