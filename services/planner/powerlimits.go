package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// powerLimits finds the power limit of each running job whose energy counts, while it runs. The bucket is what node
// agents act on, and the only memory.
type powerLimits struct {
	bus      *bus.Bus
	log      *slog.Logger
	cache    *cache
	profiles ownRecords[contract.PowerProfile]
	courses  *bus.KV[train.EnergyProgress]
	groups   *bus.KV[contract.Group]
	// limits are the limits to try, in watts for each device, ascending.
	limits []float64
	// eta is the weight of energy for jobs that name none.
	eta float64
	now func() time.Time
}

func newPowerLimits(ctx context.Context, b *bus.Bus, log *slog.Logger, known *cache, limits []float64, eta float64) (*powerLimits, error) {
	p := &powerLimits{bus: b, log: log, cache: known, limits: slices.Sorted(slices.Values(limits)), eta: eta, now: time.Now}
	return p, errors.Join(
		bus.Open(ctx, b, contract.PowerProfiles, &p.profiles.kv), bus.Open(ctx, b, contract.EnergyProgress, &p.courses), bus.Open(ctx, b, contract.Groups, &p.groups),
	)
}

// profileEvery is the interval at which the epochs of running jobs are checked.
const profileEvery = time.Second

// run works until ctx ends. Without limits to try it only withdraws those of an earlier planner.
func (p *powerLimits) run(ctx context.Context) error {
	for range tick.After(ctx, profileEvery) {
		if !p.cache.ready() {
			continue
		}
		if err := p.pass(ctx); err == nil && len(p.limits) == 0 {
			return nil
		} else if err != nil && ctx.Err() == nil {
			p.log.Warn("power limits not chosen", "error", err)
		}
	}
	return nil
}

// pass moves the profiles of running jobs on, and deletes those of jobs that have ended.
func (p *powerLimits) pass(ctx context.Context) error {
	if err := p.profiles.load(ctx); err != nil {
		return err
	}
	err := p.profiles.keep(ctx, func(key string) bool {
		return len(p.limits) > 0 && p.cache.knows(train.JobID(key)) && !p.cache.wants(key, train.SettingPowerLimit)
	})
	if err != nil {
		return err
	}
	if len(p.limits) == 0 {
		return nil
	}
	var errs []error
	for _, r := range p.cache.onGPUs() {
		if r.spec.Eta(p.eta) > 0 {
			errs = append(errs, p.move(ctx, r))
		}
		if p.profiles.known == nil {
			break
		}
	}
	return errors.Join(errs...)
}

// move turns the profile of a job to its present attempt, or to the next limit.
func (p *powerLimits) move(ctx context.Context, r onGPU) error {
	key, now := string(r.attempt.Job), p.now().UTC()
	e, begun := p.profiles.known[key]
	profile := recur.Profile(e.Value)
	if profile.Follow(r.attempt, p.limits, now) {
		if !begun {
			if err := p.recall(ctx, r.spec, &profile); err != nil {
				return err
			}
		}
	} else if learned, err := p.learn(ctx, r, &profile, now); err != nil || !learned {
		return err
	}
	if err := p.profiles.put(ctx, key, contract.PowerProfile(profile)); err != nil {
		return fmt.Errorf("limit the power of %s: %w", key, err)
	}
	return nil
}

// learn enters a new epoch of the job into its profile. The limit chosen is noted for later jobs of its group, too.
func (p *powerLimits) learn(ctx context.Context, r onGPU, profile *recur.Profile, now time.Time) (bool, error) {
	if profile.Settled {
		return false, nil
	}
	course, err := p.courses.Get(ctx, contract.EnergyProgressKey(r.attempt.Job))
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
	_, err = p.groups.Modify(ctx, contract.GroupKey(r.spec), func(record *contract.Group) (bool, error) {
		(*recur.Record)(record).Limited(r.spec.BatchSize, profile.Watts, profile.Windows)
		return true, nil
	})
	return err == nil, err
}

// held reports whether all devices of an attempt were at a power limit in the newest intervals of their nodes.
// Agents cannot always set the desired limit; their measurements show it.
func (p *powerLimits) held(ctx context.Context, a train.Attempt, watts float64) (bool, error) {
	for _, part := range a.Places() {
		newest := event.Subject{Entity: "energy", ID: string(part.Node), Fact: event.FactMeasured, Version: 1}
		measured, found, err := bus.LastOf[event.Measured](ctx, p.bus, event.StreamSamples, newest)
		if err != nil || !found || !measured.Holds(part.Devices, watts) {
			return false, err
		}
	}
	return true, nil
}

// recall takes the limit that an earlier job of the group has found for the batch size.
func (p *powerLimits) recall(ctx context.Context, spec train.Spec, profile *recur.Profile) error {
	if !spec.Recurs() {
		return nil
	}
	record, err := p.groups.Get(ctx, contract.GroupKey(spec))
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

// onGPUs returns the attempts on GPUs of jobs that have not ended. It leaves out those that share a device, since
// their measurements include others, and trials whose experiment chooses the limit.
func (p *cache) onGPUs() []onGPU {
	p.mu.Lock()
	defer p.mu.Unlock()
	occupied := p.occupied()
	shared := func(part train.Part) bool {
		return slices.ContainsFunc(part.Devices, func(d train.DeviceID) bool {
			on := occupied[train.NodeDevice{Node: part.Node, Device: d}]
			return on.Wholes+on.Sharers > 1
		})
	}
	var all []onGPU
	for key, a := range p.live {
		j, known := p.jobs[key]
		devices := train.AllDevices(a.Places())
		if known && a.Phase == train.PhaseRunning && len(devices) > 0 && devices[0].Kind() == train.KindGPU && !p.wishes[key].Wants(train.SettingPowerLimit) && !slices.ContainsFunc(a.Places(), shared) {
			all = append(all, onGPU{a, j.Spec})
		}
	}
	return all
}
