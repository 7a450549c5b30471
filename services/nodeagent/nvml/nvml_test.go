//go:build cgo

package nvml

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// card is a GPU that answers correctly; tests break single answers.
func card() *mock.Device {
	return &mock.Device{
		GetUUIDFunc:                    func() (string, api.Return) { return "GPU-1", api.SUCCESS },
		GetNameFunc:                    func() (string, api.Return) { return "NVIDIA T4", api.SUCCESS },
		GetMemoryInfoFunc:              func() (api.Memory, api.Return) { return api.Memory{Total: 16 << 30}, api.SUCCESS },
		GetMinorNumberFunc:             func() (int, api.Return) { return 4, api.SUCCESS },
		GetFieldValuesFunc:             func([]api.FieldValue) api.Return { return api.ERROR_NOT_SUPPORTED },
		GetTotalEnergyConsumptionFunc:  func() (uint64, api.Return) { return 5_000, api.SUCCESS },
		GetPowerUsageFunc:              func() (uint32, api.Return) { return 70_500, api.SUCCESS },
		GetEnforcedPowerLimitFunc:      func() (uint32, api.Return) { return 72_500, api.SUCCESS },
		GetComputeRunningProcessesFunc: func() ([]api.ProcessInfo, api.Return) { return nil, api.SUCCESS },
		GetProcessUtilizationFunc: func(uint64) ([]api.ProcessUtilizationSample, api.Return) {
			return nil, api.ERROR_NOT_FOUND
		},
		GetUtilizationRatesFunc:                func() (api.Utilization, api.Return) { return api.Utilization{Gpu: 25}, api.SUCCESS },
		GetTemperatureFunc:                     func(api.TemperatureSensors) (uint32, api.Return) { return 41, api.SUCCESS },
		GetMigModeFunc:                         func() (int, int, api.Return) { return 0, 0, api.ERROR_NOT_SUPPORTED },
		GetMPSComputeRunningProcessesFunc:      func() ([]api.ProcessInfo, api.Return) { return nil, api.ERROR_NOT_SUPPORTED },
		GetCurrentClocksEventReasonsFunc:       func() (uint64, api.Return) { return api.ClocksEventReasonSwPowerCap, api.SUCCESS },
		GetPowerManagementLimitFunc:            func() (uint32, api.Return) { return 70_000, api.SUCCESS },
		GetPowerManagementDefaultLimitFunc:     func() (uint32, api.Return) { return 72_000, api.SUCCESS },
		GetPowerManagementLimitConstraintsFunc: func() (uint32, uint32, api.Return) { return 40_000, 75_000, api.SUCCESS },
	}
}

func library(t *testing.T, cards ...*mock.Device) *Library {
	t.Helper()
	return driver(t, nil, cards...)
}

