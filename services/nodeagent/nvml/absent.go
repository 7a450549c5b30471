//go:build !cgo

package nvml

import (
	"errors"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Library replaces NVML in a build that cannot load it.
type Library struct{}

// Open fails.
func Open() (*Library, error) { return nil, errors.New("load NVML: built without cgo") }

// Close does nothing.
func (l *Library) Close() {}

// Devices lists none.
func (l *Library) Devices() ([]gpu.Device, error) { return nil, nil }

// Sample fails.
func (l *Library) Sample(int) (gpu.Sample, error) {
	return gpu.Sample{}, errors.New("built without cgo")
}

// PowerLimits fails.
func (l *Library) PowerLimits(int) (gpu.PowerLimits, error) {
	return gpu.PowerLimits{}, errors.New("built without cgo")
}

// SetPowerLimit fails.
func (l *Library) SetPowerLimit(int, unit.Power) error { return errors.New("built without cgo") }
