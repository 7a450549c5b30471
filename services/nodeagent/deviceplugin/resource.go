// Package deviceplugin has a kubelet account for GPUs: each physical GPU is an extended resource of its own with a socket of its own, so that scheduler and
// kubelet know which GPU a pod gets and Allocate knows which one it serves. Units of the resource are accounting alone: nothing here holds a job to its
// memory. Which pod gets which GPU is decided elsewhere, by what the pod asks for.
package deviceplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// leastUnits is into how many parts even a small GPU can be shared.
const leastUnits = 16

// Units is how many of a GPU's resource are the whole GPU: one for each GiB of its memory, and at least 16.
func Units(memory unit.Bytes) int { return max(leastUnits, int(memory/unit.GiB)) }

// short is what of a GPU's UUID names it on a node: the first 12 hexadecimal digits, as it begins where people see it. Other names get a digest.
func short(uuid string) string {
	_, digits, _ := strings.Cut(strings.ToLower(uuid), "-")
	digits = strings.ReplaceAll(digits, "-", "")
	const kept, whole = 12, 16
	if raw, err := hex.DecodeString(digits); err != nil || len(raw) != whole {
		sum := sha256.Sum256([]byte(uuid))
		digits = hex.EncodeToString(sum[:])
	}
	return digits[:kept]
}

// Resource is the extended resource of a GPU.
func Resource(uuid string) string { return "switchyard.dev/gpu-" + short(uuid) }

// socketPrefix and socketSuffix are around the short name in a socket's file name.
const (
	socketPrefix = "switchyard-gpu-"
	socketSuffix = ".sock"
)

func socketName(uuid string) string { return socketPrefix + short(uuid) + socketSuffix }

// unitIDs names the units of a GPU.
func unitIDs(g gpu.Device) []string {
	ids := make([]string, Units(g.Memory))
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%03d", short(g.UUID), i)
	}
	return ids
}
