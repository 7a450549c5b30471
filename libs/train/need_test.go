package train

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestModelsAreFoundInNamesOfProducts(t *testing.T) {
	for _, c := range []struct {
		product, model string
		want           bool
	}{
		{"NVIDIA A100-SXM4-40GB", "A100", true},
		{"NVIDIA A100-SXM4-40GB", "a100", true},
		{"NVIDIA A100-SXM4-40GB", "A10", false},
		{"NVIDIA A100-SXM4-40GB", "A100 40GB", false},
		{"NVIDIA H100 80GB HBM3", "H100-80GB", true},
		{"NVIDIA GH200 480GB", "H200", false},
		{"NVIDIA L40S", "L4", false},
		{"NVIDIA GeForce RTX 4090", "RTX4090", true},
		{"Tesla T4", "T4", true},
		{"", "T4", false},
		{"Tesla T4", "", false},
	} {
		if isModel(c.product, c.model) != c.want {
			t.Errorf("%q in %q: want %v", c.model, c.product, c.want)
		}
	}
}

func TestWhatDevicesLack(t *testing.T) {
	node := func(devices ...Device) Node { return Node{Devices: devices} }
	gpu := func(model string, gib unit.Bytes) Device {
		return Device{ID: "gpu:0", Kind: KindGPU, Model: model, Memory: gib * unit.GiB}
	}
	slot := Device{ID: "cpu:0", Kind: KindCPU}
	for _, c := range []struct {
		name  string
		spec  Spec
		count int
		nodes []Node
		asks  string
		lacks string
	}{
		{"nothing", Spec{}, 1, []Node{node(slot)}, "1 device", ""},
		{"a GPU among slots", Spec{Device: KindGPU}, 1, []Node{node(slot), node()}, "1 GPU", "no node has a GPU"},
		{"slots among GPUs", Spec{Device: KindCPU}, 2, []Node{node(gpu("T4", 16))}, "2 CPU slots", "no node has a CPU slot"},
		{"a model", Spec{GPU: "H100|A100"}, 2, []Node{node(slot), node(gpu("T4", 16)), node(gpu("", 16))}, "2 GPUs (H100 or A100)", "each GPU here is another model: T4, unknown"},
		{"a model that is there", Spec{GPU: "h100 | a100"}, 1, []Node{node(gpu("NVIDIA A100-SXM4-40GB", 40))}, "1 GPU (h100 or a100)", ""},
		{"a mixed node", Spec{GPU: "T4"}, 1, []Node{node(gpu("T4", 16), gpu("P4", 8))}, "1 GPU (T4)", ""},
		{"memory of the other model of a mixed node", Spec{GPU: "P4", GPUMemory: "10GiB"}, 1, []Node{node(gpu("T4", 16), gpu("P4", 8))}, "1 GPU (P4) with 10 GiB", "the largest here has 8 GiB"},
		{"memory", Spec{GPUMemory: "20GiB"}, 2, []Node{node(slot), node(gpu("T4", 16))}, "2 GPUs with 20 GiB each", "the largest here has 16 GiB"},
		{"memory of another model", Spec{GPU: "T4", GPUMemory: "20GiB"}, 1, []Node{node(gpu("A100", 40)), node(gpu("T4", 16))}, "1 GPU (T4) with 20 GiB", "the largest here has 16 GiB"},
		{"memory that may be there", Spec{GPUMemory: "20GiB"}, 1, []Node{node(gpu("T4", 0))}, "1 GPU with 20 GiB", ""},
	} {
		need := c.spec.Expanded().DeviceNeed()
		if asks, lacks := need.Count(c.count), need.Lacks(c.nodes); asks != c.asks || lacks != c.lacks {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, asks, lacks, c.asks, c.lacks)
		}
	}
}

// TestShortForms: they end in the fields that the rest reads, and expanding twice changes nothing.
func TestShortForms(t *testing.T) {
	got := Spec{Devices: 2, GPUMemory: "20GiB", CPUs: 3, Memory: "1.5GiB"}.Expanded()
	want := Spec{MinDevices: 2, MaxDevices: 2, Device: KindGPU, EstimatedMemoryMiB: 20 << 10, Cores: 3, MainMemoryMiB: 1536}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(got, got.Expanded()); diff != "" {
		t.Error(diff)
	}
	if unread := (Spec{Memory: "much"}).Expanded(); unread.Memory != "much" || unread.MainMemoryMiB != 0 {
		t.Errorf("an amount that cannot be read: %+v", unread)
	}
}
