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
	bus      *bus.Bus
	log      *slog.Logger
	picture  *picture
	profiles *bus.KV[recur.Profile]
	courses  *bus.KV[train.Course]
	groups   *bus.KV[recur.Record]
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
	groups, err := bus.OpenKV[recur.Record](ctx, b, event.BucketGroups)
	if err != nil {
		return nil, err
	}
	return &powerLimits{bus: b, log: log, picture: look, profiles: profiles, courses: courses, groups: groups, limits: slices.Sorted(slices.Values(limits)), eta: eta, now: time.Now}, nil
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
		if len(p.limits) > 0 && p.picture.knows(train.JobID(key)) && !p.picture.wants(key, train.SettingPowerLimit) {
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
		if r.spec.Eta(p.eta) > 0 {
			errs = append(errs, p.move(ctx, r))
		}
		if p.known == nil {
			break
		}
	}
	return errors.Join(errs...)
}

// move turns the profile of a job to its attempt, or to the next limit.
func (p *powerLimits) move(ctx context.Context, r onGPU) error {
	key, now := string(r.attempt.Job), p.now().UTC()
	e, begun := p.known[key]
	profile := e.Value
	if profile.Follow(r.attempt, p.limits, now) {
		if !begun {
			if err := p.recall(ctx, r.spec, &profile); err != nil {
				return err
			}
		}
	} else if learned, err := p.learn(ctx, r, &profile, now); err != nil || !learned {
		return err
	}
	revision, err := p.profiles.Swap(ctx, key, profile, e.Revision)
	if err != nil {
		p.known = nil
		return fmt.Errorf("limit the power of %s: %w", key, err)
	}
	p.known[key] = bus.Entry[recur.Profile]{Key: key, Value: profile, Revision: revision}
	return nil
}

// learn takes a new epoch of the job into its profile. What is chosen is noted for those that come after it in its group, too.
func (p *powerLimits) learn(ctx context.Context, r onGPU, profile *recur.Profile, now time.Time) (bool, error) {
	if profile.Settled {
		return false, nil
	}
	course, err := p.courses.Get(ctx, "course."+string(r.attempt.Job))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return false, err
	}
	wanted := profile.Watts
	if !profile.Learn(course.Value.Epochs, p.limits, r.spec.Eta(p.eta), now) {
		return false, nil
	}
	if held, err := p.held(ctx, r.attempt, wanted); err != nil {
		return false, err
	} else if !held {
		p.log.Warn("power limit was not in force, none is chosen", "job", r.attempt.Job, "watts", wanted)
		profile.GiveUp(now)
		return true, nil
	}
	if !profile.Settled {
		return true, nil
	}
	p.log.Info("power limit chosen", "job", r.attempt.Job, "watts", profile.Watts, "windows", len(profile.Windows))
	if !r.spec.Recurs() {
		return true, nil
	}
	_, err = p.groups.Modify(ctx, GroupKey(r.spec), func(record *recur.Record) (bool, error) {
		record.Limited(r.spec.BatchSize, profile.Watts, profile.Windows)
		return true, nil
	})
	return err == nil, err
}

// held says whether all devices of an attempt were at a power limit in the newest intervals of their nodes. Agents cannot always set what is wanted, and what
// they measure tells.
func (p *powerLimits) held(ctx context.Context, a train.Attempt, watts float64) (bool, error) {
	for _, part := range a.Places() {
		m, err := p.bus.Last(ctx, event.StreamSamples, event.Subject{Entity: "energy", ID: string(part.Node), Fact: event.FactMeasured, Version: 1})
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return false, err
		}
		measured, err := event.Decode[event.Measured](m.Data)
		if err != nil {
			return false, nil //nolint:nilerr // what cannot be read tells of no limit
		}
		if !measured.Holds(part.Devices, watts) {
			return false, nil
		}
	}
	return true, nil
}

// recall takes the limit that an earlier job of the group has found for the batch size.
func (p *powerLimits) recall(ctx context.Context, spec train.Spec, profile *recur.Profile) error {
	if !spec.Recurs() {
		return nil
	}
	record, err := p.groups.Get(ctx, GroupKey(spec))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	if watts := record.Value.LimitsWatts[spec.BatchSize]; slices.Contains(p.limits, watts) {
		profile.Watts, profile.Settled = watts, true
	}
	return nil
}

// onGPU is an attempt that runs on GPUs.
type onGPU struct {
	attempt train.Attempt
	spec    train.Spec
}

// onGPUs are all such attempts of jobs that have not ended, but for those that share a device: what they measure is not theirs alone. Trials whose experiment
// chooses the limit are left out.
func (p *picture) onGPUs() []onGPU {
	p.mu.Lock()
	defer p.mu.Unlock()
	type device struct {
		node train.NodeID
		id   train.DeviceID
	}
	holders := map[device]int{}
	for _, a := range p.attempts {
		for _, part := range a.Places() {
			for _, d := range part.Devices {
				if a.Live() {
					holders[device{part.Node, d}]++
				}
			}
		}
	}
	shared := func(part train.Part) bool {
		return slices.ContainsFunc(part.Devices, func(d train.DeviceID) bool { return holders[device{part.Node, d}] > 1 })
	}
	var all []onGPU
	for key, a := range p.attempts {
		j, known := p.jobs[key]
		devices := train.AllDevices(a.Places())
		if known && a.Phase == train.PhaseRunning && len(devices) > 0 && devices[0].Kind() == train.KindGPU && !p.wishes[key].Wants(train.SettingPowerLimit) && !slices.ContainsFunc(a.Places(), shared) {
			all = append(all, onGPU{a, j.Spec})
		}
	}
	return all
}
