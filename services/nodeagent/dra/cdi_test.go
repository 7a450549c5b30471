package dra

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// What the container runtime adds for a GPU: its device nodes, those of all GPUs, and the folders of the Multi-Process
// Service. A simulated GPU has a variable alone, since a device without anything is invalid.
func TestTheContainerRuntimeKnowsTheGPUs(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"nvidia3", "nvidiactl"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gpus := map[string]gpu.Device{}
	for _, g := range []gpu.Device{
		{UUID: "GPU-5a1f0b3c-77d2-4e21-9c55-0123456789ab", Path: "/dev/nvidia3"}, {UUID: "GPU-6b1f0b3c-77d2-4e21-9c55-0123456789ab", Simulated: true},
	} {
		gpus[deviceName(g)] = g
	}
	want := cdiSpec{Version: "0.5.0", Kind: "switchyard.dev/gpu", Devices: []cdiDevice{
		{Name: "gpu-5a1f0b3c77d2", Edits: cdiEdits{
			Env:    []string{"SWITCHYARD_JOB_GPU_5A1F0B3C77D2=GPU-5a1f0b3c-77d2-4e21-9c55-0123456789ab"},
			Nodes:  []cdiNode{{"/dev/nvidia3", filepath.Join(dev, "nvidia3")}, {"/dev/nvidiactl", filepath.Join(dev, "nvidiactl")}},
			Mounts: []cdiMount{{"/run/mps", "/run/mps", []string{"rw", "rbind"}}, {"/dev/shm", "/dev/shm", []string{"rw", "rbind"}}},
		}},
		{Name: "gpu-6b1f0b3c77d2", Edits: cdiEdits{Env: []string{"SWITCHYARD_JOB_GPU_6B1F0B3C77D2=GPU-6b1f0b3c-77d2-4e21-9c55-0123456789ab"}}},
	}}
	var got cdiSpec
	if err := json.Unmarshal([]byte(spec(gpus, dev, func() string { return "/run/mps" })), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
