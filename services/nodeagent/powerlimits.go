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
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/powerlimit"
)

// powerLimits holds the devices of live attempts at the limits that the planner, or the experiment of a trial, wants.
type powerLimits struct {
	keeper  *powerlimit.Keeper
	devices func() []gpu.Device
	live    func() []train.Attempt
	// trials gives the limit of a trial that has one of its own, in watts. It goes before the planner's.
	trials func(train.JobID) float64
	log    *slog.Logger

	mu     sync.Mutex
	wanted map[string]train.PowerLimit
	// own are the limits that devices get back, by UUID.
	own map[string]unit.Power
}

// newPowerLimits gives nil where no device has limits that can be set.
func newPowerLimits(dir string, gpus gpu.Reader, devices func() []gpu.Device, live func() []train.Attempt, trials func(train.JobID) float64, log *slog.Logger) (*powerLimits, error) {
	limiter, can := gpus.(gpu.Limiter)
	if !can {
		return nil, nil
	}
	keeper, err := powerlimit.Open(filepath.Join(dir, "power_limits.json"), limiter)
	if err != nil {
		return nil, err
	}
	return &powerLimits{keeper: keeper, devices: devices, live: live, trials: trials, log: log, wanted: map[string]train.PowerLimit{}, own: keeper.Own()}, nil
}

// loops are what there is to do, once it is known which attempts there are; nothing where no device has limits.
func (p *powerLimits) loops(limits *bus.KV[train.PowerLimit], synced *signal) []func(context.Context) error {
	if p == nil {
		return nil
	}
	wanted := newSignal()
	return []func(context.Context) error{
		func(ctx context.Context) error { return limits.Watch(ctx, p.see, wanted.set) },
		synced.then(wanted.then(p.run)),
	}
}

func (p *powerLimits) see(e bus.Entry[train.PowerLimit], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted {
		delete(p.wanted, e.Key)
		return
	}
	p.wanted[e.Key] = e.Value
}

// now is the limit of each device on which attempts live. Of several on one device the most generous counts, and one without a limit wants its own.
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
			if d != d.Board() { // a limit is of the whole GPU, others have instances of it
				continue
			}
			limits[d] = max(limits[d], watts)
		}
	}
	maps.DeleteFunc(limits, func(_ train.DeviceID, watts unit.Power) bool { return watts == math.MaxInt64 })
	return limits
}

// apply sets and gives back limits.
func (p *powerLimits) apply(wanted map[train.DeviceID]unit.Power) error {
	err := p.keeper.Apply(p.devices(), wanted)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = p.keeper.Own()
	return err
}

// describe tells of devices what they draw at most without the limit of an attempt: a plan that counted on it would exceed its power budget when the attempt ends.
func (p *powerLimits) describe(devices []train.Device) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range devices {
		if own, limited := p.own[devices[i].UUID]; limited {
			devices[i].BusyWatts = own.Watts()
		}
	}
}

// limitEvery is how soon a limit is set after it is wanted, or given back after its attempt has ended.
const limitEvery = time.Second

// run holds the limits until ctx ends, and then gives all back: nobody would at the end of the jobs.
func (p *powerLimits) run(ctx context.Context) error {
	ticker := time.NewTicker(limitEvery)
	defer ticker.Stop()
	trouble := ""
	for {
		said := ""
		if err := p.apply(p.now()); err != nil {
			said = err.Error()
		}
		if said != trouble && said != "" {
			p.log.Warn("power limits are not as they are wanted", "error", said)
		}
		trouble = said
		select {
		case <-ctx.Done():
			if err := p.apply(nil); err != nil {
				p.log.Warn("power limits not given back, the next start does", "error", err)
			}
			return nil
		case <-ticker.C:
		}
	}
}
