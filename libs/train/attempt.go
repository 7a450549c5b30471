package train

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Phase is the progress of an attempt.
type Phase string

// The phases of an attempt. Claimed is written before the process is started, so that a crash in between is noticed.
const (
	PhaseClaimed Phase = "claimed"
	PhaseRunning Phase = "running"
	PhaseExited  Phase = "exited"
)

// StopCause is the cause for which an attempt is asked to stop.
type StopCause string

// The causes.
const (
	StopNone    StopCause = ""
	StopPreempt StopCause = "preempt"
	StopRescale StopCause = "rescale"
	// StopRetune restarts the job with other system parameters.
	StopRetune StopCause = "retune"
	StopCancel StopCause = "cancel"
	// StopConverged ends the job as succeeded: by the user's rule its loss no longer falls.
	StopConverged StopCause = "converged"
	// StopWanted makes the job leave because people want it to be paused, or at the end of the queue.
	StopWanted StopCause = "wanted"
	// StopOverspent ends the job as failed: it has cost more than its group is ready to pay for one job.
	StopOverspent StopCause = "overspent"
	// StopTimeLimit ends the job as failed: it has run for as long as it may.
	StopTimeLimit StopCause = "time_limit"
	// StopSilent ends an attempt whose code has gone silent; another one follows.
	StopSilent StopCause = "silent"
)

