package event

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Submitted is a submission: publishing it is enough to submit a job.
type Submitted struct {
	train.Spec
}

// Admitted says that a job was accepted and will run.
type Admitted struct {
	// Spec is the submission with its defaults filled in, identity applied and paths resolved.
	Spec train.Spec `json:"spec"`
	// Position is the place in the queue at that moment, from 1 on.
	Position int `json:"position"`
	// Ended has the final states of the jobs in spec.after that had ended before.
	Ended map[train.JobID]train.State `json:"after_ended,omitempty"`
	// From is how far the job in spec.continue was in its checkpoints.
	From Saved `json:"from,omitzero"`
	// Seal is admission's signature of the id and the spec.
	Seal []byte `json:"seal,omitempty"`
}

// Saved is how far a job is in its checkpoints.
type Saved struct {
	EpochsDone int `json:"epochs_done"`
	// EpochStep counts the steps of the epoch after them, EpochSteps is how many that epoch has.
	EpochStep  int `json:"epoch_step,omitempty"`
	EpochSteps int `json:"epoch_steps,omitempty"`
	// Path is the newest checkpoint, if it was reported.
	Path string `json:"path,omitempty"`
}

// DependencyEnded says that a job for which this one waits has ended.
type DependencyEnded struct {
	// Job is the id of that job, State its final state.
	Job   train.JobID `json:"job"`
	State train.State `json:"state"`
}

// Rejected refuses a submission, with every reason at once.
type Rejected struct {
	Reasons []train.Reason `json:"reasons"`
	// Message is all reasons in words.
	Message string `json:"message"`
	// Infeasible is set if the job is well-formed but can never run here.
	Infeasible bool `json:"infeasible,omitempty"`
}

// Conflicted answers a second, different submission under the same id: the first one stands.
type Conflicted struct {
	Message string `json:"message"`
}

// Tuned reports the batch size chosen for a job of a recurring group.
type Tuned struct {
	// Group is the tenant's name for the recurring jobs.
	Group string `json:"group"`
	// BatchSize is the chosen size, Submitted the size in the submission, both per device.
	BatchSize int `json:"batch_size"`
	Submitted int `json:"submitted_batch_size"`
	// Recurrences is the number of jobs of the group that had reached their target before.
	Recurrences int `json:"recurrences"`
}

// Queued says why a job waits.
type Queued struct {
	Generation uint64         `json:"generation"`
	Blockers   []train.Reason `json:"blockers"`
	// Position is the place in the queue at that moment, from 1 on.
	Position int `json:"position"`
	// StartInSeconds is the predicted wait; 0 if unknown.
	StartInSeconds float64 `json:"start_in_seconds,omitempty"`
}

// Planned says that a plan gives the job these devices.
type Planned struct {
	Generation uint64           `json:"generation"`
	Node       train.NodeID     `json:"node"`
	Devices    []train.DeviceID `json:"devices"`
	// Parts are set for a gang over several nodes, as in Started.
	Parts            []train.Part `json:"parts,omitempty"`
	Reason           train.Reason `json:"reason"`
	RemainingSeconds float64      `json:"remaining_seconds,omitempty"`
	// RemainingLowSeconds and RemainingHighSeconds bound the rest in eight of ten cases.
	RemainingLowSeconds  float64 `json:"remaining_low_seconds,omitempty"`
	RemainingHighSeconds float64 `json:"remaining_high_seconds,omitempty"`
	// PowerWatts is the predicted power of the devices together, which counts against the power budget. Left out for a
	// job that shares its device.
	PowerWatts float64 `json:"power_w,omitempty"`
}

// Started says that the processes of an attempt were started.
type Started struct {
	Attempt    int              `json:"attempt"`
	Generation uint64           `json:"generation"`
	Node       train.NodeID     `json:"node"`
	Devices    []train.DeviceID `json:"devices"`
	// Machine is the machine that keeps the output, if that is not Node: it presents itself as several nodes.
	Machine train.NodeID `json:"machine,omitempty"`
	// Parts are set for a gang over several nodes; Node is then that of the first rank, and Devices are the devices of
	// all nodes.
	Parts []train.Part `json:"parts,omitempty"`
	// Memory is its part of the memory of each device of Devices; 0 is the whole device.
	Memory     unit.Bytes `json:"memory_bytes,omitempty"`
	EpochsDone int        `json:"epochs_done"`
	// FromScratch is set if the job had saved its state, and nothing of it is left.
	FromScratch bool `json:"from_scratch,omitempty"`
	// Enforcement is what holds the attempt to its part of its devices.
	Enforcement train.Enforcement `json:"enforcement,omitempty"`
	// Servers is the number of parameter servers started beside the processes of the devices.
	Servers int `json:"servers,omitempty"`
	// BatchSize is the number of samples per device and pass, if it differs from the submitted one: more devices share
	// out the same step.
	BatchSize int `json:"batch_size,omitempty"`
	// Mounts is false if environment variables give the paths of /custom, /snapshots and /data instead.
	Mounts bool `json:"mounts"`
}

