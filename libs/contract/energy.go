package contract

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Book holds the energy booked for one node. Intervals and their place in the stream are stored with one
// compare-and-swap, so its sums are exact however often an interval is delivered: for each component, Measured =
// Attributed + Idle + Unattributed.
type Book struct {
	Node train.NodeID `json:"node"`
	// Boot and Sequence name the last interval booked. To is its end, StreamSequence its place in the stream.
	Boot           string    `json:"boot"`
	Sequence       uint64    `json:"sequence"`
	To             time.Time `json:"to"`
	StreamSequence uint64    `json:"stream_sequence"`
	// Totals are by component.
	Totals map[string]Totals `json:"totals"`
	// Methods are those of the last interval; in the book of an hour, those of all its intervals.
	Methods []string `json:"methods"`
	// CO2eGramsPerKWh is the carbon of a kilowatt-hour of the machines in the hour of the book, with the overhead of the
	// building, as it was known when the last interval was booked. It is nil if it is unknown, and in the book of a node.
	CO2eGramsPerKWh *float64 `json:"co2e_g_per_kwh,omitempty"`
	// GapSeconds is unmeasured time between intervals. Missing counts intervals that were measured and never arrived.
	// Resets counts readings of a counter that started again; they are left out.
	GapSeconds float64 `json:"gap_seconds"`
	Missing    uint64  `json:"missing,omitempty"`
	Resets     uint64  `json:"resets,omitempty"`
	// Plug is what meters of the whole node measured. What exceeds the sum of the components is booked as "other". Owed
	// is what the components measured and the plug has not shown yet, 0 or less: the two are not read at the same
	// moment.
	Plug unit.Energy `json:"wall_uj,omitempty"`
	Owed unit.Energy `json:"owed_uj,omitempty"`
	// Running holds the accounts not yet closed. Recent is the energy each job used in the last interval, Drawn its
	// power.
	Running map[train.JobID]train.Account `json:"running"`
	Recent  map[train.JobID]unit.Energy   `json:"recent_uj,omitempty"`
	Drawn   map[train.JobID]unit.Power    `json:"drawn_uw,omitempty"`
	// Owners names the owners of the jobs in the book of an hour, those of closed accounts too: it outlives the register's
	// record of a job.
	Owners map[train.JobID]Owner `json:"owners,omitempty"`
}

// Closing names the accounts that are being closed. If the process dies meanwhile, the next one publishes those that
// are final: their facts may not be published yet.
type Closing struct {
	// Jobs are sorted by id.
	Jobs []train.JobID `json:"jobs"`
}

// Minute is what the meters of a node showed in one minute, as means over the time that they measured.
type Minute struct {
	Node train.NodeID `json:"node"`
	// At is when the minute began. Seconds of it were measured.
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	// Power is that of the whole node.
	Power   unit.Power                      `json:"node_uw"`
	Devices map[train.DeviceID]DeviceMinute `json:"devices"`
}

// DeviceMinute is a device with a meter of its own in one minute.
type DeviceMinute struct {
	// Power is the mean over the minute.
	Power unit.Power `json:"power_uw"`
	// Use is the fraction of the time in which its processors worked; nil if its driver does not report it.
	Use *float64 `json:"sm_util_ratio,omitempty"`
	// MemoryUsed and LimitWatts are those at the end of the minute.
	MemoryUsed unit.Bytes `json:"memory_used_bytes,omitempty"`
	LimitWatts float64    `json:"limit_w,omitempty"`
}

// Totals are the parts of a component's energy.
type Totals struct {
	Measured     unit.Energy `json:"measured_uj"`
	Attributed   unit.Energy `json:"attributed_uj"`
	Idle         unit.Energy `json:"idle_uj"`
	Unattributed unit.Energy `json:"unattributed_uj"`
}

// Owner is the name, the user and the tenant of a job.
type Owner struct {
	Name   string `json:"name"`
	User   string `json:"user,omitempty"`
	Tenant string `json:"tenant,omitempty"`
}

// Spending is the energy that the jobs of a tenant have used in a calendar month.
type Spending struct {
	Tenant string `json:"tenant"`
	// Month is that of UTC, as 2026-01.
	Month  string      `json:"month"`
	Energy unit.Energy `json:"energy_uj"`
}

// NodeSeries is the position up to which the time series of a node are written. It changes by compare-and-swap after
// the points are stored and before the intervals are acknowledged: after a crash in between, the same intervals give
// the same points again.
type NodeSeries struct {
	Node           train.NodeID `json:"node"`
	Boot           string       `json:"boot"`
	Sequence       uint64       `json:"sequence"`
	StreamSequence uint64       `json:"stream_sequence"`
	// To is the end of the last interval. Jobs ran in it; a gap before the next interval is charged to them.
	To   time.Time     `json:"to,omitzero"`
	Jobs []train.JobID `json:"jobs,omitempty"`
	// Energy adds up what each meter measured since the first interval, without wraps and resets. The key is the
	// component and its device.
	Energy map[string]unit.Energy `json:"energy_uj"`
	// Missing counts intervals that were measured and had left the stream before they were read.
	Missing uint64 `json:"missing,omitempty"`
}

// JobSeries is what the time series remember of a job from fact to fact. Like NodeSeries it changes after the
// points are stored.
type JobSeries struct {
	Sequence uint64 `json:"sequence"`
	// Epochs is the number of epochs done when the last one ended.
	Epochs int `json:"epochs"`
	// Policy planned the job first. PredictedFinish and PredictedWatts are its predictions of the end and of the
	// devices' power.
	Policy          string    `json:"policy,omitempty"`
	PredictedFinish time.Time `json:"predicted_finish,omitzero"`
	PredictedWatts  float64   `json:"predicted_w,omitempty"`
}