// Attempt is one run of a job's processes on given devices. The executor is its only writer. Each (job, number) is
// started at most once, and number+1 starts only after the exit of number was seen.
type Attempt struct {
	Job        JobID      `json:"job"`
	Number     int        `json:"number"`
	Node       NodeID     `json:"node"`
	Generation uint64     `json:"generation"`
	Devices    []DeviceID `json:"devices"`
	// Memory is its part of each device; 0 is the whole device.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
	// Parts are set instead of Node and Devices for a gang over several nodes, in the order of its ranks.
	Parts []Part `json:"parts,omitempty"`
	// Servers are the parameter servers beside the workers, ServerCount is their number. Attempts of older versions
	// have only the number.
	Servers     []ServerPart `json:"server_parts,omitempty"`
	ServerCount int          `json:"servers,omitempty"`
	// Batch is how its steps are formed from BatchGeneration, a plan, on; without it each device has the submitted batch.
	Batch           Batch  `json:"batch,omitzero"`
	BatchGeneration uint64 `json:"batch_generation,omitempty"`
	// Enforcement is what holds the job to its part of its devices: the weakest level of all of them.
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// LogFormat is the format in which its output reports epochs; empty if its code calls the job API.
	LogFormat string `json:"log_format,omitempty"`
	// Backend is what runs the processes: the executor of pods manages its attempts even after a node's record is gone.
	Backend Backend `json:"backend,omitempty"`
	// Namespace is where its pods are.
	Namespace string `json:"namespace,omitempty"`
	// Machine is the machine whose executor runs them, if that is not Node: it presents itself as several nodes.
	Machine NodeID `json:"machine,omitempty"`
	Phase   Phase  `json:"phase"`
	// Stop is set when the job should stop at its next epoch's end; the node agent answers has_to_stop from it.
	Stop      StopCause `json:"stop,omitempty"`
	StopSince time.Time `json:"stop_since,omitzero"`
	// CapabilityHash is the SHA-256 (hex) of JOB_UUID, TokenHash that of the attempt's own token: the secrets
	// themselves are only in the job's environment and in the executor's private folder.
	CapabilityHash string `json:"capability_hash"`
	TokenHash      string `json:"token_hash"`
	// MarkHash is the SHA-256 (hex) of the mark of its processes; attempts of older versions have none.
	MarkHash string `json:"mark_hash,omitempty"`
	// PID and PIDStart (clock ticks since boot, field 22 of /proc/<pid>/stat) identify the supervisor of the processes
	// across restarts.
	PID      int    `json:"pid,omitempty"`
	PIDStart uint64 `json:"pid_start,omitempty"`
	BootID   string `json:"boot_id,omitempty"`
	// ClaimedAt is when the attempt got its devices, StartedAt when all its processes ran.
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	StartedAt time.Time `json:"started_at,omitzero"`
	ExitedAt  time.Time `json:"exited_at,omitzero"`
	Exit      *Exit     `json:"exit,omitempty"`
	// Unreported is what its code reported and the agent of its node, which was away, never took.
	Unreported *Unreported `json:"unreported,omitempty"`
	// Ending is how the attempt will have ended: some of its processes are in trouble, and the executor is ending the
	// others.
	Ending *Exit `json:"ending,omitempty"`
	// Outcome is decided once, by compare-and-swap, before the fact that reports it is published.
	Outcome Outcome `json:"outcome,omitempty"`
	// Published is set once that fact is stored: until then it is published again, with the same key.
	Published bool `json:"told,omitempty"`
	// Setting holds the system parameters of the attempt; empty if the job has none. Stays is the generation of a
	// setting that the attempt does not follow: a later one for which it was asked to stop and did not in time, or this
	// one if no pod can have all of its values. The attempt continues with what it has.
	Setting Setting `json:"setting,omitzero"`
	Stays   uint64  `json:"stays,omitempty"`
	// StartedEpochs is the number of epochs done when the attempt began, and StartedStep that of steps of the next epoch
	// which a checkpoint held; LostInARow counts the consecutive attempts before this one that were killed or lost without
	// progress.
	StartedEpochs int `json:"started_epochs,omitempty"`
	StartedStep   int `json:"started_step,omitempty"`
	LostInARow    int `json:"lost_in_a_row,omitempty"`
	// CountsCheckpoints is set if an earlier attempt has said which epochs its checkpoints hold: an epoch that was only
	// reported does not count as saved.
	CountsCheckpoints bool `json:"counts_checkpoints,omitempty"`
	// FromScratch is set if the job had saved its state, and nothing of it was left when the attempt was claimed.
	FromScratch bool `json:"from_scratch,omitempty"`
	// Retries counts the attempts before this one whose program ended with a status other than 0 and was started again.
	Retries int `json:"retries,omitempty"`
	// UnstartedInARow counts the attempts before this one whose processes never all ran. They delay the next attempt
	// and do not count as restarts.
	UnstartedInARow int `json:"unstarted_in_a_row,omitempty"`
	// Resumed is how often the job had been resumed after an end when the attempt was claimed: an outcome that ends the
	// job ends only this life of it.
	Resumed int `json:"resumed,omitempty"`
	// Staging is how far its data is on its way to the node; nil if it has none to fetch.
	Staging *Staging `json:"staging,omitempty"`
	// NotBefore delays the start after a loss.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// MarkVariable is in the environment of every process of an attempt, containers included; processes of an attempt are
// found by it.
const MarkVariable = "SWITCHYARD_JOB_ATTEMPT"

// Mark returns the value of MarkVariable for the attempt with a token. It is unique to the attempt, also among several
// installations on one machine. Nobody learns it from records: what carries it is billed to the job.
func Mark(job JobID, number int, token string) string {
	return fmt.Sprintf("%s/%d/%.16x", job, number, sha256.Sum256([]byte("mark of "+token)))
}

// Hash is the form in which records have secrets and marks: SHA-256 in hexadecimal digits.
func Hash(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret))) }

// Marks returns the hash of the mark of the attempt's processes.
func (a Attempt) Marks() string { return cmp.Or(a.MarkHash, Hash(a.Name())) }

// Name returns the public name of the attempt, which attempts of older versions also had as mark.
func (a Attempt) Name() string { return fmt.Sprintf("%s/%d/%.16s", a.Job, a.Number, a.TokenHash) }

// Realm returns what the executor of the attempt serves.
func (a Attempt) Realm() Realm {
	if a.Backend != BackendLocal {
		return Realm{Backend: a.Backend}
	}
	return Realm{Machine: cmp.Or(a.Machine, a.Node)}
}

// Places returns the parts of the attempt, for one node as well.
func (a Attempt) Places() []Part {
	if len(a.Parts) > 0 {
		return a.Parts
	}
	return []Part{{Node: a.Node, Devices: a.Devices, Memory: a.Memory}}
}

