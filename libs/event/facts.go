package event

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Submitted is a submission: publishing it is all that it takes to submit a job.
type Submitted struct {
	train.Spec
}

// Admitted says that a job was accepted and will run.
type Admitted struct {
	// Spec is the submission with its defaults filled in, identity applied and paths resolved.
	Spec train.Spec `json:"spec"`
	// Position is the place in the queue at that moment, from 1 on.
	Position int `json:"position"`
}

// Rejected refuses a submission, with every reason at once.
type Rejected struct {
	Reasons []train.Reason `json:"reasons"`
	// Message is the reasons in words.
	Message string `json:"message"`
	// Infeasible is set when the job is well-formed but can never run here.
	Infeasible bool `json:"infeasible,omitempty"`
}

// Conflicted answers a second, different submission under an id that is taken: the first one stands.
type Conflicted struct {
	Message string `json:"message"`
}

// Tuned says with which batch size a job of a recurring group trains.
type Tuned struct {
	// Group is the tenant's name for the jobs that come again and again.
	Group string `json:"group"`
	// BatchSize is the one chosen, Submitted the one in the submission, both per device.
	BatchSize int `json:"batch_size"`
	Submitted int `json:"submitted_batch_size"`
	// Recurrences is how many jobs of the group had reached their target before.
	Recurrences int `json:"recurrences"`
}

// Queued says why a job waits.
type Queued struct {
	Generation uint64         `json:"generation"`
	Blockers   []train.Reason `json:"blockers"`
	Position   int            `json:"position"`
	// StartInSeconds is the predicted wait; 0 when unknown.
	StartInSeconds float64 `json:"start_in_seconds,omitempty"`
}

// Planned says that a plan gives the job these devices.
type Planned struct {
	Generation       uint64           `json:"generation"`
	Node             train.NodeID     `json:"node"`
	Devices          []train.DeviceID `json:"devices"`
	Reason           train.Reason     `json:"reason"`
	RemainingSeconds float64          `json:"remaining_seconds,omitempty"`
	// PowerWatts is what the devices are predicted to draw together: what the power budget counts. Left out for a job that shares its device.
	PowerWatts float64 `json:"power_w,omitempty"`
}

// Started says that the processes of an attempt were started.
type Started struct {
	Attempt    int              `json:"attempt"`
	Generation uint64           `json:"generation"`
	Node       train.NodeID     `json:"node"`
	Devices    []train.DeviceID `json:"devices"`
	// Parts are set for a gang over several nodes; Node is then that of the first rank, and Devices are those of all.
	Parts      []train.Part `json:"parts,omitempty"`
	EpochsDone int          `json:"epochs_done"`
	// Servers is how many parameter servers were started beside the processes of the devices.
	Servers int `json:"servers,omitempty"`
	// Mounts is false where /custom, /snapshots and /data are given by environment variables instead.
	Mounts bool `json:"mounts"`
}

// EpochEnded says that the training code finished an epoch.
type EpochEnded struct {
	Attempt      int                `json:"attempt"`
	EpochsDone   int                `json:"epochs_done"`
	EpochSeconds float64            `json:"epoch_seconds,omitempty"`
	StepSeconds  float64            `json:"step_seconds,omitempty"`
	Steps        int                `json:"steps,omitempty"`
	Samples      int                `json:"samples,omitempty"`
	Loss         *float64           `json:"loss,omitempty"`
	Metrics      map[string]float64 `json:"metrics,omitempty"`
	GradSquared  *float64           `json:"grad_sqr,omitempty"`
	GradVariance *float64           `json:"grad_var,omitempty"`
	MemoryBytes  unit.Bytes         `json:"memory_bytes,omitempty"`
	Devices      int                `json:"devices"`
	// BatchesSince is since when the micro-batches on its devices, of all jobs there, are what they are: the epoch's end while some are tried, zero where none
	// ever were.
	BatchesSince time.Time `json:"batches_since,omitzero"`
}

