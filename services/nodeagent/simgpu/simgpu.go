// Package simgpu simulates GPUs on a machine that has none, so that everything that is done with GPUs can be tried
// there. What runs "on" them runs on processors: they have no device node, draw only invented power, and mark every
// device as simulated.
package simgpu

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Reader is a gpu.Reader of a number of simulated GPUs of one size.
type Reader struct {
	Node  train.NodeID
	Count int
	// Model is the name of all GPUs, or several names with commas, which take turns.
	Model  string
	Memory unit.Bytes
	// Sick is a file that lists the failing devices (gpu:0), separated by white space. Without the file all work.
	Sick string
	// Limits is the file with the power limits that were set.
	Limits string
	// Draw is the power of a GPU in use, up to its power limit; an idle one draws a fifth of it. With 0 no power is
	// reported.
	Draw  unit.Power
	InUse func(train.DeviceID) bool
}

// Devices lists the GPUs. Each has the same name after every start.
func (r Reader) Devices() ([]gpu.Device, error) {
	text, err := os.ReadFile(r.Sick)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which simulated GPUs are in trouble: %w", err)
	}
	sick := strings.Fields(string(text))
	devices, models := make([]gpu.Device, r.Count), strings.Split(r.Model, ",")
	for i := range devices {
		d := gpu.Device{Index: i, UUID: uuid(r.Node, i), Model: strings.TrimSpace(models[i%len(models)]), Memory: r.Memory, Simulated: true}
		if slices.Contains(sick, string(d.ID())) {
			d.Trouble = "listed in " + r.Sick
		}
		devices[i] = d
	}
	return devices, nil
}

// Sample models the power of a GPU if Draw is set; otherwise the energy of what runs here is that of the processors
// alone.
func (r Reader) Sample(index int) (gpu.Sample, error) {
	if r.Draw == 0 {
		return gpu.Sample{}, nil
	}
	limits, err := r.PowerLimits(index)
	if err != nil {
		return gpu.Sample{}, err
	}
	const idlePart = 5
	s := gpu.Sample{HasPower: true, Power: r.Draw / idlePart, Board: event.Board{LimitWatts: limits.Now.Watts()}}
	if r.InUse(gpu.Device{Index: index}.ID()) {
		s.Power = min(r.Draw, limits.Now)
		// It stands for the processes of the attempt that has the device.
		s.Processes = []gpu.Process{{PID: noProcess, Utilisation: 1, Context: true}}
	}
	return s, nil
}

// noProcess is the id of no process.
const noProcess = -1

// uuid has NVIDIA's format with another prefix.
func uuid(node train.NodeID, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, index))
	h := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("SIM-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
