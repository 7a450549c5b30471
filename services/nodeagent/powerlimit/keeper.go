// Package powerlimit holds devices at the power limits that are desired, and gives back those that were there before. What was there is on disk before it is
// changed, so an agent that was killed gives it back when it has started again. Which limit a device shall have is decided elsewhere.
package powerlimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Keeper sets and gives back limits. It is used by one goroutine at a time.
type Keeper struct {
	limiter gpu.Limiter
	path    string
	// before are the limits to give back, by the UUID of the device, as they are on disk.
	before map[string]unit.Power
}

// Open reads what is to be given back.
func Open(path string, limiter gpu.Limiter) (*Keeper, error) {
	k := &Keeper{limiter: limiter, path: path, before: map[string]unit.Power{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &k.before)
	}
	if err != nil {
		return nil, fmt.Errorf("read power limits to give back: %w", err)
	}
	return k, nil
}

// Own are the limits to give back, by the UUID of the device.
func (k *Keeper) Own() map[string]unit.Power { return maps.Clone(k.before) }

// Apply gives each device the limit that is wanted for it, within what it takes and never above what was there before, and those without one their own limit
// back. What cannot be done is tried again with the next call.
func (k *Keeper) Apply(devices []gpu.Device, wanted map[train.DeviceID]unit.Power) error {
	var errs []error
	for _, d := range devices {
		before, held := k.before[d.UUID]
		want := wanted[d.ID()]
		switch {
		case want > 0:
			errs = append(errs, k.limit(d, want))
		case held:
			errs = append(errs, k.giveBack(d, before))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) limit(d gpu.Device, want unit.Power) error {
	limits, err := k.limiter.PowerLimits(d.Index)
	if err != nil {
		return err
	}
	before, held := k.before[d.UUID]
	if !held {
		before = limits.Now
	}
	want = min(max(want, limits.Least), limits.Most, before)
	if want == limits.Now {
		return nil
	}
	if !held {
		k.before[d.UUID] = before
		if err := k.store(); err != nil {
			delete(k.before, d.UUID)
			return err
		}
	}
	return k.limiter.SetPowerLimit(d.Index, want)
}

func (k *Keeper) giveBack(d gpu.Device, before unit.Power) error {
	limits, err := k.limiter.PowerLimits(d.Index)
	if err != nil {
		return err
	}
	if limits.Now != before {
		if err := k.limiter.SetPowerLimit(d.Index, before); err != nil {
			return err
		}
	}
	delete(k.before, d.UUID)
	return k.store()
}

// store replaces what is on disk in one step, and is on disk when it returns.
func (k *Keeper) store() error {
	data, err := json.Marshal(k.before)
	if err != nil {
		return fmt.Errorf("encode power limits: %w", err)
	}
	fresh, err := os.Create(k.path + ".new")
	if err != nil {
		return fmt.Errorf("note power limits: %w", err)
	}
	_, err = fresh.Write(data)
	err = errors.Join(err, fresh.Sync(), fresh.Close())
	if err == nil {
		err = os.Rename(fresh.Name(), k.path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(k.path))
	}
	if err != nil {
		return fmt.Errorf("note power limits: %w", err)
	}
	return nil
}

// syncFolder makes what was renamed in a folder outlive the machine.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
