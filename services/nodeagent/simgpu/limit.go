package simgpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// The power limits of a simulated GPU.
const (
	leastLimit = 100 * unit.Watt
	usualLimit = 300 * unit.Watt
)

// PowerLimits returns the limits of a GPU. The present one is in the file Limits, as a real one is in the driver: it
// outlives the agent.
func (r Reader) PowerLimits(index int) (gpu.PowerLimits, error) {
	set, err := r.limits()
	if err != nil {
		return gpu.PowerLimits{}, err
	}
	now, found := set[uuid(r.Node, index)]
	if !found {
		now = usualLimit
	}
	return gpu.PowerLimits{Now: now, Default: usualLimit, Least: leastLimit, Most: usualLimit}, nil
}

// SetPowerLimit changes the file.
func (r Reader) SetPowerLimit(index int, limit unit.Power) error {
	if limit < leastLimit || limit > usualLimit {
		return fmt.Errorf("set power limit of simulated GPU %d to %g W: want %g to %g W", index, limit.Watts(), leastLimit.Watts(), usualLimit.Watts())
	}
	set, err := r.limits()
	if err != nil {
		return err
	}
	set[uuid(r.Node, index)] = limit
	data, err := json.Marshal(set)
	if err == nil {
		err = installation.WriteFile(r.Limits, data)
	}
	if err != nil {
		return fmt.Errorf("set power limit of simulated GPU %d: %w", index, err)
	}
	return nil
}

func (r Reader) limits() (map[string]unit.Power, error) {
	set := map[string]unit.Power{}
	data, err := os.ReadFile(r.Limits)
	if errors.Is(err, fs.ErrNotExist) {
		return set, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &set)
	}
	if err != nil {
		return nil, fmt.Errorf("read power limits of simulated GPUs: %w", err)
	}
	return set, nil
}
