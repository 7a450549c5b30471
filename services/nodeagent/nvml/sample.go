//go:build cgo

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

func milliwatts(n uint32) unit.Power { return unit.Power(n) * (unit.Watt / 1000) }

// Sample reads energy, power, state and processes of a GPU.
func (l *Library) Sample(index int) (gpu.Sample, error) {
	handle, err := l.handle(index)
	if err != nil {
		return gpu.Sample{}, err
	}
	var s gpu.Sample
	// Millijoules since the driver was loaded, on Volta and later; else present milliwatts.
	if l.has("nvmlDeviceGetTotalEnergyConsumption") {
		if energy, ret := handle.GetTotalEnergyConsumption(); ok(ret) {
			s.Energy, s.HasEnergy = unit.Energy(energy)*unit.Millijoule, true
		}
	}
	if power, ret := handle.GetPowerUsage(); ok(ret) {
		s.Power, s.HasPower = milliwatts(power), true
	}
	if !s.HasEnergy && !s.HasPower {
		return gpu.Sample{}, fmt.Errorf("read GPU %d: it reports neither energy nor power", index)
	}
	s.Board = l.board(handle)
	if s.Processes, err = l.processes(handle); err != nil {
		return gpu.Sample{}, fmt.Errorf("read processes of GPU %d: %w", index, err)
	}
	return s, nil
}

// board reads what the driver reports besides energy; what it does not report is left out.
func (l *Library) board(handle nvml.Device) event.Board {
	var b event.Board
	if limit, ret := handle.GetEnforcedPowerLimit(); ok(ret) {
		b.LimitWatts = milliwatts(limit).Watts()
	}
	if use, ret := handle.GetUtilizationRates(); ok(ret) {
		ratio := min(float64(use.Gpu)/percent, 1)
		b.SMRatio = &ratio
	}
	if memory, ret := handle.GetMemoryInfo(); ok(ret) {
		b.MemoryUsed = unit.Bytes(memory.Used)
	}
	if celsius, ret := handle.GetTemperature(nvml.TEMPERATURE_GPU); ok(ret) {
		b.TemperatureC = int(celsius)
	}
	if reasons, ret := l.throttleReasons(handle); ok(ret) {
		b.Throttle = throttle(reasons)
	}
	return b
}

// throttleReasons uses the name that the function has since driver 535, else the older one.
func (l *Library) throttleReasons(handle nvml.Device) (uint64, nvml.Return) {
	if l.has("nvmlDeviceGetCurrentClocksEventReasons") {
		return handle.GetCurrentClocksEventReasons()
	}
	return handle.GetCurrentClocksThrottleReasons()
}

// throttle returns why clocks are reduced. A GPU that is idle or runs at chosen clocks is not throttled.
func throttle(reasons uint64) []string {
	var words []string
	for _, r := range []struct {
		bits uint64
		word string
	}{
		{nvml.ClocksEventReasonSwPowerCap, "power"},
		{nvml.ClocksEventReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown, "thermal"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power_brake"},
		{nvml.ClocksThrottleReasonHwSlowdown, "slowdown"},
	} {
		if reasons&r.bits != 0 {
			words = append(words, r.word)
		}
	}
	return words
}

// PowerLimits reads the limits of a GPU.
func (l *Library) PowerLimits(index int) (gpu.PowerLimits, error) {
	handle, err := l.handle(index)
	if err != nil {
		return gpu.PowerLimits{}, err
	}
	now, nowRet := handle.GetPowerManagementLimit()
	usual, usualRet := handle.GetPowerManagementDefaultLimit()
	least, most, boundsRet := handle.GetPowerManagementLimitConstraints()
	return gpu.PowerLimits{Now: milliwatts(now), Default: milliwatts(usual), Least: milliwatts(least), Most: milliwatts(most)}, errors.Join(
		failed(nowRet, "read power limit of GPU %d", index), failed(usualRet, "read default power limit of GPU %d", index),
		failed(boundsRet, "read bounds of the power limit of GPU %d", index),
	)
}

// SetPowerLimit sets what a GPU may draw. A limit out of the GPU's bounds is refused with the bounds.
func (l *Library) SetPowerLimit(index int, limit unit.Power) error {
	limits, err := l.PowerLimits(index)
	if err != nil {
		return err
	}
	if limit < limits.Least || limit > limits.Most {
		return fmt.Errorf("set power limit of GPU %d to %g W: want %g to %g W", index, limit.Watts(), limits.Least.Watts(), limits.Most.Watts())
	}
	handle, err := l.handle(index)
	if err != nil {
		return err
	}
	return failed(handle.SetPowerManagementLimit(uint32(limit/(unit.Watt/1000))), "set power limit of GPU %d", index)
}