// Places returns the parts of the attempt, for one node as well.
func (b *Started) Places() []train.Part {
	return train.Attempt{Node: b.Node, Devices: b.Devices, Memory: b.Memory, Parts: b.Parts}.Places()
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
	// Batch is the batch that the code ran with, if it says so.
	Batch train.Batch `json:"batch,omitzero"`
	// BatchIgnored is set if the code was asked for a batch and ran with its own.
	BatchIgnored bool `json:"batch_ignored,omitempty"`
	// BatchesSince is the time since which the micro-batches of all jobs on its devices have not changed, as the node's
	// agent sees it: the epoch's end while some are being tried, zero if none were ever tuned.
	BatchesSince time.Time `json:"batches_since,omitzero"`
}

// CheckpointWritten says that the training code has saved its state.
type CheckpointWritten struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// EpochStep counts the steps of the epoch after them in it, EpochSteps is how many that epoch has.
	EpochStep  int        `json:"epoch_step,omitempty"`
	EpochSteps int        `json:"epoch_steps,omitempty"`
	Path       string     `json:"path"`
	Size       unit.Bytes `json:"size_bytes,omitempty"`
	Seconds    float64    `json:"seconds,omitempty"`
}

// StopRequested says that an attempt was asked to stop at its next epoch's end.
type StopRequested struct {
	Attempt int             `json:"attempt"`
	Cause   train.StopCause `json:"cause"`
	Reason  train.Reason    `json:"reason"`
	// AnyStep is set if its code can stop after any step.
	AnyStep bool `json:"any_step,omitempty"`
	// Signal is the signal that asks it, if its code does not call the job API.
	Signal string `json:"signal,omitempty"`
}

// StopWithdrawn says that an attempt goes on: it was asked to stop, but its code had not yet received the request.
type StopWithdrawn struct {
	Attempt int `json:"attempt"`
	// Cause is the cause of the request.
	Cause train.StopCause `json:"cause,omitempty"`
	// Generation is that of the newest plan, which gives the attempt what it has.
	Generation uint64 `json:"generation"`
}

// Preempted says that an attempt stopped as asked; the job goes on from its checkpoint.
type Preempted struct {
	Attempt    int             `json:"attempt"`
	Cause      train.StopCause `json:"cause"`
	EpochsDone int             `json:"epochs_done"`
	// Forced is set if the grace period ran out and the processes were killed.
	Forced bool `json:"forced,omitempty"`
	train.Resume
}

// AttemptLost says that an attempt failed, was killed or vanished; another attempt follows from the last checkpoint.
type AttemptLost struct {
	Attempt      int        `json:"attempt"`
	EpochsDone   int        `json:"epochs_done"`
	Exit         train.Exit `json:"exit"`
	RetrySeconds float64    `json:"retry_seconds"`
	// Retry is the number of the retry that follows, if the program itself ended with a status other than 0.
	Retry int `json:"retry,omitempty"`
	train.Resume
	// Needs is the memory of each device with which the job is planned from then on, if it was held to a part that was
	// too small.
	Needs unit.Bytes `json:"needs_bytes,omitempty"`
	// Enlarged says that the attempt was asked for optimizer steps larger than submitted.
	Enlarged bool `json:"enlarged,omitempty"`
	Ran
}

// Ran says where an attempt ran, and from when on.
type Ran struct {
	// Places are its devices, ClaimedAt is when it got them.
	Places    []train.Part `json:"places,omitempty"`
	ClaimedAt time.Time    `json:"claimed_at,omitzero"`
}

// Reestimated corrects the estimate of the whole run.
type Reestimated struct {
	EpochsDone int `json:"epochs_done"`
	// TotalSeconds is the predicted run time of the job, RemainingSeconds the rest of it, with an interval.
	TotalSeconds         float64 `json:"total_seconds"`
	RemainingSeconds     float64 `json:"remaining_seconds"`
	RemainingLowSeconds  float64 `json:"remaining_low_seconds"`
	RemainingHighSeconds float64 `json:"remaining_high_seconds"`
	// PriorityPenalty is set for a job that exceeds the user's estimate; Warning says it in words.
	PriorityPenalty int    `json:"priority_penalty,omitempty"`
	Warning         string `json:"warning,omitempty"`
}

// Straggling says that a worker of an attempt holds up the others. It is published once per attempt; a plan may then
// replace the worker's device.
type Straggling struct {
	train.Straggler
	// Workers is the number of workers compared.
	Workers int `json:"workers"`
}

// Outgrew says that an attempt uses more of a shared device than its part. The job is planned with NeedsBytes from then
// on: the attempt stops at its next epoch's end, and its co-runners stay.
type Outgrew struct {
	Attempt int            `json:"attempt"`
	Node    train.NodeID   `json:"node"`
	Device  train.DeviceID `json:"device"`
	// Part is its part of the device, Used the highest measured use, Needs that with a margin.
	Part  unit.Bytes `json:"part_bytes"`
	Used  unit.Bytes `json:"used_bytes"`
	Needs unit.Bytes `json:"needs_bytes"`
}

