package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// What a container needs for a GPU, however it gets it.

// Variable is the variable with the UUID of a GPU. Each GPU has its own, so that a container with two keeps both.
func Variable(uuid string) string { return "SWITCHYARD_JOB_GPU_" + strings.ToUpper(Short(uuid)) }

// Nodes returns the names in the folder dev of the device nodes of a GPU, and of those that all GPUs of a machine
// share.
func Nodes(g gpu.Device, dev string) []string {
	if g.Path == "" {
		return nil
	}
	var nodes []string
	for _, name := range []string{filepath.Base(g.Path), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"} {
		if _, err := os.Stat(filepath.Join(dev, name)); err == nil {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// Folders returns what clients of the Multi-Process Service need: its pipes, in the folder that mps returns, and the
// memory that they share with it. The limits of a client are in the pod, where all its GPUs are known.
func Folders(g gpu.Device, mps func() string) []string {
	if mps == nil || g.Simulated || g.Instance > 0 {
		return nil
	}
	dir := mps()
	if dir == "" {
		return nil
	}
	return []string{dir, "/dev/shm"}
}
