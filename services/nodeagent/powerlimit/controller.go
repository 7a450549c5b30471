// Package powerlimit applies the wanted power limits to devices, and restores the previous ones. The previous limits
// are on disk before they are changed, so an agent that was killed restores them after its next start. Which limit a
// device gets is decided elsewhere.
package powerlimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Controller sets and restores limits.
type Controller struct {
	limiter gpu.Limiter
	path    string

	mu sync.Mutex
	// before are the limits to restore, by the UUID of the device, as they are on disk.
	before map[string]unit.Power
}

// Open reads the limits to restore.
func Open(path string, limiter gpu.Limiter) (*Controller, error) {
	c := &Controller{limiter: limiter, path: path, before: map[string]unit.Power{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c.before)
	}
	if err != nil {
		return nil, fmt.Errorf("read power limits to restore: %w", err)
	}
	return c, nil
}

// Own returns the limits to restore, by the UUID of the device.
func (c *Controller) Own() map[string]unit.Power {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.before)
}

// Apply sets the wanted limit of each device, within the device's bounds and never above its previous limit, and
// restores the limit of devices without a wanted one. The next call retries what fails.
func (c *Controller) Apply(devices []gpu.Device, wanted map[train.DeviceID]unit.Power) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, d := range devices {
		before, held := c.before[d.UUID]
		want := wanted[d.ID()]
		switch {
		case want > 0:
			errs = append(errs, c.limit(d, want))
		case held:
			errs = append(errs, c.restore(d, before))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) limit(d gpu.Device, want unit.Power) error {
	limits, err := c.limiter.PowerLimits(d.Index)
	if err != nil {
		return err
	}
	before, held := c.before[d.UUID]
	if !held {
		before = limits.Now
	}
	want = min(max(want, limits.Least), limits.Most, before)
	if want == limits.Now {
		return nil
	}
	if !held {
		c.before[d.UUID] = before
		if err := c.store(); err != nil {
			delete(c.before, d.UUID)
			return err
		}
	}
	return c.limiter.SetPowerLimit(d.Index, want)
}

func (c *Controller) restore(d gpu.Device, before unit.Power) error {
	limits, err := c.limiter.PowerLimits(d.Index)
	if err != nil {
		return err
	}
	if limits.Now != before {
		if err := c.limiter.SetPowerLimit(d.Index, before); err != nil {
			return err
		}
	}
	delete(c.before, d.UUID)
	return c.store()
}

// store writes the file; it is on disk when store returns.
func (c *Controller) store() error {
	data, err := json.Marshal(c.before)
	if err != nil {
		return fmt.Errorf("encode power limits: %w", err)
	}
	if err := installation.WriteFile(c.path, data); err != nil {
		return fmt.Errorf("store power limits: %w", err)
	}
	return nil
}