// Converged says that the loss has converged by the rule of the submission; the job is asked to stop and has then
// succeeded.
type Converged struct {
	EpochsDone int `json:"epochs_done"`
	// LossDecrease is the fall of the fitted loss in the last of those epochs.
	LossDecrease float64 `json:"loss_decrease"`
}

// Overspent says that a job has cost more than its group is ready to pay for one job; the job is asked to stop and has
// then failed.
type Overspent struct {
	// Group is the tenant's name for the recurring jobs.
	Group string `json:"group"`
	// CostJoules is its cost, with time weighted against energy, and CeilingJoules the most that it may cost.
	CostJoules    float64 `json:"cost_joules"`
	CeilingJoules float64 `json:"ceiling_joules"`
}

// CancelRequested asks for the end of a job.
type CancelRequested struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Wanted asks for another state of a job, from now on.
type Wanted struct {
	// State: held (no attempt starts), paused (likewise, and an attempt that runs leaves by its checkpoint) or run, which
	// ends both and also resumes a job that failed or was cancelled, from its checkpoint.
	State train.Want `json:"state"`
	// Requeue makes an attempt that runs leave by its checkpoint, and puts the job at the end of the queue. With run it
	// also ends a hold or a pause; with the state that a held or paused job has, only its place changes.
	Requeue bool `json:"requeue,omitempty"`
	// Force ends an attempt that has to leave and cannot be asked to.
	Force  bool   `json:"force,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// EditRequested asks for other values of keys of a job's spec. Admission checks them as those of a submission.
type EditRequested struct {
	train.Edit
	// ID is the sender's own word for the request, by which it finds the answer.
	ID     string `json:"id,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// EditDecided answers a request to change a job's spec.
type EditDecided struct {
	// Edit is what changes: nothing if the request is refused.
	train.Edit
	// Request is the sequence of the request in the stream; ID, By and Reason are those of the request.
	Request uint64 `json:"request"`
	ID      string `json:"id,omitempty"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Refused is why the spec stays as it is.
	Refused []train.Reason `json:"refused,omitempty"`
}

// Succeeded ends a job as a success.
type Succeeded struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// Note is a remark for people, e.g. that fewer epochs than asked were reported.
	Note string `json:"note,omitempty"`
	// Resumed is how often the job had been resumed before: it ends the job only if it has not been resumed since.
	Resumed int `json:"resumed,omitempty"`
}

// Failed ends a job that cannot go on.
type Failed struct {
	Attempt    int          `json:"attempt"`
	EpochsDone int          `json:"epochs_done"`
	Exit       train.Exit   `json:"exit"`
	Reason     train.Reason `json:"reason"`
	// Enlarged says that the attempt was asked for optimizer steps larger than submitted.
	Enlarged bool `json:"enlarged,omitempty"`
	// Resumed is how often the job had been resumed before.
	Resumed int `json:"resumed,omitempty"`
	Ran
}

// Cancelled ends a job as asked.
type Cancelled struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// Resumed is how often the job had been resumed before.
	Resumed int `json:"resumed,omitempty"`
}

// PlanDecided is the one message that holds the whole plan, stored with the expected last sequence: of two planners one
// loses.
type PlanDecided struct {
	train.Plan
}

// DecisionRecorded is one part of the input of a published plan. All parts together, in their order, are gzip of the
// planner's JSON.
type DecisionRecorded struct {
	Generation uint64 `json:"generation"`
	// Part counts from 1 to Parts.
	Part  int    `json:"part"`
	Parts int    `json:"parts"`
	Data  []byte `json:"data"`
}

// Stepped is a heartbeat of training code between two epochs.
type Stepped struct {
	Job     train.JobID `json:"job"`
	Attempt int         `json:"attempt"`
	Rank    int         `json:"rank"`
	Step    int         `json:"step"`
	Epoch   int         `json:"epoch"`
	// EpochStep counts the steps of the epoch so far, EpochSteps is how many it has; both only from code that says so.
	EpochStep   int     `json:"epoch_step,omitempty"`
	EpochSteps  int     `json:"epoch_steps,omitempty"`
	Steps       int     `json:"steps,omitempty"`
	StepSeconds float64 `json:"step_seconds"`
	// WaitSeconds is the part of StepSeconds in which the process waited for the gradients of the others.
	WaitSeconds  float64            `json:"wait_seconds,omitempty"`
	Samples      int                `json:"samples,omitempty"`
	Loss         *float64           `json:"loss,omitempty"`
	Metrics      map[string]float64 `json:"metrics,omitempty"`
	GradSquared  *float64           `json:"grad_sqr,omitempty"`
	GradVariance *float64           `json:"grad_var,omitempty"`
	MemoryBytes  unit.Bytes         `json:"memory_bytes,omitempty"`
	Devices      int                `json:"devices"`
	// MicroBatch is the number of samples of a pass, from code that can change it. Generation is that of the tuning it
	// follows; 0 for none.
	MicroBatch int    `json:"micro_batch,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	// Batch is the batch that the code runs with, if it says so.
	Batch train.Batch `json:"batch,omitzero"`
}

// Poisoned holds a message that could not be handled.
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
