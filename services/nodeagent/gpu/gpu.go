// Package gpu defines what the agent needs to know of accelerators, whatever reads them.
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
	// Instance is set for a part of a partitioned GPU, with its own memory and processors: its number from 1. Index
	// is then the GPU's.
	Instance int
	// Name is what plans call it if that does not follow from its index.
	Name   train.DeviceID
	UUID   string
	Model  string
	Memory unit.Bytes
	// Driver is the version of its driver; empty if unknown.
	Driver string
	// PowerLimit is the most that it draws; 0 if unknown.
	PowerLimit unit.Power
	// Path is its device node; empty if it has none.
	Path string
	// Simulated is set if it does not really exist.
	Simulated bool
	// Trouble says why no new work may be placed on it; empty if it works.
	Trouble string
}

// MostSlices is into how many slices a GPU can be cut.
const MostSlices = 7

// ID identifies the device on its node: gpu:0, or gpu:0:1 for the second instance of a partitioned GPU, as NVIDIA's
// tools count them.
func (d Device) ID() train.DeviceID {
	if d.Name != "" {
		return d.Name
	}
	if d.Instance > 0 {
		return train.DeviceID(fmt.Sprintf("%s:%d:%d", train.KindGPU, d.Index, d.Instance-1))
	}
	return train.DeviceID(fmt.Sprintf("%s:%d", train.KindGPU, d.Index))
}

// Sample is one reading of a device.
type Sample struct {
	// Energy is the device's own counter since the driver was loaded, if HasEnergy is set; Power is its present
	// power, if HasPower is set.
	Energy    unit.Energy
	HasEnergy bool
	Power     unit.Power
	HasPower  bool
	// Board is what else the driver reports.
	Board event.Board
	// Processes are those that have a context on the device or used it since the last reading.
	Processes []Process
}

// Process is one process on a device.
type Process struct {
	PID int
	// Utilisation is the mean share of time, from 0 to 1, in which the device's processors worked for it since the
	// last reading; LastWork is when that was last sampled, by the wall clock.
	Utilisation float64
	LastWork    time.Time
	// Context is set if it has one now; Memory is what it holds of the device's.
	Context bool
	Memory  unit.Bytes
	// Slice is the part of a partitioned device on which it runs, SliceSize its size in slices; 0 on a whole device.
	Slice     int
	SliceSize int
}

// PowerLimits are the limits of a device, and their bounds.
type PowerLimits struct {
	Now, Default, Least, Most unit.Power
}

// Reader reads accelerators. One goroutine uses it at a time.
type Reader interface {
	// Devices lists the present devices.
	Devices() ([]Device, error)
	// Sample reads one device by its index.
	Sample(index int) (Sample, error)
}

// Limiter reads and sets power limits. Setting needs privileges, and the limit is lost when the driver is reloaded.
// It may be used while another goroutine uses the Reader.
type Limiter interface {
	PowerLimits(index int) (PowerLimits, error)
	SetPowerLimit(index int, limit unit.Power) error
}
