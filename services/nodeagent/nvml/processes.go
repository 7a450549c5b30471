//go:build cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

const (
	percent = 100
	// longestSample is the longest time that a sample of utilisation stands for: the driver takes one every sixth of
	// a second to every second.
	longestSample = time.Second
)

// processes returns the processes with a context on a GPU or on a part of it, and those that worked since the last
// call.
func (l *Library) processes(handle nvml.Device) ([]gpu.Process, error) {
	found := map[int]gpu.Process{}
	if err := l.sampled(handle, found); err != nil {
		return nil, err
	}
	parts, err := l.partitions(handle)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		parts = []partition{{handle: handle}}
	}
	for _, part := range parts {
		running, ret := part.handle.GetComputeRunningProcesses()
		if l.has("nvmlDeviceGetMPSComputeRunningProcesses_v3") {
			if clients, ret := part.handle.GetMPSComputeRunningProcesses(); ok(ret) {
				running = append(running, clients...)
			}
		}
		if !ok(ret) && !unsupported(ret) {
			return nil, fmt.Errorf("list processes: %s", word(ret))
		}
		for _, p := range running {
			process := found[int(p.Pid)]
			process.PID, process.Context, process.Memory = int(p.Pid), true, memoryOf(p)
			process.Slice, process.SliceSize = part.id, part.size
			found[process.PID] = process
		}
	}
	all := make([]gpu.Process, 0, len(found))
	for _, p := range found {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b gpu.Process) int { return cmp.Compare(a.PID, b.PID) })
	return all, nil
}

// memoryOf returns the memory of a process. The driver returns all ones if it does not know, as under Windows'
// display model and in some containers.
func memoryOf(p nvml.ProcessInfo) unit.Bytes {
	if p.UsedGpuMemory > 1<<62 {
		return 0
	}
	return unit.Bytes(p.UsedGpuMemory)
}

// partition is a part of a GPU in MIG mode. Its id begins at 1, its size is in the GPU's slices.
type partition struct {
	handle   nvml.Device
	id, size int
}

// partitions lists the parts of a GPU; nil if it is whole. In MIG mode there is no utilisation by process and no
// energy by part.
func (l *Library) partitions(handle nvml.Device) ([]partition, error) {
	if !l.has("nvmlDeviceGetMigMode") {
		return nil, nil // a driver from before MIG
	}
	mode, _, ret := handle.GetMigMode()
	if !ok(ret) || mode != nvml.DEVICE_MIG_ENABLE {
		return nil, nil
	}
	most, ret := handle.GetMaxMigDeviceCount()
	if err := failed(ret, "count MIG instances"); err != nil {
		return nil, err
	}
	parts := []partition{}
	for i := range most {
		part, ret := handle.GetMigDeviceHandleByIndex(i)
		if !ok(ret) {
			continue // that position is free
		}
		p := partition{handle: part, id: i + 1, size: 1}
		if attributes, ret := part.GetAttributes(); ok(ret) {
			p.size = max(int(attributes.GpuInstanceSliceCount), 1)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// sampledUntil is when utilisation was read, by the wall clock and the monotonic clock, and the driver's time
// stamp of the newest sample at that time.
type sampledUntil struct {
	read   time.Time
	uptime time.Duration
	newest uint64
}

// at corrects the stamp after the wall clock was set back, as the driver's stamps are corrected: else no sample would
// be new until the clock has caught up.
func (u sampledUntil) at(now time.Time, uptime time.Duration) sampledUntil {
	if back := (uptime - u.uptime) - now.Sub(u.read); !u.read.IsZero() && back > leastStep {
		u.newest -= min(u.newest, uint64(back.Microseconds()))
	}
	return u
}

// leastStep is how far a clock must have been set back for it not to count as slewed.
const leastStep = 100 * time.Millisecond

// sampled adds what each process worked since the last call: the sum of its samples, each times the time that it
// stands for, over the whole time. NVML leaves out idle processes; if all are idle it returns "not found", or an
// insufficient buffer size. If it does not report utilisation, as with MIG, nothing is added.
func (l *Library) sampled(handle nvml.Device, found map[int]gpu.Process) error {
	uuid, ret := handle.GetUUID()
	if err := failed(ret, "read UUID"); err != nil {
		return err
	}
	if !l.has("nvmlDeviceGetProcessUtilization") {
		return nil
	}
	now, uptime := l.now().Round(0), l.uptime()
	before := l.sampledUntil[uuid].at(now, uptime)
	l.sampledUntil[uuid] = sampledUntil{now, uptime, before.newest}
	samples, ret := handle.GetProcessUtilization(before.newest)
	switch {
	case unsupported(ret), errors.Is(ret, nvml.ERROR_INSUFFICIENT_SIZE):
		return nil
	case !ok(ret):
		return fmt.Errorf("read utilisation: %s", word(ret))
	}
	// The call may repeat earlier samples, even with stamps in the future since the clock was set back; a sample
	// without a process marks an unused slot of its buffer.
	ahead := uint64(now.Add(longestSample).UnixMicro())
	samples = slices.DeleteFunc(samples, func(s nvml.ProcessUtilizationSample) bool {
		return s.TimeStamp <= before.newest || s.TimeStamp > ahead || s.Pid == 0
	})
	if len(samples) == 0 {
		return nil
	}
	slices.SortFunc(samples, func(a, b nvml.ProcessUtilizationSample) int { return cmp.Compare(a.TimeStamp, b.TimeStamp) })
	l.sampledUntil[uuid] = sampledUntil{now, uptime, samples[len(samples)-1].TimeStamp}

	total, begin, at := 0.0, before.newest, uint64(0)
	work := map[int]float64{}
	for _, s := range samples {
		if s.TimeStamp != at { // the samples of all processes are taken together
			if at != 0 {
				begin = at
			}
			at = s.TimeStamp
			total += spanOf(begin, at)
		}
		p := found[int(s.Pid)]
		p.PID, p.LastWork = int(s.Pid), time.UnixMicro(int64(s.TimeStamp))
		work[p.PID] += min(float64(s.SmUtil)/percent, 1) * spanOf(begin, at)
		found[p.PID] = p
	}
	if !before.read.IsZero() { // time without samples is time without work
		total = max(total, (uptime - before.uptime).Seconds())
	}
	for pid, w := range work {
		p := found[pid]
		p.Utilisation = min(w/total, 1)
		found[pid] = p
	}
	return nil
}

// spanOf returns the time in seconds that a sample stands for: since the previous one, both in microseconds.
func spanOf(before, at uint64) float64 {
	return min(time.Duration(at-before)*time.Microsecond, longestSample).Seconds()
}
