package launch

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func gpu(number string, gib int64, level train.Enforcement) train.Device {
	return train.Device{
		ID: train.DeviceID("gpu:" + number), Kind: train.KindGPU, UUID: "GPU-" + number, Memory: unit.Bytes(gib) * unit.GiB, Enforcement: level,
	}
}

// TestEnforcementInTheEnvironment: limits of the Multi-Process Service number a job's devices from 0, whatever their
// indices on the machine. A job that has its devices to itself has no limits, and neither has one on a node without a
// daemon or with another kind of enforcement.
func TestEnforcementInTheEnvironment(t *testing.T) {
	simulated := gpu("1", 16, train.EnforcedByAdvice)
	simulated.Simulated = true
	instance := gpu("0:2", 20, train.EnforcedByMIG)
	for _, test := range []struct {
		name    string
		dir     string
		devices []train.Device
		part    unit.Bytes
		want    map[string]string
	}{
		{"a part", "/pipes", []train.Device{gpu("3", 16, train.EnforcedByMPS)}, 6 * unit.GiB, map[string]string{
			"CUDA_VISIBLE_DEVICES": "3", "CUDA_MPS_PIPE_DIRECTORY": "/pipes", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=6144M",
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "75", "RESERVED_MEM": "6144",
		}},
		{"a small part", "/pipes", []train.Device{gpu("0", 16, train.EnforcedByMPS)}, unit.GiB, map[string]string{
			"CUDA_VISIBLE_DEVICES": "0", "CUDA_MPS_PIPE_DIRECTORY": "/pipes", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M",
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "RESERVED_MEM": "1024",
		}},
		{"parts of two of different sizes", "/pipes", []train.Device{gpu("2", 80, train.EnforcedByMPS), gpu("5", 16, train.EnforcedByMPS)}, 12 * unit.GiB, map[string]string{
			"CUDA_VISIBLE_DEVICES": "2,5", "CUDA_MPS_PIPE_DIRECTORY": "/pipes", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=12288M,1=12288M",
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "RESERVED_MEM": "12288",
		}},
		{"the whole", "/pipes", []train.Device{gpu("3", 16, train.EnforcedByMPS)}, 0, map[string]string{
			"CUDA_VISIBLE_DEVICES": "3", "CUDA_MPS_PIPE_DIRECTORY": "/pipes", "RESERVED_MEM": "16384",
		}},
		{"no daemon", "", []train.Device{gpu("3", 16, train.EnforcedByAdvice)}, 6 * unit.GiB, map[string]string{"CUDA_VISIBLE_DEVICES": "3", "RESERVED_MEM": "6144"}},
		{"on paper", "/pipes", []train.Device{simulated}, 6 * unit.GiB, map[string]string{"CUDA_VISIBLE_DEVICES": "", "RESERVED_MEM": "6144"}},
		{"an instance", "/pipes", []train.Device{instance}, 0, map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-0:2", "RESERVED_MEM": "20480"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Setting{Places: []Place{{Node: train.Node{ID: "n", MPSDir: test.dir}, Devices: test.devices, Memory: test.part}}}
			got := s.Scheduler(0)
			maps.DeleteFunc(got, func(name, _ string) bool {
				return name != "RESERVED_MEM" && (!strings.HasPrefix(name, "CUDA_") || name == "CUDA_DEVICE_ORDER")
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestNamesInAContainer(t *testing.T) {
	if got := Inside([]train.Device{gpu("2", 1, ""), gpu("5", 1, "")}); got != "0,1" {
		t.Errorf("%s", got)
	}
	if got := Inside([]train.Device{gpu("0:2", 1, train.EnforcedByMIG)}); got != "GPU-0:2" {
		t.Errorf("%s", got)
	}
}
