// Package train holds the nouns of Switchyard: jobs, nodes, devices, attempts, plans, models of jobs, and the table of
// states with the legal transitions between them. It reads no clock and does no I/O.
package train

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// JobID is the public name of a job: one token of a NATS subject and one component of a path.
type JobID string

// MaxIDLength is the longest job or node id.
const MaxIDLength = 64

// isID says whether s has the form of a job id. No regular expression: each report of each job comes by here.
func isID(s string) bool {
	letter := func(r rune) bool { return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }
	other := func(r rune) bool { return !letter(r) && r != '_' && r != '-' }
	return s != "" && len(s) <= MaxIDLength && letter(rune(s[0])) && !strings.ContainsFunc(s, other)
}

// ParseJobID checks that s is a valid job id.
func ParseJobID(s string) (JobID, error) {
	if !isID(s) {
		return "", fmt.Errorf("job id %.80q: want 1 to %d letters, digits, '-' or '_', beginning with a letter or digit",
			s, MaxIDLength)
	}
	return JobID(s), nil
}

// Reason explains something about a job in a form for programs (Code, CamelCase) and in words (Message), with advice
// (Hint).
type Reason struct {
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String returns the reason in words.
func (r Reason) String() string {
	s := r.Message
	if r.Field != "" {
		s = r.Field + ": " + s
	}
	if r.Hint != "" {
		s += " (" + r.Hint + ")"
	}
	return s
}

// Job is the register's record of one job: the fold of all its facts.
type Job struct {
	ID       JobID  `json:"id"`
	Spec     Spec   `json:"spec"`
	SpecHash string `json:"spec_hash"`

	State State `json:"state"`
	// Reason, Message and Hint explain State; Blockers are all reasons while a job waits, the dominant one first.
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Blockers []Reason  `json:"blockers,omitempty"`
	Since    time.Time `json:"since"`
	// Infeasible is set if the job was refused although its submission is right: no node can ever run it.
	Infeasible bool `json:"infeasible,omitempty"`

	SubmittedAt time.Time `json:"submitted_at"`
	AdmittedAt  time.Time `json:"admitted_at,omitzero"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`

	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// EpochStep counts the steps of the epoch after EpochsDone that the newest checkpoint holds; EpochSteps is how many
	// the epoch has, 0 if unknown.
	EpochStep  int `json:"epoch_step,omitempty"`
	EpochSteps int `json:"epoch_steps,omitempty"`
	// BeganAgain is the number of the attempt that began from scratch because no checkpoint was left: what earlier ones
	// still report does not count.
	BeganAgain int `json:"began_again,omitempty"`
	// Checkpoint is the newest checkpoint that the code, or its supervisor, has reported, as the job names it.
	Checkpoint  string `json:"checkpoint,omitempty"`
	Restarts    int    `json:"restarts"` // attempts after the first, whatever the cause
	Rescales    int    `json:"rescales"`
	Preemptions int    `json:"preemptions"`
	Recoveries  int    `json:"recoveries"` // attempts that were killed or lost
	// Retries counts the attempts that followed a status other than 0.
	Retries    int        `json:"retries,omitempty"`
	Devices    []DeviceID `json:"devices,omitempty"`
	Generation uint64     `json:"generation,omitempty"`
	// RunSeconds sums the attempts that have ended, DeviceSeconds sums their time times their devices; AttemptStartedAt
	// is set while an attempt runs.
	RunSeconds       float64   `json:"run_seconds"`
	DeviceSeconds    float64   `json:"device_seconds,omitempty"`
	AttemptStartedAt time.Time `json:"attempt_started_at,omitzero"`

	CancelRequested bool `json:"cancel_requested,omitempty"`
	// Ended has the final states of jobs that this one waited for, by id; ReadyAt is when the last of them had ended.
	Ended   map[JobID]State `json:"after_ended,omitempty"`
	ReadyAt time.Time       `json:"ready_at,omitzero"`
	// Wanted is what people want of the job besides; left out, that it runs.
	Wanted Wanted `json:"wanted,omitzero"`
	// RequeuedAt is when it was last put at the end of the queue.
	RequeuedAt time.Time `json:"requeued_at,omitzero"`
	// Resumed counts how often it was resumed after it had ended.
	Resumed int `json:"resumed,omitempty"`
	// TunedBatch is the batch size that the planner chose for a job of a group, 0 until then. The Spec has it from then
	// on.
	TunedBatch int `json:"tuned_batch_size,omitempty"`
	// SubmittedBatch is the submitted batch size, if another may have been chosen.
	SubmittedBatch int `json:"submitted_batch_size,omitempty"`
	// OwnBatch is set once an epoch of the job ended without the batch that it was asked for: the number of samples of
	// each pass of a device in its place. The job is then planned with that, and asked for no changing batches any more.
	OwnBatch int `json:"own_batch_size,omitempty"`
	// Outgrown is set when an attempt used more memory of a device than its part. The Spec asks for enough from then
	// on.
	Outgrown bool `json:"outgrown,omitempty"`
	// StepsTooLarge is set when an attempt ran out of memory after it was asked for optimizer steps larger than
	// submitted. The job gets none from then on.
	StepsTooLarge bool `json:"steps_too_large,omitempty"`
	// ConvergedEpochs is the number of epochs after which the loss had converged by the user's rule; 0 until then.
	ConvergedEpochs int `json:"converged_epochs,omitempty"`
	// Overspent says in words that the job has cost more than its group is ready to pay for one job, empty until then.
	Overspent string `json:"overspent,omitempty"`
	// EstimateSeconds is the predicted total run; PriorityPenalty is the priority lost by exceeding the user's
	// estimate.
	EstimateSeconds float64 `json:"estimate_seconds,omitempty"`
	PriorityPenalty int     `json:"priority_penalty,omitempty"`
	// FirstPredictedFinish is the first finish predicted after an epoch, PredictedFinish the newest prediction.
	FirstPredictedFinish time.Time `json:"first_predicted_finish,omitzero"`
	// FirstPredictedLow and FirstPredictedHigh are the interval of the first prediction.
	FirstPredictedLow  time.Time `json:"first_predicted_low,omitzero"`
	FirstPredictedHigh time.Time `json:"first_predicted_high,omitzero"`
	// PredictedFinish is the newest prediction.
	PredictedFinish time.Time `json:"predicted_finish,omitzero"`
	ExitCode        *int      `json:"exit_code,omitempty"`
	LogTail         string    `json:"log_tail,omitempty"`
	Warnings        []string  `json:"warnings,omitempty"`

	// Seal is admission's signature of the id, the life (Resumed) and the spec: what may be started.
	Seal []byte `json:"seal,omitempty"`

	// Edits are the newest requests to change the spec.
	Edits []Edited `json:"edits,omitempty"`

	History []Change `json:"history,omitempty"`
	// LastSequence is the stream sequence of the newest fact folded in: older facts are skipped when redelivered.
	LastSequence uint64 `json:"last_sequence"`
}

// EffectivePriority returns the user's priority less the penalty for exceeding the estimate.
func (j Job) EffectivePriority() int {
	p := DefaultPriority
	if j.Spec.Priority != nil {
		p = *j.Spec.Priority
	}
	return p - j.PriorityPenalty
}

// AwaitsBatch reports whether the planner must choose the job's batch size before it can plan the job.
func (j Job) AwaitsBatch() bool { return j.Spec.Recurs() && j.TunedBatch == 0 && j.Spec.Array == "" }

// Tune gives the job the batch size that the planner chose.
func (j *Job) Tune(batchSize int) {
	j.SubmittedBatch = j.Spec.BatchSize
	j.Spec, j.TunedBatch = j.Spec.WithBatchSize(batchSize), batchSize
}

// Assume gives a job whose batch size would still have to be chosen the one that it has, for a question about it: that
// is the first to try.
func (j *Job) Assume() {
	if j.AwaitsBatch() {
		j.Tune(j.Spec.BatchSize)
	}
}

// KeepEnded is how long the services keep their records about a job after its end, so that readers have seen them. The
// register and the ledger keep theirs for longer.
const KeepEnded = time.Hour

// LongEnded reports whether the records about the job may be deleted.
func (j Job) LongEnded(now time.Time) bool {
	return j.State.Terminal() && !j.FinishedAt.IsZero() && now.Sub(j.FinishedAt) >= KeepEnded
}

// Saved reports whether the job has anything from which it, or another one, could go on. The end of an epoch counts.
func (j Job) Saved() bool { return j.EpochsDone > 0 || j.EpochStep > 0 || j.Checkpoint != "" }

// Change is one line of a job's allocation history.
type Change struct {
	At      time.Time  `json:"at"`
	Fact    string     `json:"fact"`
	State   State      `json:"state"`
	Attempt int        `json:"attempt,omitempty"`
	Devices []DeviceID `json:"devices,omitempty"`
	Epochs  int        `json:"epochs,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
}

// RunSecondsAt returns how long the job has run in all, the open attempt included.
func (j Job) RunSecondsAt(now time.Time) float64 {
	if j.AttemptStartedAt.IsZero() {
		return j.RunSeconds
	}
	return j.RunSeconds + max(now.Sub(j.AttemptStartedAt).Seconds(), 0)
}

// LimitLeft returns for how much longer the job may run if the attempt is the newest; false without a limit. The record
// may be older than the attempt, or newer: an attempt counts once.
func (j Job) LimitLeft(a Attempt, now time.Time) (time.Duration, bool) {
	limit := time.Duration(j.Spec.TimeLimit)
	if limit <= 0 {
		return 0, false
	}
	counted := j.Attempt > a.Number || j.Attempt == a.Number && j.AttemptStartedAt.IsZero()
	left := limit - time.Duration(math.Min(j.RunSeconds, limit.Seconds())*float64(time.Second))
	if !counted && !a.StartedAt.IsZero() {
		left -= max(now.Sub(a.StartedAt), 0)
	}
	return left, true
}

// Public returns what everybody may see of a job: whose it is, what it asks for and how it goes; not what it runs, with
// which environment, where its files are, or what it has written.
func (j Job) Public() Job {
	j.Spec, j.Checkpoint, j.LogTail, j.Edits = j.Spec.Public(), "", "", nil
	return j
}

// Public returns what everybody may see of a spec.
func (s Spec) Public() Spec {
	return Spec{
		Name: s.Name, Project: s.Project, Labels: s.Labels, User: s.User, Tenant: s.Tenant,
		BatchSize: s.BatchSize, GlobalBatchSize: s.GlobalBatchSize, TrainingSetSize: s.TrainingSetSize, MaxEpochs: s.MaxEpochs, MaxSteps: s.MaxSteps,
		SingleDevice: s.SingleDevice, AllowSharing: s.AllowSharing, ShareAcrossTenants: s.ShareAcrossTenants, DisableSharing: s.DisableSharing, EstimatedMemoryMiB: s.EstimatedMemoryMiB, EstimatedHours: s.EstimatedHours,
		Cores: s.Cores, MainMemoryMiB: s.MainMemoryMiB, Ports: s.Ports, Priority: s.Priority,
		Devices: s.Devices, Device: s.Device, GPU: s.GPU, GPUMemory: s.GPUMemory, CPUs: s.CPUs, Memory: s.Memory, MinDevices: s.MinDevices, MaxDevices: s.MaxDevices,
		NodeLabels: s.NodeLabels, Deadline: s.Deadline, After: s.After, Array: s.Array, ArrayMember: s.ArrayMember, Continue: s.Continue, TimeLimit: s.TimeLimit,
		Strategy: s.Strategy, ParameterServers: s.ParameterServers, Launch: s.Launch, Energy: s.Energy,
	}
}
