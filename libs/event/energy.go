package event

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Measured is one interval of a node's meters. Intervals of one (node, boot) are numbered without gaps and never overlap.
type Measured struct {
	Node     train.NodeID `json:"node"`
	BootID   string       `json:"boot_id"`
	Sequence uint64       `json:"sequence"`
	// From and To bound the interval; GapSeconds is unmeasured time before it.
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	GapSeconds float64   `json:"gap_seconds,omitempty"`
	Meters     []Meter   `json:"meters"`
	// Users are the attempts that used the node in the interval.
	Users []Use `json:"users,omitempty"`
	// Epochs are those that training code on this node finished in the interval, in order.
	Epochs []EpochMark `json:"epochs,omitempty"`
	// Counters are what the performance counters of the whole node counted in the CountersSeconds up to To, by event; told now and then while an attempt runs there.
	Counters        map[string]float64 `json:"counters,omitempty"`
	CountersSeconds float64            `json:"counters_seconds,omitempty"`
}

// Seconds is the time that the energy of one of the interval's meters was spent in; 0 where a meter with a time of its own has nothing new to tell.
func (m Measured) Seconds(meter Meter) float64 {
	if meter.CoveredSeconds != nil {
		return *meter.CoveredSeconds
	}
	return m.To.Sub(m.From).Seconds()
}

// limitSlack is how far a measured limit may be from the wanted one, in watts: drivers round.
const limitSlack = 0.5

// Limits says at which power limit each of some devices of the node was, in watts; known is false where one did not tell.
func (m Measured) Limits(devices []train.DeviceID) (watts []float64, known bool) {
	for _, d := range devices {
		i := slices.IndexFunc(m.Meters, func(one Meter) bool { return one.Device == d && one.Board != nil && one.Board.LimitWatts > 0 })
		if i < 0 {
			return nil, false
		}
		watts = append(watts, m.Meters[i].Board.LimitWatts)
	}
	return watts, true
}

// Holds says whether all of some devices of the node were at a power limit.
func (m Measured) Holds(devices []train.DeviceID, watts float64) bool {
	limits, known := m.Limits(devices)
	return known && !slices.ContainsFunc(limits, func(now float64) bool { return math.Abs(now-watts) > limitSlack })
}

// GapAfter is the unmeasured time, in seconds, between an interval of the node that ended at a time and this one; 0 where there was none before.
func (m Measured) GapAfter(boot string, sequence uint64, to time.Time) float64 {
	switch {
	case to.IsZero():
		return 0
	case boot == m.BootID && m.Sequence == sequence+1:
		return max(m.GapSeconds, 0)
	}
	return max(m.From.Sub(to).Seconds(), 0) // another agent, or intervals that never came
}

// EpochMark says when an epoch ended, so that the energy up to then can be told from that after it.
type EpochMark struct {
	Job        train.JobID `json:"job"`
	Attempt    int         `json:"attempt"`
	EpochsDone int         `json:"epochs_done"`
	// At is when the epoch ended, within the interval.
	At      time.Time          `json:"at"`
	Samples int                `json:"samples,omitempty"`
	Loss    *float64           `json:"loss,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// The components. That of the node is everything behind its plug: the others are part of it, so it is never added to them.
const (
	ComponentCPU  = "cpu"
	ComponentDRAM = "dram"
	ComponentGPU  = "gpu"
	ComponentNode = "node"
)

// Meter is the energy of one component in an interval.
type Meter struct {
	// Component is cpu, dram, gpu or node; Device the device id where there is one (gpu:0).
	Component string         `json:"component"`
	Device    train.DeviceID `json:"device,omitempty"`
	// Method is nvml_counter, nvml_power, rapl, pcm, pdu, redfish or modelled.
	Method string      `json:"method"`
	Energy unit.Energy `json:"energy_uj"`
	// Idle is what the component would have spent without any work, where that is known.
	Idle unit.Energy `json:"idle_uj,omitempty"`
	// Capacity is the work that the component could do in the interval, in the unit of Use.Work (CPU: core-seconds).
	Capacity float64 `json:"capacity,omitempty"`
	// Busy is the work that was done in all, by jobs and everything else, in the same unit; 0 when only jobs are known.
	Busy float64 `json:"busy,omitempty"`
	// Context is what the contexts on the device cost beyond Idle whether or not they work, where that is known; ContextSeconds is the time of all contexts.
	Context        unit.Energy `json:"context_uj,omitempty"`
	ContextSeconds float64     `json:"context_seconds,omitempty"`
	// CoveredSeconds is the time that the energy was spent in, where a meter keeps a time of its own; else it is the interval.
	CoveredSeconds *float64 `json:"covered_seconds,omitempty"`
	// Board is the state of a GPU at the interval's end.
	Board *Board `json:"board,omitempty"`
}

// Board is the state of a GPU. What its driver does not tell is left out.
type Board struct {
	// LimitWatts is the most that it may draw.
	LimitWatts float64 `json:"limit_w,omitempty"`
	// SMRatio is the part of the last sampling period in which its processors worked, from 0 to 1.
	SMRatio *float64 `json:"sm_util_ratio,omitempty"`
	// MemoryUsed is what all processes hold of its memory.
	MemoryUsed unit.Bytes `json:"memory_used_bytes,omitempty"`
	// TemperatureC is in degrees Celsius.
	TemperatureC int `json:"temperature_c,omitempty"`
	// Throttle says why its clocks are lower than they could be: power, thermal, power_brake, slowdown.
	Throttle []string `json:"throttle,omitempty"`
}

// Use is what one attempt used of a component in an interval.
type Use struct {
	Job       train.JobID    `json:"job"`
	Attempt   int            `json:"attempt"`
	Component string         `json:"component"`
	Device    train.DeviceID `json:"device,omitempty"`
	// Work is CPU seconds, or SM-utilisation seconds on a GPU. Estimated is set where nobody sampled it.
	Work      float64 `json:"work"`
	Estimated bool    `json:"estimated,omitempty"`
	// ContextSeconds is how long its processes had a context on the device, MemoryBytes what those that are known to be its own hold of its memory.
	ContextSeconds float64    `json:"context_seconds,omitempty"`
	MemoryBytes    unit.Bytes `json:"memory_bytes,omitempty"`
	// ReservedRatio is the part of the component that is kept for the attempt, whether or not it works.
	ReservedRatio float64 `json:"reserved_ratio,omitempty"`
}

// Accounted is the final energy account of a job.
type Accounted struct {
	Account train.Account `json:"account"`
}
