// Package gpu is what the agent wants to know of accelerators, whoever tells it.
package gpu

import (
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Device is one accelerator.
type Device struct {
	Index int
	// Instance is set for a part of a partitioned GPU, with memory and processors of its own: its number from 1 on. Index is then the GPU's.
	Instance int
	UUID     string
	Model    string
	Memory   unit.Bytes
	// Driver is the version of its driver, empty where that is unknown.
	Driver string
	// PowerLimit is the most that it draws; 0 where that is unknown.
	PowerLimit unit.Power
	// Path is its device node, empty where it has none.
	Path string
	// Simulated is set for one that only exists on paper.
	Simulated bool
	// Trouble says why nothing new may be put on it, empty where it is well.
	Trouble string
}

// MostSlices is into how many slices a GPU can be cut.
const MostSlices = 7

// ID names the device on its node: gpu:0, or gpu:0:1 for the second instance of a partitioned GPU, as NVIDIA's tools count them.
func (d Device) ID() train.DeviceID {
	if d.Instance > 0 {
		return train.DeviceID(fmt.Sprintf("%s:%d:%d", train.KindGPU, d.Index, d.Instance-1))
	}
	return train.DeviceID(fmt.Sprintf("%s:%d", train.KindGPU, d.Index))
}

// Sample is one reading of a device.
type Sample struct {
	// Energy is the device's own counter since the driver was loaded, where HasEnergy is set; Power what it draws now, where HasPower is set.
	Energy    unit.Energy
	HasEnergy bool
	Power     unit.Power
	HasPower  bool
	// Board is what else the driver tells.
	Board event.Board
	// Processes are those that have a context on the device or used it since the last reading.
	Processes []Process
}

// Process is one process on a device.
type Process struct {
	PID int
	// Utilisation is the mean share of time, from 0 to 1, in which the device's processors worked for it since the last reading; LastWork is when that was
	// last sampled, by the wall clock.
	Utilisation float64
	LastWork    time.Time
	// Context is set where it has one now; Memory is what it holds of the device's.
	Context bool
	Memory  unit.Bytes
	// Slice is the part of a partitioned device on which it runs, SliceSize how large that is beside the others; 0 on a whole device.
	Slice     int
	SliceSize int
}

// PowerLimits are the limits of a device, and between what they can be set.
type PowerLimits struct {
	Now, Default, Least, Most unit.Power
}

// Reader reads accelerators. It is used by one goroutine at a time.
type Reader interface {
	// Devices lists what is there now.
	Devices() ([]Device, error)
	// Sample reads one device by its index.
	Sample(index int) (Sample, error)
}

// Limiter reads and sets what devices may draw. Setting needs privileges; it is lost when the driver is loaded anew. It may be used while another goroutine
// uses the Reader.
type Limiter interface {
	PowerLimits(index int) (PowerLimits, error)
	SetPowerLimit(index int, limit unit.Power) error
}