// driver is the library of a driver that lacks some functions.
func driver(t *testing.T, lacks []string, cards ...*mock.Device) *Library {
	t.Helper()
	symbols := &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
		if slices.Contains(lacks, name) {
			return errors.New("undefined symbol")
		}
		return nil
	}}
	l, err := open(&mock.Interface{
		ExtensionsFunc:             func() api.ExtendedInterface { return symbols },
		InitFunc:                   func() api.Return { return api.SUCCESS },
		ShutdownFunc:               func() api.Return { return api.SUCCESS },
		SystemGetDriverVersionFunc: func() (string, api.Return) { return "580.1", api.SUCCESS },
		DeviceGetCountFunc:         func() (int, api.Return) { return len(cards), api.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (api.Device, api.Return) {
			if i >= len(cards) {
				return nil, api.ERROR_INVALID_ARGUMENT
			}
			return cards[i], api.SUCCESS
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func sample(t *testing.T, l *Library) gpu.Sample {
	t.Helper()
	s, err := l.Sample(0)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(s.Processes, func(a, b gpu.Process) int { return cmp.Compare(a.PID, b.PID) })
	return s
}

func TestDevices(t *testing.T) {
	lost := card()
	lost.GetUUIDFunc = func() (string, api.Return) { return "", api.ERROR_GPU_IS_LOST }
	got, err := library(t, lost, card()).Devices()
	want := []gpu.Device{{Index: 1, UUID: "GPU-1", Model: "NVIDIA T4", Driver: "580.1", Memory: 16 * unit.GiB, PowerLimit: unit.Watts(72.5), Path: "/dev/nvidia4"}}
	if diff := gocmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	if got, err := library(t, lost).Devices(); err == nil {
		t.Errorf("%v: want an error where no GPU answers", got)
	}
	if got, err := library(t).Devices(); err != nil || len(got) != 0 {
		t.Errorf("%v, error %v of a machine without GPUs", got, err)
	}
}

func TestHealthGoesDownAndUp(t *testing.T) {
	c := card()
	l := library(t, c)
	for _, step := range []struct {
		name    string
		uuid    api.Return
		action  api.DeviceGpuRecoveryAction
		trouble string
	}{
		{"well", api.SUCCESS, api.GPU_RECOVERY_ACTION_NONE, ""},
		{"off the bus", api.ERROR_GPU_IS_LOST, api.GPU_RECOVERY_ACTION_NONE, "read UUID of GPU 0"},
		{"back", api.SUCCESS, api.GPU_RECOVERY_ACTION_NONE, ""},
		{"an error that a reset would cure", api.SUCCESS, api.GPU_RECOVERY_ACTION_GPU_RESET, "to be reset"},
		{"worse", api.SUCCESS, api.GPU_RECOVERY_ACTION_NODE_REBOOT, "to be rebooted"},
		{"to be left", api.SUCCESS, 4, "to be drained"},
		{"cured", api.SUCCESS, api.GPU_RECOVERY_ACTION_NONE, ""},
	} {
		c.GetUUIDFunc = func() (string, api.Return) { return "GPU-1", step.uuid }
		c.GetFieldValuesFunc = func(values []api.FieldValue) api.Return {
			binary.NativeEndian.PutUint32(values[0].Value[:], uint32(step.action))
			return api.SUCCESS
		}
		got, err := l.Devices()
		if err != nil || len(got) != 1 || got[0].UUID != "GPU-1" {
			t.Fatalf("%s: %+v, error %v", step.name, got, err)
		}
		if trouble := got[0].Trouble; (trouble == "") != (step.trouble == "") || !strings.Contains(trouble, step.trouble) {
			t.Errorf("%s: trouble %q, want %q", step.name, trouble, step.trouble)
		}
	}
}

func TestSampleInUnits(t *testing.T) {
	got := sample(t, library(t, card()))
	quarter := 0.25
	want := gpu.Sample{
		Energy: 5 * unit.Joule, HasEnergy: true, Power: 70*unit.Watt + unit.Watt/2, HasPower: true, Processes: []gpu.Process{},
		Board: event.Board{LimitWatts: 72.5, SMRatio: &quarter, TemperatureC: 41, Throttle: []string{"power"}},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAGPUWithoutACounter(t *testing.T) {
	c := card()
	c.GetTotalEnergyConsumptionFunc = func() (uint64, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	if got := sample(t, library(t, c)); got.HasEnergy || !got.HasPower {
		t.Errorf("%+v", got)
	}
	c.GetPowerUsageFunc = func() (uint32, api.Return) { return 0, api.ERROR_NOT_SUPPORTED }
	if _, err := library(t, c).Sample(0); err == nil {
		t.Error("want an error for a GPU that reports nothing")
	}
}

// stamp is a driver's time stamp, in microseconds.
func stamp(d time.Duration) uint64 { return uint64(d.Microseconds()) }

func worked(pid uint32, at time.Duration, smUtil uint32) api.ProcessUtilizationSample {
	return api.ProcessUtilizationSample{Pid: pid, TimeStamp: stamp(at), SmUtil: smUtil}
}

func TestProcesses(t *testing.T) {
	const s = time.Second
	c := card()
	c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) {
		return []api.ProcessInfo{{Pid: 11, UsedGpuMemory: 1 << 30}, {Pid: 12, UsedGpuMemory: 1<<64 - 1}}, api.SUCCESS
	}
	var asked []uint64
	samples := []api.ProcessUtilizationSample{worked(11, 10*s, 50)}
	c.GetProcessUtilizationFunc = func(since uint64) ([]api.ProcessUtilizationSample, api.Return) {
		asked = append(asked, since)
		return samples, api.SUCCESS
	}
	l := library(t, c)
	var now time.Duration
	l.now = func() time.Time { return time.UnixMicro(int64(stamp(now))) }
	l.uptime = func() time.Duration { return now }
	now = 10 * s
	sample(t, l)
	now = 11 * s
	// Two samples of unequal times, out of order; a process that has left; one above 100 %; an unused slot; an
	// earlier sample.
	samples = []api.ProcessUtilizationSample{
		worked(11, 11*s, 40), worked(11, 10*s+s/2, 60), worked(13, 11*s, 10), worked(0, 900*s, 5), worked(12, 10*s+s/2, 255), worked(11, 10*s, 50),
	}
	at := func(d time.Duration) time.Time { return time.UnixMicro(int64(stamp(d))) }
	want := []gpu.Process{
		{PID: 11, Utilisation: 0.5, LastWork: at(11 * s), Context: true, Memory: unit.GiB},
		{PID: 12, Utilisation: 0.5, LastWork: at(10*s + s/2), Context: true},
		{PID: 13, Utilisation: 0.05, LastWork: at(11 * s)},
	}
	if diff := gocmp.Diff(want, sample(t, l).Processes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	now = 14 * s
	// Repeated samples are not counted again.
	want = []gpu.Process{{PID: 11, Context: true, Memory: unit.GiB}, {PID: 12, Context: true}}
	if diff := gocmp.Diff(want, sample(t, l).Processes); diff != "" {
		t.Errorf("third reading (-want +got)\n%s", diff)
	}
	// After a rest, the time since the last reading counts, not that since the last work.
	now, samples = 15*s, []api.ProcessUtilizationSample{worked(11, 15*s, 100)}
	if got := sample(t, l).Processes[0]; got.Utilisation != 1 {
		t.Errorf("%+v: want a second's work in one", got)
	}
	// A sample stands for at most a second.
	now, samples = 19*s, []api.ProcessUtilizationSample{worked(11, 19*s, 100)}
	if got := sample(t, l).Processes[0]; got.Utilisation != 0.25 {
		t.Errorf("%+v: want a second's work in four", got)
	}
	if want := []uint64{0, stamp(10 * s), stamp(11 * s), stamp(11 * s), stamp(15 * s)}; !slices.Equal(asked, want) {
		t.Errorf("asked since %v, want %v", asked, want)
	}
}

// TestWorkCountsAfterTheClockWasSetBack sets a clock back by a minute while a process works on.
func TestWorkCountsAfterTheClockWasSetBack(t *testing.T) {
	const s = time.Second
	c := card()
	c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) { return []api.ProcessInfo{{Pid: 11}}, api.SUCCESS }
	var samples []api.ProcessUtilizationSample
	c.GetProcessUtilizationFunc = func(uint64) ([]api.ProcessUtilizationSample, api.Return) { return samples, api.SUCCESS }
	l := library(t, c)
	var shown, uptime time.Duration
	l.now, l.uptime = func() time.Time { return time.UnixMicro(int64(stamp(shown))) }, func() time.Duration { return uptime }
	for _, at := range []struct{ wall, uptime time.Duration }{{100 * s, 5 * s}, {101 * s, 6 * s}, {42 * s, 7 * s}, {43 * s, 8 * s}} {
		shown, uptime = at.wall, at.uptime
		samples = append(samples, worked(11, shown, 50))
		if got := sample(t, l).Processes[0].Utilisation; got != 0.5 {
			t.Errorf("at %s by a clock that shows %s: utilisation %g, want 0.5", uptime, shown, got)
		}
	}
}

func TestOldDrivers(t *testing.T) {
	c := card()
	c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) { return []api.ProcessInfo{{Pid: 11}}, api.SUCCESS }
	c.GetCurrentClocksThrottleReasonsFunc = func() (uint64, api.Return) { return api.ClocksThrottleReasonHwThermalSlowdown, api.SUCCESS }
	// Missing functions are not called: the mock would panic, and a real driver would end the process.
	c.GetTotalEnergyConsumptionFunc, c.GetProcessUtilizationFunc, c.GetMigModeFunc, c.GetMPSComputeRunningProcessesFunc = nil, nil, nil, nil
	c.GetCurrentClocksEventReasonsFunc = nil
	got := sample(t, driver(t, []string{
		"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetMigMode", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
		"nvmlDeviceGetCurrentClocksEventReasons",
	}, c))
	if got.HasEnergy || !got.HasPower || !slices.Equal(got.Board.Throttle, []string{"thermal"}) {
		t.Errorf("%+v", got)
	}
	if diff := gocmp.Diff([]gpu.Process{{PID: 11, Context: true}}, got.Processes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPartitionedGPU(t *testing.T) {
	part := func(slices uint32, pids ...uint32) *mock.Device {
		return &mock.Device{
			GetAttributesFunc: func() (api.DeviceAttributes, api.Return) {
				return api.DeviceAttributes{GpuInstanceSliceCount: slices}, api.SUCCESS
			},
			GetComputeRunningProcessesFunc: func() (running []api.ProcessInfo, ret api.Return) {
				for _, pid := range pids {
					running = append(running, api.ProcessInfo{Pid: pid, UsedGpuMemory: 1 << 20})
				}
				return running, api.SUCCESS
			},
			GetMPSComputeRunningProcessesFunc: func() ([]api.ProcessInfo, api.Return) { return nil, api.ERROR_NOT_SUPPORTED },
		}
	}
	parts := map[int]*mock.Device{0: part(3, 11, 12), 2: part(4, 13)}
	c := card()
	c.GetMigModeFunc = func() (int, int, api.Return) { return api.DEVICE_MIG_ENABLE, api.DEVICE_MIG_ENABLE, api.SUCCESS }
	c.GetMaxMigDeviceCountFunc = func() (int, api.Return) { return 7, api.SUCCESS }
	c.GetMigDeviceHandleByIndexFunc = func(i int) (api.Device, api.Return) {
		if parts[i] == nil {
			return nil, api.ERROR_NOT_FOUND
		}
		return parts[i], api.SUCCESS
	}
	c.GetProcessUtilizationFunc = func(uint64) ([]api.ProcessUtilizationSample, api.Return) { return nil, api.ERROR_NOT_SUPPORTED }
	got := sample(t, library(t, c))
	want := []gpu.Process{
		{PID: 11, Context: true, Memory: unit.MiB, Slice: 1, SliceSize: 3},
		{PID: 12, Context: true, Memory: unit.MiB, Slice: 1, SliceSize: 3},
		{PID: 13, Context: true, Memory: unit.MiB, Slice: 3, SliceSize: 4},
	}
	if diff := gocmp.Diff(want, got.Processes); diff != "" || !got.HasEnergy {
		t.Errorf("energy %v, (-want +got)\n%s", got.HasEnergy, diff)
	}
}

// TestInstancesAreDevices: a GPU in MIG mode is offered by its instances, each with its own name and memory.
func TestInstancesAreDevices(t *testing.T) {
	part := func(uuid string, slices uint32, gib uint64) *mock.Device {
		return &mock.Device{
			GetUUIDFunc:       func() (string, api.Return) { return uuid, api.SUCCESS },
			GetNameFunc:       func() (string, api.Return) { return "A100 MIG", api.SUCCESS },
			GetMemoryInfoFunc: func() (api.Memory, api.Return) { return api.Memory{Total: gib << 30}, api.SUCCESS },
			GetAttributesFunc: func() (api.DeviceAttributes, api.Return) {
				return api.DeviceAttributes{GpuInstanceSliceCount: slices}, api.SUCCESS
			},
		}
	}
	parts := map[int]*mock.Device{0: part("MIG-a", 4, 20), 2: part("MIG-b", 3, 19)}
	cut, asked := card(), api.SUCCESS
	cut.GetEnforcedPowerLimitFunc = func() (uint32, api.Return) { return 280_000, api.SUCCESS }
	cut.GetMigModeFunc = func() (int, int, api.Return) { return api.DEVICE_MIG_ENABLE, api.DEVICE_MIG_ENABLE, api.SUCCESS }
	cut.GetMaxMigDeviceCountFunc = func() (int, api.Return) { return 7, asked }
	cut.GetMigDeviceHandleByIndexFunc = func(i int) (api.Device, api.Return) {
		if parts[i] == nil {
			return nil, api.ERROR_NOT_FOUND
		}
		return parts[i], api.SUCCESS
	}
	l := library(t, card(), cut)
	want := []gpu.Device{
		{Index: 0, UUID: "GPU-1", Model: "NVIDIA T4", Driver: "580.1", Memory: 16 * unit.GiB, PowerLimit: unit.Watts(72.5), Path: "/dev/nvidia4"},
		{Index: 1, Instance: 1, UUID: "MIG-a", Model: "A100 MIG", Driver: "580.1", Memory: 20 * unit.GiB, PowerLimit: 160 * unit.Watt},
		{Index: 1, Instance: 3, UUID: "MIG-b", Model: "A100 MIG", Driver: "580.1", Memory: 19 * unit.GiB, PowerLimit: 120 * unit.Watt},
	}
	got, err := l.Devices()
	if diff := gocmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, -want +got\n%s", err, diff)
	}
	if id := got[2].ID(); id != "gpu:1:2" || id.Board() != "gpu:1" || got[0].ID().Board() != "gpu:0" {
		t.Errorf("%s is of %s", id, id.Board())
	}
	asked = api.ERROR_GPU_IS_LOST
	if got, err := l.Devices(); err != nil || len(got) != 3 || got[1].Trouble == "" || got[2].Trouble == "" || got[0].Trouble != "" {
		t.Errorf("lost: %+v, error %v", got, err)
	}
	asked, parts = api.SUCCESS, nil
	if got, err := l.Devices(); err != nil || len(got) != 1 {
		t.Errorf("without instances: %+v, error %v", got, err)
	}
}

func TestPowerLimits(t *testing.T) {
	c := card()
	set := uint32(0)
	c.SetPowerManagementLimitFunc = func(limit uint32) api.Return { set = limit; return api.SUCCESS }
	l := library(t, c)
	got, err := l.PowerLimits(0)
	want := gpu.PowerLimits{Now: 70 * unit.Watt, Default: 72 * unit.Watt, Least: 40 * unit.Watt, Most: 75 * unit.Watt}
	if err != nil || got != want {
		t.Errorf("%+v, error %v, want %+v", got, err, want)
	}
	if err := l.SetPowerLimit(0, 50*unit.Watt); err != nil || set != 50_000 {
		t.Errorf("set %d mW, error %v", set, err)
	}
	for _, outside := range []unit.Power{39 * unit.Watt, 76 * unit.Watt, 0} {
		if err := l.SetPowerLimit(0, outside); err == nil || !strings.Contains(err.Error(), "want 40 to 75 W") || set != 50_000 {
			t.Errorf("%g W: set %d mW, error %v", outside.Watts(), set, err)
		}
	}
	c.SetPowerManagementLimitFunc = func(uint32) api.Return { return api.ERROR_NO_PERMISSION }
	if err := l.SetPowerLimit(0, 50*unit.Watt); err == nil {
		t.Error("want to hear that it was not set")
	}
}

func TestProcessesWithoutUtilisation(t *testing.T) {
	c := card()
	c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) { return []api.ProcessInfo{{Pid: 11}}, api.SUCCESS }
	for _, ret := range []api.Return{api.ERROR_NOT_FOUND, api.ERROR_INSUFFICIENT_SIZE, api.ERROR_NOT_SUPPORTED, api.ERROR_NO_PERMISSION, api.ERROR_FUNCTION_NOT_FOUND} {
		c.GetProcessUtilizationFunc = func(uint64) ([]api.ProcessUtilizationSample, api.Return) { return nil, ret }
		got := sample(t, library(t, c))
		if diff := gocmp.Diff([]gpu.Process{{PID: 11, Context: true}}, got.Processes); diff != "" || !got.HasEnergy {
			t.Errorf("%s: energy %v, (-want +got)\n%s", ret.Error(), got.HasEnergy, diff)
		}
	}
}

func TestTroubleIsReported(t *testing.T) {
	for name, spoil := range map[string]func(*mock.Device){
		"utilisation": func(c *mock.Device) {
			c.GetProcessUtilizationFunc = func(uint64) ([]api.ProcessUtilizationSample, api.Return) { return nil, api.ERROR_UNKNOWN }
		},
		"processes": func(c *mock.Device) {
			c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) { return nil, api.ERROR_UNKNOWN }
		},
	} {
		c := card()
		spoil(c)
		if _, err := library(t, c).Sample(0); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := library(t).Sample(0); err == nil {
		t.Error("a GPU that is not there was read")
	}
	_, err := open(&mock.Interface{InitFunc: func() api.Return { return api.ERROR_LIBRARY_NOT_FOUND }})
	if err == nil || !strings.Contains(err.Error(), "libnvidia-ml.so.1") {
		t.Errorf("error %v", err)
	}
}

// TestThisMachine reads what is there. Without the library Open must fail and not crash the process.
func TestThisMachine(t *testing.T) {
	l, err := Open()
	if err != nil {
		if !strings.Contains(err.Error(), "NVML") {
			t.Errorf("error %v", err)
		}
		t.Skipf("no GPUs here: %v", err)
	}
	defer l.Close()
	devices, err := l.Devices()
	if err != nil || len(devices) == 0 {
		t.Skipf("no GPUs here: %v", err)
	}
	for _, d := range devices {
		s, err := l.Sample(d.Index)
		if err != nil || d.UUID == "" || d.Memory <= 0 || s.HasPower && s.Power <= 0 {
			t.Errorf("%+v: %+v, error %v", d, s, err)
		}
	}
}