// CheckpointWritten says that the training code has saved its state.
type CheckpointWritten struct {
	Attempt    int        `json:"attempt"`
	EpochsDone int        `json:"epochs_done"`
	Path       string     `json:"path"`
	Size       unit.Bytes `json:"size_bytes,omitempty"`
	Seconds    float64    `json:"seconds,omitempty"`
}

// StopRequested says that an attempt was asked to leave at its next epoch's end.
type StopRequested struct {
	Attempt int             `json:"attempt"`
	Cause   train.StopCause `json:"cause"`
	Reason  train.Reason    `json:"reason"`
}

// StopWithdrawn says that an attempt which was asked to leave, and had not been told yet, goes on.
type StopWithdrawn struct {
	Attempt int `json:"attempt"`
	// Cause is why it had been asked to.
	Cause train.StopCause `json:"cause,omitempty"`
	// Generation is that of the newest plan, which gives it what it has.
	Generation uint64 `json:"generation"`
}

// Preempted says that an attempt left as asked; the job goes on from its checkpoint.
type Preempted struct {
	Attempt    int             `json:"attempt"`
	Cause      train.StopCause `json:"cause"`
	EpochsDone int             `json:"epochs_done"`
	// Forced is set when the grace period ran out and the processes were killed.
	Forced bool `json:"forced,omitempty"`
}

// AttemptLost says that an attempt was killed or vanished; another one follows from the last checkpoint.
type AttemptLost struct {
	Attempt      int        `json:"attempt"`
	EpochsDone   int        `json:"epochs_done"`
	Exit         train.Exit `json:"exit"`
	RetrySeconds float64    `json:"retry_seconds"`
}

// Reestimated corrects the estimate of the whole run.
type Reestimated struct {
	EpochsDone int `json:"epochs_done"`
	// TotalSeconds is the predicted run time of the job, RemainingSeconds what is left of it, with an interval.
	TotalSeconds         float64 `json:"total_seconds"`
	RemainingSeconds     float64 `json:"remaining_seconds"`
	RemainingLowSeconds  float64 `json:"remaining_low_seconds"`
	RemainingHighSeconds float64 `json:"remaining_high_seconds"`
	// PriorityPenalty is set for a job that outruns the user's estimate; Warning says it in words.
	PriorityPenalty int    `json:"priority_penalty,omitempty"`
	Warning         string `json:"warning,omitempty"`
}

// Straggling says that a worker of an attempt holds up the others. It is told once of an attempt; a plan may then replace the worker's device.
type Straggling struct {
	train.Straggler
	// Workers is how many were compared.
	Workers int `json:"workers"`
}

// Outgrew says that an attempt uses more of a device that it shares than its part. The job is planned with NeedsBytes from then on: the attempt leaves at its
// next epoch's end, and its neighbours stay.
type Outgrew struct {
	Attempt int            `json:"attempt"`
	Node    train.NodeID   `json:"node"`
	Device  train.DeviceID `json:"device"`
	// Part is what it has of the device, Used the most that was measured, Needs that with a margin.
	Part  unit.Bytes `json:"part_bytes"`
	Used  unit.Bytes `json:"used_bytes"`
	Needs unit.Bytes `json:"needs_bytes"`
}

// Converged says that the loss has converged by the rule of the submission; the job is asked to leave and has then succeeded.
type Converged struct {
	EpochsDone int `json:"epochs_done"`
	// LossDecrease is the fall of the fitted loss in the last of those epochs.
	LossDecrease float64 `json:"loss_decrease"`
}

// Overspent says that a job has cost more than its group is ready to pay for one; the job is asked to leave and has then failed.
type Overspent struct {
	// Group is the tenant's name for the jobs that come again and again.
	Group string `json:"group"`
	// CostJoules is what it has cost, by what energy counts against time for it, and CeilingJoules the most that it may.
	CostJoules    float64 `json:"cost_joules"`
	CeilingJoules float64 `json:"ceiling_joules"`
}

