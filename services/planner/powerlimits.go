package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// powerLimits finds the power limit of each running job whose energy counts, while it runs. The bucket is what node agents act on, and all that is remembered.
type powerLimits struct {
	log      *slog.Logger
	picture  *picture
	profiles *bus.KV[recur.Profile]
	courses  *bus.KV[train.Course]
	// limits are those to try, in watts for each device, ascending.
	limits []float64
	// eta is what energy counts for jobs that do not say.
	eta float64
	now func() time.Time

	// known is what the bucket holds; nil before it was read, and after a write of which nothing is known.
	known map[string]bus.Entry[recur.Profile]
}

func newPowerLimits(ctx context.Context, b *bus.Bus, log *slog.Logger, look *picture, limits []float64, eta float64) (*powerLimits, error) {
	profiles, err := bus.OpenKV[recur.Profile](ctx, b, event.BucketPowerLimits)
	if err != nil {
		return nil, err
	}
	courses, err := bus.OpenKV[train.Course](ctx, b, event.BucketLedger)
	if err != nil {
		return nil, err
	}
	return &powerLimits{log: log, picture: look, profiles: profiles, courses: courses, limits: slices.Sorted(slices.Values(limits)), eta: eta, now: time.Now}, nil
}

// profileEvery is how often the epochs of running jobs are looked at.
const profileEvery = time.Second

// run works until ctx ends; without limits to try only until those of an earlier planner are withdrawn.
func (p *powerLimits) run(ctx context.Context) error {
	ticker := time.NewTicker(profileEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !p.picture.ready() {
			continue
		}
		if err := p.pass(ctx); err == nil && len(p.limits) == 0 {
			return nil
		} else if err != nil && ctx.Err() == nil {
			p.log.Warn("power limits not chosen", "error", err)
		}
	}
}

// pass moves the profiles of running jobs on, and forgets those of jobs that have ended.
func (p *powerLimits) pass(ctx context.Context) error {
	if p.known == nil {
		entries, err := p.profiles.List(ctx)
		if err != nil {
			return err
		}
		p.known = make(map[string]bus.Entry[recur.Profile], len(entries))
		for _, e := range entries {
			p.known[e.Key] = e
		}
	}
	for key, e := range p.known {
		if len(p.limits) > 0 && p.picture.knows(train.JobID(key)) {
			continue
		}
		if err := p.profiles.Delete(ctx, key, e.Revision); err != nil {
			p.known = nil
			return err
		}
		delete(p.known, key)
	}
	if len(p.limits) == 0 {
		return nil
	}
	var errs []error
	for _, r := range p.picture.onGPUs() {
		if eta := r.spec.Eta(p.eta); eta > 0 {
			errs = append(errs, p.move(ctx, r.attempt, eta))
		}
		if p.known == nil {
			break
		}
	}
	return errors.Join(errs...)
}

// move turns the profile of a job to its attempt, or to the next limit.
func (p *powerLimits) move(ctx context.Context, a train.Attempt, eta float64) error {
	key, now := string(a.Job), p.now().UTC()
	e := p.known[key]
	profile := e.Value
	if !profile.Follow(a, p.limits, now) {
		if profile.Settled {
			return nil
		}
		course, err := p.courses.Get(ctx, "course."+key)
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return err
		}
		if !profile.Learn(course.Value.Epochs, p.limits, eta, now) {
			return nil
		}
		if profile.Settled {
			p.log.Info("power limit chosen", "job", a.Job, "watts", profile.Watts, "windows", len(profile.Windows))
		}
	}
	revision, err := p.profiles.Swap(ctx, key, profile, e.Revision)
	if err != nil {
		p.known = nil
		return fmt.Errorf("limit the power of %s: %w", a.Job, err)
	}
	p.known[key] = bus.Entry[recur.Profile]{Key: key, Value: profile, Revision: revision}
	return nil
}
