package nodeagent

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/powerlimit"
)

// powerLimits keeps the devices of live attempts at the limits that the planner, or the experiment of a trial, wants.
type powerLimits struct {
	controller *powerlimit.Controller
	devices    func() []gpu.Device
	live       func() []train.Attempt
	// trials returns the limit of a trial with its own limit, in watts. It takes precedence over the planner's.
	trials func(train.JobID) float64
	log    *slog.Logger

	mu     sync.Mutex
	wanted map[string]train.PowerLimit
}

// newPowerLimits returns nil if no device has limits that can be set.
func newPowerLimits(dir string, gpus gpu.Reader, devices func() []gpu.Device, live func() []train.Attempt, trials func(train.JobID) float64, log *slog.Logger) (*powerLimits, error) {
	limiter, can := gpus.(gpu.Limiter)
	if !can {
		return nil, nil
	}
	controller, err := powerlimit.Open(filepath.Join(dir, "power_limits.json"), limiter)
	if err != nil {
		return nil, err
	}
	return &powerLimits{controller: controller, devices: devices, live: live, trials: trials, log: log, wanted: map[string]train.PowerLimit{}}, nil
}

// loops returns the loops to run once the attempts are known; none if no device has limits.
func (p *powerLimits) loops(limits *bus.KV[train.PowerLimit], synced *tick.Latch) []func(context.Context) error {
	if p == nil {
		return nil
	}
	wanted := tick.NewLatch()
	return []func(context.Context) error{
		func(ctx context.Context) error { return limits.Watch(ctx, p.onLimit, wanted.Open) },
		synced.Then(wanted.Then(p.run)),
	}
}

func (p *powerLimits) onLimit(e bus.Entry[train.PowerLimit], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted {
		delete(p.wanted, e.Key)
		return
	}
	p.wanted[e.Key] = e.Value
}

// now returns the limit of each device with live attempts. If several attempts run on one device, the highest
// limit counts, and an attempt without a limit removes it.
func (p *powerLimits) now() map[train.DeviceID]unit.Power {
	p.mu.Lock()
	defer p.mu.Unlock()
	limits := map[train.DeviceID]unit.Power{}
	for _, a := range p.live() {
		watts := unit.Power(math.MaxInt64)
		if l, wanted := p.wanted[string(a.Job)]; wanted && l.Attempt == a.Number && l.Watts > 0 {
			watts = unit.Watts(l.Watts)
		}
		if w := p.trials(a.Job); w > 0 {
			watts = unit.Watts(w)
		}
		for _, d := range a.Devices {
			if d != d.Board() { // a limit applies to the whole GPU, and others have instances of it
				continue
			}
			limits[d] = max(limits[d], watts)
		}
	}
	maps.DeleteFunc(limits, func(_ train.DeviceID, watts unit.Power) bool { return watts == math.MaxInt64 })
	return limits
}

// apply sets and restores limits.
func (p *powerLimits) apply(wanted map[train.DeviceID]unit.Power) error {
	return p.controller.Apply(p.devices(), wanted)
}

// describe reports what devices draw at most without the limit of an attempt: a plan that relied on the limit would
// exceed its power budget when the attempt ends.
func (p *powerLimits) describe(devices []train.Device) {
	if p == nil {
		return
	}
	own := p.controller.Own()
	for i := range devices {
		if limit, limited := own[devices[i].UUID]; limited {
			devices[i].BusyWatts = limit.Watts()
		}
	}
}

// limitInterval is how soon a limit is set after it is wanted, or restored after its attempt has ended.
const limitInterval = time.Second

// run keeps the limits until ctx ends, and then restores all: nobody else would at the end of the jobs.
func (p *powerLimits) run(ctx context.Context) error {
	last := ""
	for range tick.Every(ctx, limitInterval) {
		text := ""
		if err := p.apply(p.now()); err != nil {
			text = err.Error()
		}
		if text != last && text != "" {
			p.log.Warn("power limits are not applied", "error", text)
		}
		last = text
	}
	if err := p.apply(nil); err != nil {
		p.log.Warn("power limits not restored; the next start does it", "error", err)
	}
	return nil
}