// CancelRequested asks for the end of a job.
type CancelRequested struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Succeeded ends a job well.
type Succeeded struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// Note says what a person should know, e.g. that fewer epochs than asked were reported.
	Note string `json:"note,omitempty"`
}

// Failed ends a job that cannot go on.
type Failed struct {
	Attempt    int          `json:"attempt"`
	EpochsDone int          `json:"epochs_done"`
	Exit       train.Exit   `json:"exit"`
	Reason     train.Reason `json:"reason"`
}

// Cancelled ends a job as asked.
type Cancelled struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
}

// PlanDecided is the one message that holds the whole plan, stored with the expected last sequence: of two planners one loses.
type PlanDecided struct {
	train.Plan
}

// DecisionRecorded is one part of what a published plan was decided on. All parts together, in their order, are gzip of the planner's JSON.
type DecisionRecorded struct {
	Generation uint64 `json:"generation"`
	// Part counts from 1 to Parts.
	Part  int    `json:"part"`
	Parts int    `json:"parts"`
	Data  []byte `json:"data"`
}

// Stepped is a heartbeat of training code between two epochs.
type Stepped struct {
	Job         train.JobID `json:"job"`
	Attempt     int         `json:"attempt"`
	Rank        int         `json:"rank"`
	Step        int         `json:"step"`
	Epoch       int         `json:"epoch"`
	Steps       int         `json:"steps,omitempty"`
	StepSeconds float64     `json:"step_seconds"`
	// WaitSeconds is the part of StepSeconds in which the process waited for the gradients of the others.
	WaitSeconds  float64            `json:"wait_seconds,omitempty"`
	Samples      int                `json:"samples,omitempty"`
	Loss         *float64           `json:"loss,omitempty"`
	Metrics      map[string]float64 `json:"metrics,omitempty"`
	GradSquared  *float64           `json:"grad_sqr,omitempty"`
	GradVariance *float64           `json:"grad_var,omitempty"`
	MemoryBytes  unit.Bytes         `json:"memory_bytes,omitempty"`
	Devices      int                `json:"devices"`
	// MicroBatch is the number of samples of a pass, told by code that can change it. Generation is that of the tuning which it follows; 0 where there is none.
	MicroBatch int    `json:"micro_batch,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

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

// ProbesCounted is what one agent counted of probes in a slot: of its own flows what it sent, of those of others what has arrived. A flow that is not
// listed as received in a slot was not received at all.
type ProbesCounted struct {
	// Slot is the number of the slot since 1970.
	Slot int64 `json:"slot"`
	// Sent are the node's own flows.
	Sent []train.SentProbes `json:"sent"`
	// Received are the flows of others that lead to the node.
	Received []train.ReceivedProbes `json:"received"`
	// Late are flows of others of which probes came that belong to no slot that could still be told.
	Late []train.LateProbes `json:"late,omitempty"`
	// Stalled says that the agent did not get to run for a while of the slot, and counted nothing.
	Stalled bool `json:"stalled,omitempty"`
}

// LinksJudged is what the probes of a window showed of links. Those of a large network come in parts.
type LinksJudged struct {
	// Slot is the number of the window's last slot since 1970.
	Slot int64 `json:"slot"`
	// Links are all that are probed, or a part of them.
	Links []train.LinkWindow `json:"links"`
}

// LinkDegraded says that a link has come to lose packets, or to delay them.
type LinkDegraded struct {
	// Link is its state now.
	Link train.Link `json:"link"`
}

// LinkRecovered says that a link does so no more.
type LinkRecovered struct {
	// Link is its state now; loss and delay are the last that were seen.
	Link train.Link `json:"link"`
}

// Poisoned keeps a message that could not be handled.
type Poisoned struct {
	Subject  string `json:"subject"`
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Consumer string `json:"consumer"`
	Reason   string `json:"reason"`
	// Body is the beginning of the message, SizeBytes its whole size.
	Body      string `json:"body"`
	SizeBytes int    `json:"size_bytes"`
}
