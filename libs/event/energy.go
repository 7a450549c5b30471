package event

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Measured is one interval of a node's meters. Intervals of one (node, boot) are numbered without gaps and never
// overlap.
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
	// Epochs are the epochs that training code on this node finished in the interval, in order.
	Epochs []EpochMark `json:"epochs,omitempty"`
	// Counters are the counts of the whole node's performance counters in the CountersSeconds up to To, by event;
	// reported now and then while an attempt runs there.
	Counters        map[string]float64 `json:"counters,omitempty"`
	CountersSeconds float64            `json:"counters_seconds,omitempty"`
}

// Seconds returns the time in which the energy of one of the interval's meters was spent; 0 if a meter with its own
// time has nothing new to report.
func (m Measured) Seconds(meter Meter) float64 {
	if meter.CoveredSeconds != nil {
		return *meter.CoveredSeconds
	}
	return m.To.Sub(m.From).Seconds()
}

// limitSlack is the allowed difference between a measured limit and the wanted one, in watts: drivers round.
const limitSlack = 0.5

// Limits returns the power limits of some devices of the node, in watts; known is false if one of them reports none.
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

// Holds reports whether all of some devices of the node were at a power limit.
func (m Measured) Holds(devices []train.DeviceID, watts float64) bool {
	limits, known := m.Limits(devices)
	return known && !slices.ContainsFunc(limits, func(now float64) bool { return math.Abs(now-watts) > limitSlack })
}

// GapAfter returns the unmeasured time, in seconds, between an earlier interval of the node, which ended at to, and
// this one; 0 if there was no earlier interval.
func (m Measured) GapAfter(boot string, sequence uint64, to time.Time) float64 {
	switch {
	case to.IsZero():
		return 0
	case boot == m.BootID && m.Sequence == sequence+1:
		return max(m.GapSeconds, 0)
	}
	return max(m.From.Sub(to).Seconds(), 0) // another agent, or lost intervals
}

// EpochMark says when an epoch ended, so that the energy before it can be separated from the energy after it.
type EpochMark struct {
	Job        train.JobID `json:"job"`
	Attempt    int         `json:"attempt"`
	EpochsDone int         `json:"epochs_done"`
	// At is the time when the epoch ended, within the interval.
	At      time.Time          `json:"at"`
	Samples int                `json:"samples,omitempty"`
	Loss    *float64           `json:"loss,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// The components. The node's energy is everything behind its plug: it includes the others and is never added to them.
const (
	ComponentCPU  = "cpu"
	ComponentDRAM = "dram"
	ComponentGPU  = "gpu"
	ComponentNode = "node"
)

// Meter is the energy of one component in an interval.
type Meter struct {
	// Component is cpu, dram, gpu or node; Device is the device id if there is one (gpu:0).
	Component string         `json:"component"`
	Device    train.DeviceID `json:"device,omitempty"`
	// Method is nvml_counter, nvml_power, rapl, pcm, pdu, redfish or modelled.
	Method string      `json:"method"`
	Energy unit.Energy `json:"energy_uj"`
	// Idle is what the component would have spent without any work, if known.
	Idle unit.Energy `json:"idle_uj,omitempty"`
	// Capacity is the work that the component could do in the interval, in the unit of Use.Work (CPU: core-seconds).
	Capacity float64 `json:"capacity,omitempty"`
	// Busy is all work done, by jobs and everything else, in the same unit; 0 if only the jobs' work is known.
	Busy float64 `json:"busy,omitempty"`
	// Context is the cost of the contexts on the device beyond Idle, whether or not they work, if known; ContextSeconds
	// is the time of all contexts.
	Context        unit.Energy `json:"context_uj,omitempty"`
	ContextSeconds float64     `json:"context_seconds,omitempty"`
	// CoveredSeconds is the time in which the energy was spent, if a meter keeps its own time; else it is the interval.
	CoveredSeconds *float64 `json:"covered_seconds,omitempty"`
	// Board is the state of a GPU at the interval's end.
	Board *Board `json:"board,omitempty"`
}

// Board is the state of a GPU. Values its driver does not report are left out.
type Board struct {
	// LimitWatts is the power limit.
	LimitWatts float64 `json:"limit_w,omitempty"`
	// SMRatio is the fraction of the last sampling period in which its processors worked, from 0 to 1.
	SMRatio *float64 `json:"sm_util_ratio,omitempty"`
	// MemoryUsed is the memory that all processes hold.
	MemoryUsed unit.Bytes `json:"memory_used_bytes,omitempty"`
	// TemperatureC is in degrees Celsius.
	TemperatureC int `json:"temperature_c,omitempty"`
	// Throttle lists the causes for which its clocks are lower than they could be: power, thermal, power_brake,
	// slowdown.
	Throttle []string `json:"throttle,omitempty"`
}

// Use is what one attempt used of a component in an interval.
type Use struct {
	Job       train.JobID    `json:"job"`
	Attempt   int            `json:"attempt"`
	Component string         `json:"component"`
	Device    train.DeviceID `json:"device,omitempty"`
	// Work is CPU seconds, or SM-utilisation seconds on a GPU. Estimated is set if it was not sampled.
	Work      float64 `json:"work"`
	Estimated bool    `json:"estimated,omitempty"`
	// ContextSeconds is the time its processes had a context on the device, MemoryBytes the device memory of the
	// processes known to belong to it.
	ContextSeconds float64    `json:"context_seconds,omitempty"`
	MemoryBytes    unit.Bytes `json:"memory_bytes,omitempty"`
	// ReservedRatio is the fraction of the component reserved for the attempt, whether or not it works.
	ReservedRatio float64 `json:"reserved_ratio,omitempty"`
}

// Accounted is the final energy account of a job.
type Accounted struct {
	Account train.Account `json:"account"`
}
