//go:build cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Library is the loaded NVML.
type Library struct {
	api nvml.Interface
	// sampledUntil is, for each device by its UUID, until when its utilisation was read.
	sampledUntil map[string]sampledUntil
	// now is the wall clock, with which the driver stamps its samples; uptime is a clock that is never set.
	now    func() time.Time
	uptime func() time.Duration
	// symbols says which functions this driver has, of those that not every driver has: calling a missing one ends
	// the process.
	symbols map[string]bool
	// known are the devices that could be read at some time: a device that is lost later still has a name.
	known map[int][]gpu.Device
}

// Open loads the library. The error says why there are no GPUs.
func Open() (*Library, error) { return open(nvml.New()) }

func open(api nvml.Interface) (*Library, error) {
	if ret := api.Init(); !ok(ret) {
		return nil, fmt.Errorf("load NVML: %s", word(ret))
	}
	began := time.Now()
	return &Library{api: api, sampledUntil: map[string]sampledUntil{}, now: time.Now, uptime: func() time.Duration { return time.Since(began) }, symbols: map[string]bool{}, known: map[int][]gpu.Device{}}, nil
}

// Close unloads the library.
func (l *Library) Close() { _ = l.api.Shutdown() }

// Devices lists the GPUs, and partitioned ones (MIG) by their instances. A GPU that can no longer be read counts as
// failing. A GPU that could never be read is left out, because its name is unknown.
func (l *Library) Devices() ([]gpu.Device, error) {
	count, ret := l.api.DeviceGetCount()
	if err := failed(ret, "count GPUs"); err != nil {
		return nil, err
	}
	var devices []gpu.Device
	answered := false
	for i := range count {
		found, err := l.offered(i)
		if err != nil {
			found = slices.Clone(l.known[i])
			for k := range found {
				found[k].Trouble = err.Error()
			}
		}
		answered = answered || err == nil || len(found) > 0
		l.known[i] = found
		devices = append(devices, found...)
	}
	if !answered && count > 0 {
		return nil, fmt.Errorf("read GPUs: none of %d answers", count)
	}
	return devices, nil
}

// offered returns a GPU, or its instances if it is partitioned.
func (l *Library) offered(index int) ([]gpu.Device, error) {
	handle, err := l.handle(index)
	if err != nil {
		return nil, err
	}
	d, err := l.device(index, handle)
	if err != nil {
		return nil, err
	}
	parts, err := l.partitions(handle)
	if err != nil {
		return nil, fmt.Errorf("read GPU %d: %w", index, err)
	}
	if parts == nil {
		return []gpu.Device{d}, nil
	}
	instances := make([]gpu.Device, 0, len(parts))
	for _, p := range parts {
		one, err := l.instance(d, p)
		if err != nil {
			return nil, err
		}
		instances = append(instances, one)
	}
	return instances, nil
}

// instance returns a part of a GPU as its own device. Its power is taken as its share of the GPU's limit. The
// driver's container runtime handles its device nodes.
func (l *Library) instance(of gpu.Device, p partition) (gpu.Device, error) {
	uuid, ret := p.handle.GetUUID()
	if err := failed(ret, "read UUID of instance %d of GPU %d", p.id-1, of.Index); err != nil {
		return gpu.Device{}, err
	}
	one := gpu.Device{
		Index: of.Index, Instance: p.id, UUID: uuid, Model: of.Model, Driver: of.Driver, PowerLimit: of.PowerLimit * unit.Power(p.size) / gpu.MostSlices, Trouble: of.Trouble,
	}
	if model, ret := p.handle.GetName(); ok(ret) {
		one.Model = model
	}
	if memory, ret := p.handle.GetMemoryInfo(); ok(ret) {
		one.Memory = unit.Bytes(memory.Total)
	}
	return one, nil
}

func (l *Library) device(index int, handle nvml.Device) (gpu.Device, error) {
	uuid, ret := handle.GetUUID()
	if err := failed(ret, "read UUID of GPU %d", index); err != nil {
		return gpu.Device{}, err
	}
	d := gpu.Device{Index: index, UUID: uuid}
	if model, ret := handle.GetName(); ok(ret) {
		d.Model = model
	}
	if driver, ret := l.api.SystemGetDriverVersion(); ok(ret) {
		d.Driver = driver
	}
	if memory, ret := handle.GetMemoryInfo(); ok(ret) {
		d.Memory = unit.Bytes(memory.Total)
	}
	if limit, ret := handle.GetEnforcedPowerLimit(); ok(ret) {
		d.PowerLimit = milliwatts(limit)
	}
	if minor, ret := handle.GetMinorNumber(); ok(ret) {
		d.Path = fmt.Sprintf("/dev/nvidia%d", minor)
	}
	d.Trouble = recovery(handle)
	return d, nil
}

// recovery returns what has to be done before the device can be trusted with new work, according to the driver; empty
// if nothing. Old drivers report nothing.
func recovery(handle nvml.Device) string {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := handle.GetFieldValues(values); !ok(ret) || !ok(nvml.Return(values[0].NvmlReturn)) {
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

// handle returns the handle of a GPU.
func (l *Library) handle(index int) (nvml.Device, error) {
	handle, ret := l.api.DeviceGetHandleByIndex(index)
	return handle, failed(ret, "open GPU %d", index)
}

// ok reports whether NVML did what it was asked for.
func ok(ret nvml.Return) bool { return errors.Is(ret, nvml.SUCCESS) }

// failed returns nil if NVML did what it was asked for, else what could not be done and why.
func failed(ret nvml.Return, format string, args ...any) error {
	if ok(ret) {
		return nil
	}
	return fmt.Errorf("%s: %s", fmt.Sprintf(format, args...), word(ret))
}

// word describes an answer of NVML. The library's own descriptions are missing if it could not be loaded.
func word(ret nvml.Return) string {
	if errors.Is(ret, nvml.ERROR_LIBRARY_NOT_FOUND) {
		return "the library libnvidia-ml.so.1 is missing"
	}
	return ret.Error()
}

// has reports whether the driver has a function.
func (l *Library) has(symbol string) bool {
	known, asked := l.symbols[symbol]
	if !asked {
		known = l.api.Extensions().LookupSymbol(symbol) == nil
		l.symbols[symbol] = known
	}
	return known
}

// unsupported reports whether an answer only means that this device or driver does not support the query.
func unsupported(ret nvml.Return) bool {
	for _, answer := range []nvml.Return{
		nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_PERMISSION, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NO_DATA,
	} {
		if errors.Is(ret, answer) {
			return true
		}
	}
	return false
}
