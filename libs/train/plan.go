package train

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Plan is the planner's whole decision: which job holds which devices, and why the others wait.
type Plan struct {
	Generation uint64    `json:"generation"`
	Policy     string    `json:"policy"`
	DecidedAt  time.Time `json:"decided_at"`
	// Allocations are ordered by job id; a job that is not listed gets nothing.
	Allocations []Allocation `json:"allocations"`
	// Waiting are the jobs that got nothing, in the order in which they would be served.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Memory is what the policy wants to find again when it decides next, in its own form: its queues, say. Without it the policy still decides.
	Memory string `json:"memory,omitempty"`
}

// Part is devices of one node within a gang.
type Part struct {
	Node    NodeID     `json:"node"`
	Devices []DeviceID `json:"devices"`
	// Memory is the job's part of each device; 0 is the whole device, which nobody else has then.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
}

// Batch is how a gang steps. The zero value leaves the batch as it was submitted.
type Batch struct {
	// LocalBatch is the number of samples per device and pass.
	LocalBatch int `json:"local_batch,omitempty"`
	// Accumulation is the number of passes before the one that ends with the exchange of gradients.
	Accumulation int `json:"accumulation,omitempty"`
}

// Global is the number of samples of one optimizer step on so many devices.
func (b Batch) Global(devices int) int { return devices * b.LocalBatch * (b.Accumulation + 1) }

// ServerPart is parameter servers of one node.
type ServerPart struct {
	Node NodeID `json:"node"`
	// Count is how many run there.
	Count int `json:"count"`
}

// Allocation gives devices to a job: those of one node in Node and Devices, those of a gang over several nodes in Parts.
type Allocation struct {
	Job     JobID      `json:"job"`
	Node    NodeID     `json:"node"`
	Devices []DeviceID `json:"devices"`
	// Memory is the job's part of a device that it may share; 0 is the whole device. Beside is the job that had the device first, where this one came to it.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
	Beside JobID      `json:"beside,omitempty"`
	Reason Reason     `json:"reason"`
	// Parts are set instead of Node and Devices where the gang spans several nodes, in the order of its ranks.
	Parts []Part `json:"parts,omitempty"`
	// Servers are the job's parameter servers; its workers have a device each. A back end that runs jobs as processes of
	// one machine starts no servers, and refuses such jobs.
	Servers []ServerPart `json:"servers,omitempty"`
	// Batch is chosen together with the devices by policies that do so.
	Batch Batch `json:"batch,omitzero"`
	// RemainingSeconds is the predicted time to the end of the job on this allocation; 0 when nothing is known.
	RemainingSeconds float64 `json:"remaining_seconds,omitempty"`
}

// Places are the parts of the allocation, also where it is of one node.
func (a Allocation) Places() []Part {
	if len(a.Parts) > 0 {
		return a.Parts
	}
	return []Part{{Node: a.Node, Devices: a.Devices, Memory: a.Memory}}
}

// ServerCount is the number of parameter servers on all nodes.
func (a Allocation) ServerCount() int {
	sum := 0
	for _, s := range a.Servers {
		sum += s.Count
	}
	return sum
}

// Waiting says why a job got nothing.
type Waiting struct {
	Job JobID `json:"job"`
	// Blockers are all the reasons, the dominant one first.
	Blockers []Reason `json:"blockers"`
	// StartInSeconds is when the job is predicted to start, from the decision on; 0 when unknown.
	StartInSeconds float64 `json:"start_in_seconds,omitempty"`
}

// Find gives the allocation of a job.
func (p Plan) Find(job JobID) (Allocation, bool) {
	for _, a := range p.Allocations {
		if a.Job == job {
			return a, true
		}
	}
	return Allocation{}, false
}

// Phase is where an attempt stands.
type Phase string

// The phases of an attempt. Claimed is written before the process is started, so that a crash in between is seen.
const (
	PhaseClaimed Phase = "claimed"
	PhaseRunning Phase = "running"
	PhaseExited  Phase = "exited"
)

// StopCause says why an attempt is asked to stop.
type StopCause string

// The causes.
const (
	StopNone    StopCause = ""
	StopPreempt StopCause = "preempt"
	StopRescale StopCause = "rescale"
	// StopRetune has it started again with other system parameters.
	StopRetune StopCause = "retune"
	StopCancel StopCause = "cancel"
	// StopConverged ends the job well: its loss falls no more, by the rule that its user gave.
	StopConverged StopCause = "converged"
	// StopOverspent ends the job badly: it has cost more than its group is ready to pay for one.
	StopOverspent StopCause = "overspent"
)

