package web

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// refusals stores what people asked for and may not do, or not so often. A person who asks again and again fills no
// disk: after some refusals at once there is one in a second, which counts the others.
type refusals struct {
	bus *bus.Bus
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	rate   *rate.Limiter
	missed int
}

const (
	// refusalsAtOnce are stored without a pause, then one in refusalEvery.
	refusalsAtOnce = 100
	refusalEvery   = time.Second
	// refusalWait bounds the wait for the bus. An answer does not depend on it.
	refusalWait = 2 * time.Second
	// maxRequest bounds what is stored of a path.
	maxRequest = 200
)

func newRefusals(b *bus.Bus, log *slog.Logger, now func() time.Time) *refusals {
	return &refusals{bus: b, log: log, now: now, rate: rate.NewLimiter(rate.Every(refusalEvery), refusalsAtOnce)}
}

// note stores that a person was refused something.
func (s *refusals) note(r *http.Request, person string, op access.Operation, why error) {
	key, err := access.Key(person)
	missed, stored := s.turn()
	if err != nil || !stored {
		return
	}
	request := r.Method + " " + r.URL.Path
	fact := event.Fact{
		Subject: event.Subject{Entity: event.EntityAccess, ID: key, Fact: event.FactRefused, Version: 1}, Key: "access/" + key + "/refused/" + rand.Text(),
		Body: event.AccessRefused{
			Person: person, Door: cameBy(r), Operation: op, Request: request[:min(len(request), maxRequest)], Message: why.Error(), Missed: missed,
		},
	}
	ctx, cancel := context.WithTimeout(r.Context(), refusalWait)
	defer cancel()
	if err := s.bus.Publish(ctx, fact); err != nil {
		s.log.Warn("a refusal is not stored", "person", person, "operation", op, "error", err)
	}
}

// turn reports whether a refusal is to be stored, and how many before it were not.
func (s *refusals) turn() (missed int, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.rate.AllowN(s.now(), 1) {
		s.missed++
		return 0, false
	}
	missed, s.missed = s.missed, 0
	return missed, true
}
