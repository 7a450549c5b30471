//go:build cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Library is NVML, loaded.
type Library struct {
	api nvml.Interface
	// lastSeen is the time stamp of the newest utilisation sample of each device, by its UUID.
	lastSeen map[string]uint64
	// known are the devices that could be read at some time: one that is lost later still has a name.
	known map[int]gpu.Device
}

// Open loads the library. The error says why there are no GPUs to be seen.
func Open() (*Library, error) { return open(nvml.New()) }

func open(api nvml.Interface) (*Library, error) {
	if ret := api.Init(); !errors.Is(ret, nvml.SUCCESS) {
		return nil, fmt.Errorf("load NVML: %s", word(ret))
	}
	return &Library{api: api, lastSeen: map[string]uint64{}, known: map[int]gpu.Device{}}, nil
}

// Close gives the library back.
func (l *Library) Close() { _ = l.api.Shutdown() }

// Devices lists the GPUs. One that can no longer be read is in trouble; one that never could be is left out, as nobody knows its name.
func (l *Library) Devices() ([]gpu.Device, error) {
	count, ret := l.api.DeviceGetCount()
	if !errors.Is(ret, nvml.SUCCESS) {
		return nil, fmt.Errorf("count GPUs: %s", word(ret))
	}
	var devices []gpu.Device
	for i := range count {
		d, err := l.device(i)
		if known, before := l.known[i]; err != nil && before {
			d, d.Trouble = known, err.Error()
		} else if err != nil {
			continue
		}
		l.known[i] = d
		devices = append(devices, d)
	}
	if len(devices) == 0 && count > 0 {
		return nil, fmt.Errorf("read GPUs: none of %d answers", count)
	}
	return devices, nil
}

func (l *Library) device(index int) (gpu.Device, error) {
	handle, ret := l.api.DeviceGetHandleByIndex(index)
	if !errors.Is(ret, nvml.SUCCESS) {
		return gpu.Device{}, fmt.Errorf("open GPU %d: %s", index, word(ret))
	}
	uuid, ret := handle.GetUUID()
	if !errors.Is(ret, nvml.SUCCESS) {
		return gpu.Device{}, fmt.Errorf("read UUID of GPU %d: %s", index, word(ret))
	}
	d := gpu.Device{Index: index, UUID: uuid}
	if model, ret := handle.GetName(); errors.Is(ret, nvml.SUCCESS) {
		d.Model = model
	}
	if memory, ret := handle.GetMemoryInfo(); errors.Is(ret, nvml.SUCCESS) {
		d.Memory = unit.Bytes(memory.Total)
	}
	if minor, ret := handle.GetMinorNumber(); errors.Is(ret, nvml.SUCCESS) {
		d.Path = fmt.Sprintf("/dev/nvidia%d", minor)
	}
	d.Trouble = recovery(handle)
	return d, nil
}

// recovery is what the driver says must be done before the device can be trusted with new work, empty where nothing must. Drivers that are too old to be
// asked say nothing.
func recovery(handle nvml.Device) string {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := handle.GetFieldValues(values); !errors.Is(ret, nvml.SUCCESS) || !errors.Is(nvml.Return(values[0].NvmlReturn), nvml.SUCCESS) {
		return ""
	}
	switch action := nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:])); action {
	case nvml.GPU_RECOVERY_ACTION_NONE:
		return ""
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return "the driver wants the GPU to be reset"
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return "the driver wants the node to be rebooted"
	default:
		return fmt.Sprintf("the driver wants the GPU to be drained (recovery action %d)", action)
	}
}

// Sample reads energy, power and processes of a GPU.
func (l *Library) Sample(index int) (gpu.Sample, error) {
	handle, ret := l.api.DeviceGetHandleByIndex(index)
	if !errors.Is(ret, nvml.SUCCESS) {
		return gpu.Sample{}, fmt.Errorf("open GPU %d: %s", index, word(ret))
	}
	var s gpu.Sample
	// Millijoules since the driver was loaded, on Volta and later; else milliwatts at this moment.
	if energy, ret := handle.GetTotalEnergyConsumption(); errors.Is(ret, nvml.SUCCESS) {
		s.Energy, s.HasEnergy = unit.Energy(energy)*unit.Millijoule, true
	}
	if power, ret := handle.GetPowerUsage(); errors.Is(ret, nvml.SUCCESS) {
		s.Power, s.HasPower = unit.Power(power)*(unit.Watt/1000), true
	}
	if !s.HasEnergy && !s.HasPower {
		return gpu.Sample{}, fmt.Errorf("read GPU %d: it tells neither energy nor power", index)
	}
	utilisation, err := l.utilisation(handle)
	if err != nil {
		return gpu.Sample{}, fmt.Errorf("read processes of GPU %d: %w", index, err)
	}
	running, ret := handle.GetComputeRunningProcesses()
	if !errors.Is(ret, nvml.SUCCESS) && !errors.Is(ret, nvml.ERROR_NOT_SUPPORTED) {
		return gpu.Sample{}, fmt.Errorf("list processes of GPU %d: %s", index, word(ret))
	}
	for _, p := range running {
		if _, seen := utilisation[int(p.Pid)]; !seen {
			utilisation[int(p.Pid)] = 0
		}
	}
	for pid, u := range utilisation {
		s.Processes = append(s.Processes, gpu.Process{PID: pid, Utilisation: u})
	}
	return s, nil
}

// utilisation is the mean of each process's samples since the last call. NVML leaves out processes that did nothing, and calls it "not found", or a buffer
// that is too small for nothing, when all did nothing. Where it does not tell at all, as with MIG, the processes that run count alike.
func (l *Library) utilisation(handle nvml.Device) (map[int]float64, error) {
	uuid, ret := handle.GetUUID()
	if !errors.Is(ret, nvml.SUCCESS) {
		return nil, fmt.Errorf("read UUID: %s", word(ret))
	}
	sums, counts := map[int]float64{}, map[int]float64{}
	last := l.lastSeen[uuid]
	samples, ret := handle.GetProcessUtilization(last)
	switch {
	case errors.Is(ret, nvml.ERROR_NOT_FOUND), errors.Is(ret, nvml.ERROR_INSUFFICIENT_SIZE),
		errors.Is(ret, nvml.ERROR_NOT_SUPPORTED), errors.Is(ret, nvml.ERROR_NO_PERMISSION):
		return sums, nil
	case !errors.Is(ret, nvml.SUCCESS):
		return nil, fmt.Errorf("read utilisation: %s", word(ret))
	}
	const percent = 100
	for _, s := range samples {
		l.lastSeen[uuid] = max(l.lastSeen[uuid], s.TimeStamp)
		// The call may repeat what it told before, and a sample of no process marks an unused slot of its buffer.
		if s.TimeStamp <= last || s.Pid == 0 {
			continue
		}
		sums[int(s.Pid)] += min(float64(s.SmUtil)/percent, 1)
		counts[int(s.Pid)]++
	}
	for pid := range sums {
		sums[pid] /= counts[pid]
	}
	return sums, nil
}

// word says what NVML answered. The library's own words are not to be had where it could not be loaded.
func word(ret nvml.Return) string {
	if errors.Is(ret, nvml.ERROR_LIBRARY_NOT_FOUND) {
		return "the library libnvidia-ml.so.1 is not there"
	}
	return ret.Error()
}
