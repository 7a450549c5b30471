// Package deviceplugin makes a kubelet account for GPUs. Each physical GPU is its own extended resource with its own
// socket, so that the scheduler and the kubelet know which GPU a pod gets and Allocate knows which GPU it serves.
// Units of the resource are only accounting: nothing here limits the memory of a job. Which pod gets which GPU is
// decided elsewhere, by the resources that the pod requests.
package deviceplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// leastUnits is the smallest number of shares of a GPU.
const leastUnits = 16

// Units returns how many units of a GPU's resource are the whole GPU: one for each GiB of its memory, and at least
// 16.
func Units(memory unit.Bytes) int { return max(leastUnits, int(memory/unit.GiB)) }

// Short returns what identifies a GPU on a node: the first 12 hexadecimal digits of its UUID, as people see them.
// Other names are replaced by a digest.
func Short(uuid string) string {
	_, digits, _ := strings.Cut(strings.ToLower(uuid), "-")
	digits = strings.ReplaceAll(digits, "-", "")
	const kept, whole = 12, 16
	if raw, err := hex.DecodeString(digits); err != nil || len(raw) != whole {
		sum := sha256.Sum256([]byte(uuid))
		digits = hex.EncodeToString(sum[:])
	}
	return digits[:kept]
}

// resourcePrefix begins the extended resources of GPUs.
const resourcePrefix = "switchyard.dev/gpu-"

// Resource is the extended resource of a GPU.
func Resource(uuid string) string { return resourcePrefix + Short(uuid) }

// socketPrefix and socketSuffix surround the short name in a socket's file name.
const (
	socketPrefix = "switchyard-gpu-"
	socketSuffix = ".sock"
)

// memorySocket is the name of the socket for the memory of all GPUs.
const memorySocket = socketPrefix + "memory" + socketSuffix

func socketName(uuid string) string { return socketPrefix + Short(uuid) + socketSuffix }

// unitIDs names the units of a GPU.
func unitIDs(g gpu.Device, units int) []string {
	ids := make([]string, units)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%03d", Short(g.UUID), i)
	}
	return ids
}