// SetPlaces is the reverse of Places: one part is stored as the attempt's node, several as its parts.
func (a *Attempt) SetPlaces(parts []Part) {
	a.Node, a.Devices, a.Memory, a.Parts = "", nil, 0, nil
	if len(parts) > 0 {
		a.Memory = parts[0].Memory
	}
	if len(parts) == 1 {
		a.Node, a.Devices = parts[0].Node, parts[0].Devices
	} else {
		a.Parts = parts
	}
}

// SetServers sets the parameter servers of the attempt.
func (a *Attempt) SetServers(parts []ServerPart) {
	a.Servers, a.ServerCount = parts, CountServers(parts)
}

// ServerParts returns the parameter servers of the attempt. If only their number is known, they are spread over its
// nodes in turn.
func (a Attempt) ServerParts() []ServerPart {
	if len(a.Servers) > 0 || a.ServerCount == 0 {
		return a.Servers
	}
	var parts []ServerPart
	places := a.Places()
	for i, p := range places {
		if n := (a.ServerCount + len(places) - 1 - i) / len(places); n > 0 {
			parts = append(parts, ServerPart{Node: p.Node, Count: n})
		}
	}
	return parts
}

// DeviceCount returns the number of devices of the attempt.
func (a Attempt) DeviceCount() int { return len(AllDevices(a.Places())) }

// SamePlaces reports whether a and b are the same devices of the same nodes, in any order.
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

// Meet reports whether a and b have a device in common.
func Meet(a, b []Part) bool {
	return slices.ContainsFunc(a, func(p Part) bool {
		return slices.ContainsFunc(p.Devices, func(d DeviceID) bool { return Has(b, p.Node, d) })
	})
}

// Has reports whether a device of a node is among parts.
func Has(parts []Part, node NodeID, d DeviceID) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return p.Node == node && slices.Contains(p.Devices, d) })
}

// Same reports whether two parts are the same devices with the same memory.
func (p Part) Same(q Part) bool {
	return p.Node == q.Node && p.Memory == q.Memory && SameDevices(p.Devices, q.Devices)
}

// AllDevices returns the devices of all parts in the order of ranks; with several nodes an id may appear more than
// once.
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

// JoinPlaces prints parts in words: the devices, and for several nodes their names.
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

// OnNodes prints parts in words with the names of their nodes.
func OnNodes(parts []Part) string {
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = p.String() + " of node " + string(p.Node)
	}
	return strings.Join(words, " and ")
}

// String names the devices, with their memory if they may be shared.
func (p Part) String() string {
	if p.Memory > 0 {
		return p.Memory.String() + " of " + JoinDevices(p.Devices)
	}
	return JoinDevices(p.Devices)
}

// Live reports whether processes of the attempt may exist: it holds its devices.
func (a Attempt) Live() bool { return a.Phase == PhaseClaimed || a.Phase == PhaseRunning }

// Ends reports whether the outcome of the attempt has ended the job, which may have been resumed since.
func (a Attempt) Ends(j Job) bool { return a.Outcome.Terminal() && a.Resumed == j.Resumed }

// Exit describes how the processes of an attempt ended.
type Exit struct {
	// Code is the exit status of the first process that failed, else 0; Signal names the signal that killed it.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Forced is set when the supervisor was asked to end the processes: they did not exit by themselves.
	Forced bool `json:"forced,omitempty"`
	// Lost is set when the end is unknown: the supervisor itself was killed or the machine was restarted.
	Lost bool `json:"lost,omitempty"`
	// LogTail is the end of the output, for failures.
	LogTail string `json:"log_tail,omitempty"`
	// Message says in words what went wrong before the program ran, e.g. that it was not found.
	Message string `json:"message,omitempty"`
	// Unstarted is set together with Lost if not all processes ever ran, for lack of a node or a device: another
	// attempt may succeed.
	Unstarted bool `json:"unstarted,omitempty"`
	// Reason is what is known beyond the status, e.g. that a container was killed for lack of memory.
	Reason Reason `json:"reason,omitzero"`
}

// Clean reports whether the program ended with status 0.
func (e Exit) Clean() bool { return e.Code == 0 && e.Signal == "" && !e.Lost && e.Message == "" }

