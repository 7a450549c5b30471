//go:build cgo

package nvml

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// card is a GPU that answers well; tests spoil single answers.
func card() *mock.Device {
	return &mock.Device{
		GetUUIDFunc:                    func() (string, api.Return) { return "GPU-1", api.SUCCESS },
		GetNameFunc:                    func() (string, api.Return) { return "NVIDIA T4", api.SUCCESS },
		GetMemoryInfoFunc:              func() (api.Memory, api.Return) { return api.Memory{Total: 16 << 30}, api.SUCCESS },
		GetMinorNumberFunc:             func() (int, api.Return) { return 4, api.SUCCESS },
		GetFieldValuesFunc:             func([]api.FieldValue) api.Return { return api.ERROR_NOT_SUPPORTED },
		GetTotalEnergyConsumptionFunc:  func() (uint64, api.Return) { return 5_000, api.SUCCESS },
		GetPowerUsageFunc:              func() (uint32, api.Return) { return 70_500, api.SUCCESS },
		GetComputeRunningProcessesFunc: func() ([]api.ProcessInfo, api.Return) { return nil, api.SUCCESS },
		GetProcessUtilizationFunc: func(uint64) ([]api.ProcessUtilizationSample, api.Return) {
			return nil, api.ERROR_NOT_FOUND
		},
	}
}

func library(t *testing.T, cards ...*mock.Device) *Library {
	t.Helper()
	l, err := open(&mock.Interface{
		InitFunc:           func() api.Return { return api.SUCCESS },
		ShutdownFunc:       func() api.Return { return api.SUCCESS },
		DeviceGetCountFunc: func() (int, api.Return) { return len(cards), api.SUCCESS },
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
	want := []gpu.Device{{Index: 1, UUID: "GPU-1", Model: "NVIDIA T4", Memory: 16 * unit.GiB, Path: "/dev/nvidia4"}}
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
		if said := got[0].Trouble; (said == "") != (step.trouble == "") || !strings.Contains(said, step.trouble) {
			t.Errorf("%s: trouble %q, want %q", step.name, said, step.trouble)
		}
	}
}

func TestSampleInUnits(t *testing.T) {
	got := sample(t, library(t, card()))
	want := gpu.Sample{Energy: 5 * unit.Joule, HasEnergy: true, Power: 70*unit.Watt + unit.Watt/2, HasPower: true}
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
		t.Error("want an error of a GPU that tells nothing")
	}
}

func TestProcesses(t *testing.T) {
	c := card()
	c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) {
		return []api.ProcessInfo{{Pid: 11}, {Pid: 12}}, api.SUCCESS
	}
	var asked []uint64
	c.GetProcessUtilizationFunc = func(since uint64) ([]api.ProcessUtilizationSample, api.Return) {
		asked = append(asked, since)
		return []api.ProcessUtilizationSample{
			{Pid: 11, TimeStamp: 100, SmUtil: 40},
			{Pid: 11, TimeStamp: 200, SmUtil: 60},
			{Pid: 13, TimeStamp: 150, SmUtil: 10},
			{Pid: 0, TimeStamp: 900, SmUtil: 5},
			{Pid: 12, TimeStamp: 90, SmUtil: 255},
		}, api.SUCCESS
	}
	l := library(t, c)
	want := []gpu.Process{{PID: 11, Utilisation: 0.5}, {PID: 12, Utilisation: 1}, {PID: 13, Utilisation: 0.1}}
	if diff := gocmp.Diff(want, sample(t, l).Processes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// The same samples told again are not counted again.
	want = []gpu.Process{{PID: 11}, {PID: 12}}
	if diff := gocmp.Diff(want, sample(t, l).Processes); diff != "" {
		t.Errorf("second reading (-want +got)\n%s", diff)
	}
	if asked[0] != 0 || asked[1] == 0 {
		t.Errorf("asked since %v", asked)
	}
}

func TestProcessesWithoutUtilisation(t *testing.T) {
	c := card()
	c.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) { return []api.ProcessInfo{{Pid: 11}}, api.SUCCESS }
	for _, ret := range []api.Return{api.ERROR_NOT_FOUND, api.ERROR_INSUFFICIENT_SIZE, api.ERROR_NOT_SUPPORTED, api.ERROR_NO_PERMISSION} {
		c.GetProcessUtilizationFunc = func(uint64) ([]api.ProcessUtilizationSample, api.Return) { return nil, ret }
		got := sample(t, library(t, c))
		if diff := gocmp.Diff([]gpu.Process{{PID: 11}}, got.Processes); diff != "" || !got.HasEnergy {
			t.Errorf("%s: energy %v, (-want +got)\n%s", ret.Error(), got.HasEnergy, diff)
		}
	}
}

func TestTroubleIsSaid(t *testing.T) {
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

// TestThisMachine reads what is there. Without the library Open must fail and not bring the process down.
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
