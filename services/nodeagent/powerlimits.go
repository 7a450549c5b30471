package nodeagent

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/powerlimit"
)

// powerLimits holds the devices of live attempts at the limits that the planner wants.
type powerLimits struct {
	keeper  *powerlimit.Keeper
	devices func() []gpu.Device
	live    func() []train.Attempt
	log     *slog.Logger

	mu     sync.Mutex
	wanted map[string]train.PowerLimit
}

// newPowerLimits gives nil where no device has limits that can be set.
func newPowerLimits(dir string, gpus gpu.Reader, devices func() []gpu.Device, live func() []train.Attempt, log *slog.Logger) (*powerLimits, error) {
	limiter, can := gpus.(gpu.Limiter)
	if !can {
		return nil, nil
	}
	keeper, err := powerlimit.Open(filepath.Join(dir, "power_limits.json"), limiter)
	if err != nil {
		return nil, err
	}
	return &powerLimits{keeper: keeper, devices: devices, live: live, log: log, wanted: map[string]train.PowerLimit{}}, nil
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

// now is the limit of each device whose attempt lives.
func (p *powerLimits) now() map[train.DeviceID]unit.Power {
	p.mu.Lock()
	defer p.mu.Unlock()
	limits := map[train.DeviceID]unit.Power{}
	for _, a := range p.live() {
		l, wanted := p.wanted[string(a.Job)]
		if !wanted || l.Attempt != a.Number {
			continue
		}
		for _, d := range a.Devices {
			limits[d] = unit.Watts(l.Watts)
		}
	}
	return limits
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
		if err := p.keeper.Apply(p.devices(), p.now()); err != nil {
			said = err.Error()
		}
		if said != trouble && said != "" {
			p.log.Warn("power limits are not as the planner wants them", "error", said)
		}
		trouble = said
		select {
		case <-ctx.Done():
			if err := p.keeper.Apply(p.devices(), nil); err != nil {
				p.log.Warn("power limits not given back, the next start does", "error", err)
			}
			return nil
		case <-ticker.C:
		}
	}
}
