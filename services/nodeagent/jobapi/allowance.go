package jobapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// An attempt stores facts of storedAtOnce bytes in JOBS as fast as it reports them, and storedPerSecond from then on:
// the stream is everybody's, and refuses all when it is full. factBytes is what a fact takes beside its body.
const (
	storedAtOnce    = 4 << 20
	storedPerSecond = 256
	factBytes       = 200
)

const (
	// releaseEvery is the time between two looks for facts that may be stored now.
	releaseEvery = time.Second
	// fillEvery is the time between two questions how full JOBS is.
	fillEvery = 15 * time.Second
)

func newAllowance() *rate.Limiter { return rate.NewLimiter(storedPerSecond, storedAtOnce) }

// thin takes the fact out of an effect and holds it back if it cannot be stored now: its attempt has stored too much,
// or the rest of JOBS is left to submissions, requests and ends. Counts of epochs are absolute and in the record of the
// attempt, so of each kind of fact the newest stands for those before it.
func (a *API) thin(s *session, d effect, now time.Time) effect {
	if d.Fact == nil {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.full.Load() && s.allowance.AllowN(now, d.Fact.size()) {
		delete(s.held, d.Fact.Subject)
		return d
	}
	if !s.thinned {
		a.log.Warn("an attempt reports more than is stored: of its epochs and checkpoints some are left out, the newest never",
			"job", s.attempt.Job, "attempt", s.attempt.Number, "jobs_almost_full", a.full.Load())
	}
	s.thinned, s.held[d.Fact.Subject] = true, d
	d.Fact = nil
	return d
}

func (f storedFact) size() int { return min(len(f.Body)+len(f.Key)+factBytes, storedAtOnce) }

// release takes the facts that may be stored.
func (s *session) release(may func(bytes int) bool) (all []effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject, d := range s.held {
		if may(d.Fact.size()) {
			all = append(all, d)
			delete(s.held, subject)
		}
	}
	return all
}

// releaseLast stores what an attempt has held back before its first end, so that its last epoch comes before that.
func (a *API) releaseLast(ctx context.Context, c call) {
	if c.session.known().Ended != "" || a.full.Load() {
		return
	}
	a.storeHeld(ctx, c.session, func(bytes int) bool {
		c.session.allowance.ReserveN(c.now, bytes) // a debt
		return true
	})
}

func (a *API) storeHeld(ctx context.Context, s *session, may func(bytes int) bool) {
	for _, d := range s.release(may) {
		if err := a.keep(ctx, s, d); err != nil {
			a.log.Error("report not stored", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
		}
	}
}

// RunHeld stores facts that were held back as soon as there is room for them, until ctx ends. Then it writes them to
// disk.
func (a *API) RunHeld(ctx context.Context) error {
	var asked time.Time
	for now := range tick.Every(ctx, releaseEvery) {
		if now.Sub(asked) >= fillEvery {
			asked = now
			a.askFill(ctx)
		}
		for _, s := range a.sessions.all() {
			a.storeHeld(ctx, s, func(bytes int) bool { return !a.full.Load() && s.allowance.AllowN(now, bytes) })
		}
	}
	for _, s := range a.sessions.all() {
		for _, d := range s.release(func(int) bool { return true }) {
			if err := a.putAside(d); err != nil {
				a.log.Error("report not stored", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
			}
		}
	}
	return nil
}

// askFill learns whether JOBS is almost full. Without an answer it stays what it was.
func (a *API) askFill(ctx context.Context) {
	if a.bus.Ready() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	usage, err := a.bus.UsageOf(ctx, event.StreamJobs)
	if err != nil {
		a.log.Debug("bus usage unknown", "error", err)
		return
	}
	a.full.Store(usage.AlmostFull())
}

// putAside writes an effect to disk, behind those that wait there.
func (r *recorder) putAside(d effect) error {
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode %s: %w", d.key(), err)
	}
	return r.box.Put(d.key(), data)
}