// Attempt is one run of a job's processes on given devices. The executor is its only writer; per (job, number) at most one is ever started, and
// number+1 starts only after the exit of number was seen.
type Attempt struct {
	Job        JobID      `json:"job"`
	Number     int        `json:"number"`
	Node       NodeID     `json:"node"`
	Generation uint64     `json:"generation"`
	Devices    []DeviceID `json:"devices"`
	// Memory is its part of the device; 0 is the whole.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
	// Parts are set instead of Node and Devices for a gang over several nodes, in the order of its ranks.
	Parts []Part `json:"parts,omitempty"`
	// Servers is how many parameter servers run beside the workers.
	Servers int `json:"servers,omitempty"`
	// Enforcement is what holds it to its part of its devices, the weakest level of all of them.
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// LogFormat is how its output tells of epochs; empty where its code calls.
	LogFormat string `json:"log_format,omitempty"`
	// Backend is what runs the processes: the executor of pods looks after its attempts also where a node is not described any more.
	Backend Backend `json:"backend,omitempty"`
	Phase   Phase   `json:"phase"`
	// Stop is set when the job shall leave at its next epoch's end; the node agent answers has_to_stop from it.
	Stop      StopCause `json:"stop,omitempty"`
	StopSince time.Time `json:"stop_since,omitzero"`
	// CapabilityHash is the SHA-256 (hex) of JOB_UUID, TokenHash that of the attempt's own token: the secrets themselves are only in the job's
	// environment and in the executor's private folder.
	CapabilityHash string `json:"capability_hash"`
	TokenHash      string `json:"token_hash"`
	// PID and PIDStart (clock ticks since boot, field 22 of /proc/<pid>/stat) identify the supervisor of the processes across restarts.
	PID       int       `json:"pid,omitempty"`
	PIDStart  uint64    `json:"pid_start,omitempty"`
	BootID    string    `json:"boot_id,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	ExitedAt  time.Time `json:"exited_at,omitzero"`
	Exit      *Exit     `json:"exit,omitempty"`
	// Ending is how the attempt will have ended: some of its processes are in trouble, and the others are being ended for it.
	Ending *Exit `json:"ending,omitempty"`
	// Outcome is decided once, by compare-and-swap, before the fact that tells it is published.
	Outcome Outcome `json:"outcome,omitempty"`
	// Told is set when that fact is stored: until then it is published again, with the same key.
	Told bool `json:"told,omitempty"`
	// Setting is with which system parameters it is started; nothing where none were wanted of the job. Stays is the generation of a later one for which it was
	// asked to leave and did not in time, or of this one where no pod may be made with all of its values: it goes on with what it has.
	Setting Setting `json:"setting,omitzero"`
	Stays   uint64  `json:"stays,omitempty"`
	// StartedEpochs is how many epochs were done when the attempt began; LostInARow counts the attempts before this one that ended by
	// force without finishing an epoch.
	StartedEpochs int `json:"started_epochs,omitempty"`
	LostInARow    int `json:"lost_in_a_row,omitempty"`
	// UnstartedInARow counts the attempts before this one whose processes never all ran. They delay the next one and are no restarts.
	UnstartedInARow int `json:"unstarted_in_a_row,omitempty"`
	// NotBefore delays the start after a loss.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// MarkVariable is in the environment of every process of an attempt, containers included: what belongs to it is found by it.
const MarkVariable = "SWITCHYARD_JOB_ATTEMPT"

// Mark is the value of MarkVariable: unique to the attempt, also among several installations on one machine.
func (a Attempt) Mark() string { return fmt.Sprintf("%s/%d/%.16s", a.Job, a.Number, a.TokenHash) }

// Places are the parts of the attempt, also where it is on one node.
func (a Attempt) Places() []Part {
	if len(a.Parts) > 0 {
		return a.Parts
	}
	return []Part{{Node: a.Node, Devices: a.Devices, Memory: a.Memory}}
}

// SetPlaces is the reverse of Places: one part is the attempt's node, several are its parts.
func (a *Attempt) SetPlaces(parts []Part) {
	a.Node, a.Devices, a.Memory, a.Parts = "", nil, 0, nil
	if len(parts) == 1 {
		a.Node, a.Devices, a.Memory = parts[0].Node, parts[0].Devices, parts[0].Memory
	} else {
		a.Parts = parts
	}
}

// DeviceCount is on how many devices the attempt runs.
func (a Attempt) DeviceCount() int { return len(AllDevices(a.Places())) }

// SamePlaces says whether a and b are the same devices of the same nodes, in any order.
func SamePlaces(a, b []Part) bool {
	if len(a) != len(b) {
		return false
	}
	for _, p := range a {
		if !slices.ContainsFunc(b, p.Same) {
			return false
		}
	}
	return true
}

// Same says whether two parts are the same devices, and as much of them.
func (p Part) Same(q Part) bool {
	return p.Node == q.Node && p.Memory == q.Memory && SameDevices(p.Devices, q.Devices)
}

// AllDevices are those of all parts in the order of ranks; with several nodes an id may be there more than once.
func AllDevices(parts []Part) []DeviceID {
	if len(parts) == 1 {
		return parts[0].Devices
	}
	var all []DeviceID
	for _, p := range parts {
		all = append(all, p.Devices...)
	}
	return all
}

// JoinPlaces prints parts as words: the devices, and where there are several nodes their names.
func JoinPlaces(parts []Part) string {
	if len(parts) == 1 {
		return parts[0].String()
	}
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = p.String() + " of " + string(p.Node)
	}
	return strings.Join(words, " and ")
}

// String names the devices, and how much of them where they may be shared.
func (p Part) String() string {
	if p.Memory > 0 {
		return p.Memory.String() + " of " + JoinDevices(p.Devices)
	}
	return JoinDevices(p.Devices)
}

// Live says whether processes of the attempt may exist: it holds its devices.
func (a Attempt) Live() bool { return a.Phase == PhaseClaimed || a.Phase == PhaseRunning }

// Exit tells how the processes of an attempt ended.
type Exit struct {
	// Code is the exit status of the process that ended first with trouble, else 0; Signal names the signal that killed it.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Forced is set when the supervisor was told to end the processes: they did not leave of their own accord.
	Forced bool `json:"forced,omitempty"`
	// Lost is set when nothing is known: the supervisor itself was killed or the machine was restarted.
	Lost bool `json:"lost,omitempty"`
	// LogTail is the end of the output, for failures.
	LogTail string `json:"log_tail,omitempty"`
	// Message says in words what went wrong before the program ran, e.g. that it was not found.
	Message string `json:"message,omitempty"`
	// Unstarted is set together with Lost where not all processes ever ran, for want of a place or a device: another attempt may fare better.
	Unstarted bool `json:"unstarted,omitempty"`
	// Reason is what is known beyond the status, e.g. that a container was killed for want of memory.
	Reason Reason `json:"reason,omitzero"`
}

// OutOfDeviceMemory says whether the program ended because it got no more memory of its device, as PyTorch, TensorFlow, JAX and CUDA itself word it.
func (e Exit) OutOfDeviceMemory() bool {
	return e.Code != 0 && slices.ContainsFunc([]string{
		"CUDA out of memory", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED: Out of memory", "ResourceExhaustedError",
	}, func(words string) bool { return strings.Contains(e.LogTail, words) })
}

// Outcome is what the end of an attempt means for the job.
type Outcome string

// The outcomes. Preempted covers rescaling; Recovering is a loss that is followed by another attempt.
const (
	OutcomeNone       Outcome = ""
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"
	OutcomeCancelled  Outcome = "cancelled"
	OutcomePreempted  Outcome = "preempted"
	OutcomeRecovering Outcome = "recovering"
)

// Terminal says whether the outcome ends the job.
func (o Outcome) Terminal() bool {
	return o == OutcomeSucceeded || o == OutcomeFailed || o == OutcomeCancelled
}

// AttemptReport is what the node agent knows of an attempt from the training code itself.
type AttemptReport struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// EpochsDone is the highest number of finished epochs that the code reported.
	EpochsDone int `json:"epochs_done"`
	// Spoke is set by the first call: only such a job can be asked to stop at an epoch's end.
	Spoke bool `json:"spoke"`
	// StopAnswered is set before the code is told to stop: only then is an exit with status 0 before the last epoch a preemption.
	StopAnswered bool `json:"stop_answered,omitempty"`
	// Enlarged is set before larger optimizer steps than the submitted ones are asked of the code.
	Enlarged bool `json:"enlarged,omitempty"`
	// Ended is the outcome that the code itself reported: finished, stopped or failed.
	Ended string `json:"ended,omitempty"`
	// OutputRead says that the attempt has ended and that all epochs were told of which its output tells.
	OutputRead bool `json:"output_read,omitempty"`
	// Checkpoint is the newest one that was reported.
	Checkpoint       string `json:"checkpoint,omitempty"`
	CheckpointEpochs int    `json:"checkpoint_epochs,omitempty"`
}