// Public returns what everybody may see of the end of an attempt. Messages can name the program, its files and the
// address of its data.
func (e Exit) Public() Exit {
	e.LogTail, e.Message, e.Reason.Message, e.Reason.Hint = "", "", "", ""
	return e
}

// Status returns the exit status by which a shell would report the end: for a signal 128 plus its number. It returns
// false if the program did not end by itself, so that there is none.
func (e Exit) Status() (int, bool) {
	signals := []string{
		"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
	}
	switch number := slices.Index(signals, e.Signal) + 1; {
	case e.Forced || e.Lost:
		return 0, false
	case e.Code == 0 && e.Signal != "":
		return 128 + number, number > 0
	}
	return e.Code, true
}

// OutOfDeviceMemory reports whether the program ended because its device had no more memory, in the words of PyTorch,
// TensorFlow, JAX and CUDA.
func (e Exit) OutOfDeviceMemory() bool {
	return e.Code != 0 && slices.ContainsFunc([]string{
		"CUDA out of memory", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED: Out of memory", "ResourceExhaustedError",
	}, func(words string) bool { return strings.Contains(e.LogTail, words) })
}

// OutOfMemory is the reason code of an attempt whose processes took more main memory than its job asked for.
const OutOfMemory = "OutOfMemory"

// DiskFull is the reason code of an attempt that failed while the disk of its machine's data folder was full.
const DiskFull = "DiskFull"

// OutOfDisk reports whether the program ended because a disk had no more room, in the words of the C library, which
// most languages use.
func (e Exit) OutOfDisk() bool {
	return e.Reason.Code == DiskFull || e.Code != 0 && (strings.Contains(e.LogTail, "No space left on device") || strings.Contains(e.LogTail, "Disk quota exceeded"))
}

// DeviceFailed reports whether the program ended because of a broken device, in the words of CUDA and its driver.
func (e Exit) DeviceFailed() bool {
	return e.Code != 0 && slices.ContainsFunc([]string{
		"uncorrectable ECC error", "CUDA_ERROR_ECC_UNCORRECTABLE", "GPU is lost", "fallen off the bus", "CUDA-capable device(s) is/are busy or unavailable",
	}, func(words string) bool { return strings.Contains(e.LogTail, words) })
}

// Words says in a few words how an attempt ended that another one follows.
func (e Exit) Words() string {
	switch {
	case e.Reason.Message != "":
		return e.Reason.Message
	case e.OutOfDeviceMemory():
		return "out of memory on a device that it may share"
	case e.OutOfDisk():
		return "a disk was full"
	case e.DeviceFailed():
		return "its device is broken"
	case e.Lost:
		return "the processes vanished"
	case e.Forced:
		return "the processes were ended from outside"
	case e.Signal == "":
		return "it left when a signal asked it to, without a checkpoint"
	default:
		return "killed by " + e.Signal
	}
}

// Outside reports whether the machine, and neither the program nor a person, ended the attempt. Pods that cannot start
// for what the job asked for, such as an image or a folder, say nothing about their machine.
func (e Exit) Outside() bool {
	elsewhere := []string{OutOfMemory, "PodDeleted", "Evicted", "Unschedulable", "GangIncomplete", "ImageMissing", "NotCreated", Forbidden, DiskFull}
	if e.Forced || slices.Contains(elsewhere, e.Reason.Code) {
		return false
	}
	return e.Lost || e.Signal == "SIGKILL" || e.Signal == "SIGBUS" || e.OutOfDisk() || e.DeviceFailed()
}

// Outcome is the consequence of the end of an attempt for the job.
type Outcome string

// The outcomes. Preempted covers rescaling; Recovering is a loss that another attempt follows.
const (
	OutcomeNone       Outcome = ""
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"
	OutcomeCancelled  Outcome = "cancelled"
	OutcomePreempted  Outcome = "preempted"
	OutcomeRecovering Outcome = "recovering"
)

// Terminal reports whether the outcome ends the job.
func (o Outcome) Terminal() bool {
	return o == OutcomeSucceeded || o == OutcomeFailed || o == OutcomeCancelled
}
