// Package state holds what a decision rests on: the cluster, the jobs and the terms, as they are recorded with each
// plan. Nothing in here decides anything, and no phase of a decision alters it.
package state

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// State is everything a decision rests on. Nodes and jobs may come in any order.
type State struct {
	Now   time.Time    `json:"now"`
	Nodes []train.Node `json:"nodes"`
	// Exclusions keep jobs off nodes and devices: what is cordoned, drained or silent.
	Exclusions []train.Exclusion `json:"exclusions,omitempty"`
	// Jobs are admitted and have not ended.
	Jobs []Job `json:"jobs"`
	// Behind are the jobs at the end of a long queue, in its order: the decision does not weigh them.
	Behind []train.JobID `json:"behind,omitempty"`
	Tuning Tuning        `json:"tuning"`
	// Quotas are the most devices that the jobs of a tenant may hold together. A tenant without an entry has no quota.
	Quotas map[string]int `json:"quotas,omitempty"`
	// EnergyQuotas are those of the tenants that have one.
	EnergyQuotas map[string]EnergyQuota `json:"energy_quotas,omitempty"`
	// Shares are those of the tenants that have some. If any has, Balances compare what tenants have used with them.
	Shares   map[string]float64 `json:"shares,omitempty"`
	Balances map[string]Balance `json:"balances,omitempty"`
	// PowerBudgetWatts bounds what all devices together are predicted to draw, idle ones included (0: no bound).
	PowerBudgetWatts float64 `json:"power_budget_watts,omitempty"`
	// Rates are the forecast costs of energy.
	Rates Rates `json:"rates,omitempty"`
	// Interference is what was measured of jobs that share a device, by the key of the device (curve.InterferenceKey).
	Interference map[string]*curve.Interference `json:"interference,omitempty"`
	// Links are the links of the network that lose or delay packets.
	Links []Link `json:"links,omitempty"`
	// IntervalSeconds is the time between decisions, if they come at intervals.
	IntervalSeconds float64 `json:"interval_seconds,omitempty"`
	// Memory is Plan.Memory of the last plan. Seed is for policies that search at random.
	Memory string `json:"memory,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// EnergyQuota is how much energy the jobs of a tenant may use in a period, and how much they have used. From Until on,
// when the period is over, it bounds nothing.
type EnergyQuota struct {
	Allowed unit.Energy `json:"allowed_uj"`
	Used    unit.Energy `json:"used_uj"`
	Until   time.Time   `json:"until"`
}

// Reached says whether jobs that wait must wait until the next period.
func (q EnergyQuota) Reached(now time.Time) bool { return q.Used >= q.Allowed && now.Before(q.Until) }

// Job holds what the planner needs to know about a job.
type Job struct {
	ID   train.JobID `json:"id"`
	Spec train.Spec  `json:"spec"`
	// Priority is the effective one; higher goes first.
	Priority    int       `json:"priority"`
	SubmittedAt time.Time `json:"submitted_at"`
	EpochsDone  int       `json:"epochs_done"`
	RunSeconds  float64   `json:"run_seconds"`
	// CancelRequested is set while a job has to leave, whatever a plan says.
	CancelRequested bool         `json:"cancel_requested,omitempty"`
	Model           *train.Model `json:"model,omitempty"`
	// Running is the live attempt. Planned is what the last plan gave, applied or not: the planner keeps it while it is
	// being applied.
	Running *Running `json:"running,omitempty"`
	Planned *Holding `json:"planned,omitempty"`
	// Withheld is why people keep a job that waits from its devices.
	Withheld *train.Reason `json:"withheld,omitempty"`

	// OnlyNodes, if there are any, are the nodes on which the job may start: those where the scheduler of the cluster
	// would start a pod of no job.
	OnlyNodes []train.NodeID `json:"only_nodes,omitempty"`
	// Awaits are the jobs that must have ended before this one starts.
	Awaits []train.Dependency `json:"awaits,omitempty"`
	// WantsDevices is the number of devices that the experiment of the job wants it to run on; 0 if it has no wish. With
	// Resized it is what its spec asks for, which was edited while the job ran on more or fewer.
	WantsDevices int  `json:"wants_devices,omitempty"`
	Resized      bool `json:"resized,omitempty"`
	// BatchDevices is the number of devices for which the batch size of the job is meant: on others a step has as many
	// samples. 0: the batch size holds for each device of any number.
	BatchDevices int `json:"batch_devices,omitempty"`
	// Done is how many epochs are done by the steps of the job, fractions included; 0 if it reports none.
	Done float64 `json:"done,omitempty"`

	// Restarts counts the starts after the first one. DeviceSeconds is the device time of all attempts.
	Restarts      int     `json:"restarts,omitempty"`
	DeviceSeconds float64 `json:"device_seconds,omitempty"`
	// RecentRestarts counts how often plans moved or resized the job within the last hour.
	RecentRestarts int `json:"recent_restarts,omitempty"`
	// Outgrown is set if the job uses more memory of a device than its part. Its Spec then asks for what it needs, with a
	// margin.
	Outgrown bool `json:"outgrown,omitempty"`
	// Slow are the devices on which a worker of the job held up the others.
	Slow []train.Straggler `json:"slow,omitempty"`
}

// Holding is devices of one node, or the parts of a gang over several.
type Holding struct {
	Node    train.NodeID     `json:"node"`
	Devices []train.DeviceID `json:"devices"`
	// Memory and Beside are those of the allocation: a part of a device that is shared, and the job that had it first.
	Memory unit.Bytes  `json:"memory_bytes,omitempty"`
	Beside train.JobID `json:"beside,omitempty"`
	// Parts are set instead where there are several.
	Parts []train.Part `json:"parts,omitempty"`
	// Servers are the job's parameter servers.
	Servers []train.ServerPart `json:"servers,omitempty"`
}

// Places are the parts of the holding, also if it lies on one node.
func (h Holding) Places() []train.Part {
	if len(h.Parts) > 0 {
		return h.Parts
	}
	return []train.Part{{Node: h.Node, Devices: h.Devices, Memory: h.Memory}}
}

// Same says whether two holdings are the same devices, and as much of them, and as many parameter servers on each node.
func (h Holding) Same(o Holding) bool {
	return slices.EqualFunc(h.Places(), o.Places(), train.Part.Same) && train.SameServers(h.Servers, o.Servers)
}

// Size is the number of devices.
func (h Holding) Size() int { return len(train.AllDevices(h.Places())) }

// HoldingOf is what a plan gives to a job.
func HoldingOf(a train.Allocation) Holding {
	return Holding{Node: a.Node, Devices: a.Devices, Memory: a.Memory, Beside: a.Beside, Parts: a.Parts, Servers: a.Servers}
}

// Running is a live attempt.
type Running struct {
	Holding
	// StopPending is set when it was asked to leave.
	StopPending bool `json:"stop_pending,omitempty"`
	// Seconds since it started, Epochs that it has finished, both of this attempt alone.
	Seconds float64 `json:"seconds"`
	Epochs  int     `json:"epochs"`
	// Spoke says that it can be asked to leave: its code has called the job API, or gets a signal.
	Spoke bool `json:"spoke,omitempty"`
	// Saved says that there is a checkpoint of the job. NextSaveSeconds is the predicted time to its next one; 0 if
	// unknown.
	Saved           bool    `json:"saved,omitempty"`
	NextSaveSeconds float64 `json:"next_save_seconds,omitempty"`
	// AnyStep says that its code can stop after any step, and need not finish its epoch.
	AnyStep bool `json:"any_step,omitempty"`
	// Tuned says that micro-batches are tried on its devices, or were a moment ago: its steps show no more than a trial.
	Tuned bool `json:"tuned,omitempty"`
}

// Unasked says that the attempt cannot be asked to leave, and was not before it fell silent.
func (r *Running) Unasked() bool { return !r.Spoke && !r.StopPending }

// Measured says whether the running attempt has shown how fast it is where it runs, and may be resized or moved for
// that: it has ended an epoch, or its code can stop after any step and its model knows the time of its steps there.
func (j *Job) Measured() bool {
	r := j.Running
	switch {
	case r == nil || r.Tuned:
		return false
	case r.Epochs >= 1:
		return true
	case !r.AnyStep || !(r.NextSaveSeconds > 0) || j.Model == nil:
		return false
	}
	servers := train.CountServers(r.Servers)
	return slices.ContainsFunc(j.Model.Speed.Measured, func(m train.Measured) bool {
		return m.Workers == r.Size() && m.Nodes == len(r.Places()) && m.Servers == servers
	})
}

// nearSave is how many seconds before its first checkpoint a job may be asked to leave. It then leaves as soon as it
// has one, and not an epoch later.
const nearSave = 600

// WouldLoseAll says whether a job that runs, and could be asked to leave, has no checkpoint to go on from, and will not
// have one soon.
func (j *Job) WouldLoseAll(t *Tuning) bool {
	r := j.Running
	if r == nil || !r.Spoke || r.StopPending || !t.AtEpochs || t.PreemptUnsaved {
		return false
	}
	saved := r.Saved || r.Epochs > 0 || j.EpochsDone > 0
	return !saved && !(r.NextSaveSeconds > 0 && r.NextSaveSeconds <= nearSave)
}

// Tuning are the parameters of a decision; zero values stand for the defaults.
type Tuning struct {
	// RestartSeconds is the price of a restart: the measured mean where it is known (default 3).
	RestartSeconds float64 `json:"restart_seconds,omitempty"`
	// Hysteresis is the share of a job's remaining time that a change of its allocation must save beyond the price of the
	// restart (default 0.1).
	Hysteresis float64 `json:"hysteresis,omitempty"`
	// MinRescaleSeconds is the least age of an attempt that is rescaled (default 10); it has then finished an epoch, too.
	MinRescaleSeconds float64 `json:"min_rescale_seconds,omitempty"`
	// YoungFactor scales the gains of jobs with fewer than YoungEpochs observed epochs (defaults 0.95 and 3, as in
	// Optimus).
	YoungFactor float64 `json:"young_factor,omitempty"`
	YoungEpochs int     `json:"young_epochs,omitempty"`
	// MaxRestartsPerHour bounds how often a job is resized or moved within an hour for the sake of speed (default 6, the
	// 600 s slots of Optimus). Jobs of higher priority may still take its devices.
	MaxRestartsPerHour int `json:"max_restarts_per_hour,omitempty"`
	// UnknownSeconds is the assumed remaining time where neither a model, nor the user, nor other jobs say anything
	// (default 600).
	UnknownSeconds float64 `json:"unknown_seconds,omitempty"`
	// LinkLossBound is the loss from which on a gang is kept off a link (default 0.001).
	LinkLossBound float64 `json:"link_loss_bound,omitempty"`
	// OneNode says that the back end cannot spread a gang over nodes.
	OneNode bool `json:"one_node,omitempty"`
	// OneRealm says that a gang spans nodes of one realm only (train.Node.Realm).
	OneRealm bool `json:"one_realm,omitempty"`
	// AtEpochs says that a job leaves its devices at the end of an epoch only. An attempt is then moved or resized once it
	// has called the job API, has finished an epoch and is MinRescaleSeconds old.
	AtEpochs bool `json:"at_epochs,omitempty"`
	// PreemptUnsaved lets a job be asked to leave although it has saved nothing yet: it may lose all that it has done.
	PreemptUnsaved bool `json:"preempt_unsaved,omitempty"`
	// StarvationSeconds and FairnessBound are the bounds that Switchyard keeps (see there); StarvationSeconds is 4 h by
	// default, and a FairnessBound of 0 is none.
	StarvationSeconds float64 `json:"starvation_seconds,omitempty"`
	FairnessBound     float64 `json:"fairness_bound,omitempty"`
	// UsageHalfLifeSeconds is the time after which device time that a tenant has used counts half (default 7 days).
	UsageHalfLifeSeconds float64 `json:"usage_half_life_seconds,omitempty"`
	// EnergyWeight, from 0 to 1, is how much energy for each step of progress counts against time.
	EnergyWeight float64 `json:"energy_weight,omitempty"`
}

// WithDefaults fills in zero values.
func (t Tuning) WithDefaults() Tuning {
	fill := func(x *float64, value float64) {
		if !(*x > 0) {
			*x = value
		}
	}
	fill(&t.RestartSeconds, 3)
	fill(&t.Hysteresis, 0.1)
	fill(&t.MinRescaleSeconds, 10)
	fill(&t.YoungFactor, 0.95)
	fill(&t.LinkLossBound, 0.001)
	fill(&t.UnknownSeconds, 600)
	fill(&t.StarvationSeconds, 4*3600)
	fill(&t.UsageHalfLifeSeconds, 7*24*3600)
	if t.YoungEpochs <= 0 {
		t.YoungEpochs = 3
	}
	if t.MaxRestartsPerHour <= 0 {
		t.MaxRestartsPerHour = 6
	}
	return t
}
