package train

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Strategy is how the processes of a job share the work.
type Strategy string

// The strategies.
const (
	StrategyNone            Strategy = "none"             // one process, one device
	StrategyAllReduce       Strategy = "all_reduce"       // data parallel, gradients averaged each step
	StrategyParameterServer Strategy = "parameter_server" // workers push to and pull from servers
)

// Launch is how many processes a job gets.
type Launch string

// The ways to launch.
const (
	LaunchPerNode   Launch = "per_node"   // one process per node, which uses all of the node's devices itself
	LaunchPerDevice Launch = "per_device" // one process per device, ranks set
)

// The values of LogFormat: what BigDL and MXNet programs write.
const (
	LogBigDL = "bigdl"
	LogMXNet = "mxnet"
)

// PreemptBySignal is the Preempt of programs that are asked to leave by a signal.
const PreemptBySignal = "signal"

// Spec is what a user asks for: the body of a submission.
type Spec struct {
	// Name is a person's name for the experiment. The client gives a job without one that of its script or program.
	Name string `json:"name"`
	// Family names the training that the job is a variant of: jobs of a family predict each other's speed. Left out, jobs
	// of one tenant are a family if they run the same code in the same image on the same data, with any flag values.
	Family string `json:"family,omitempty"`
	// Project and Labels are a person's own words for the job. Lists and commands can be restricted to them.
	Project string            `json:"project,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// User and Tenant may be left out: they come from the submitter's identity. A body that names another is refused.
	User   string `json:"user,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// UID is the number of the machine's user who submitted the job, as the kernel named him to the service web. Admission
	// sets it. Where run_as is submitter, the job runs as this user.
	UID int `json:"uid,omitempty"`

	// Command is the program and its arguments. Give Command or ScriptPath.
	Command []string `json:"command,omitempty"`
	// ScriptPath is a Python script, as the job sees it: it runs as `python ScriptPath`.
	ScriptPath string `json:"script_path,omitempty"`
	// Image is the container image to run in; without it the job is a process on the node.
	Image string `json:"image,omitempty"`
	// WorkDir is the folder in which the command starts (default: CustomDir, else the job's own folder).
	WorkDir string `json:"work_dir,omitempty"`
	// CustomDir is mounted at /custom, SnapshotsDir at /snapshots, DatasetsDir at /data. All must lie below the allowed
	// roots.
	CustomDir    string `json:"custom_dir,omitempty"`
	SnapshotsDir string `json:"snapshots_dir,omitempty"`
	DatasetsDir  string `json:"datasets_dir,omitempty"`
	// DataURL is where the job's data is: an address of http, https, hdfs (by WebHDFS), webhdfs, s3 (an object that
	// anybody may read) or file, a file or folder of the node such as an NFS mount. The node fetches it once for all jobs
	// that name it, before the first process starts. The job has it at /data, and as DATA_DIR. Jobs on Kubernetes, and
	// jobs that run as their submitters, cannot have one.
	DataURL string `json:"data_url,omitempty"`
	// Upload is the hash of a folder that the submitter has put on the bus (`--upload` does it). The job has a copy of
	// it as its CustomDir. Jobs on Kubernetes cannot have one.
	Upload string `json:"upload,omitempty"`
	// Env is added to the job's environment. It cannot override variables that the scheduler sets.
	Env map[string]string `json:"env,omitempty"`
	// SecretEnv gives variables values that only the start of the job reads: file:/PATH, a file of the job's user with
	// mode 0600 in a folder of his; credential:NAME, which systemd has loaded for the executor as USER.NAME; for pods
	// secret:NAME/KEY, a Secret with the annotation switchyard.dev/user or switchyard.dev/tenant of the job's.
	SecretEnv map[string]string `json:"secret_env,omitempty"`
	// LogFormat is the format of the program's output (bigdl or mxnet) if the program reports epochs only there; they
	// are then read from it. Without it, the code calls the job API.
	LogFormat string `json:"log_format,omitempty"`
	// Progress says where the epochs, steps and losses of a program that does not call the job API can be read.
	Progress *ProgressSpec `json:"progress,omitempty"`
	// Shell makes the job interactive (`switchyard shell`). Jobs on Kubernetes cannot be.
	Shell *ShellSpec `json:"shell,omitempty"`
	// Preempt: signal lets the job leave its devices although its code calls nothing. The processes that catch SIGUSR1
	// get it, and SIGTERM after the grace period; if none catches it, the job gets SIGTERM after its next checkpoint. By
	// default, a job with a checkpoint pattern can be preempted so while one of its processes catches SIGUSR1.
	Preempt string `json:"preempt,omitempty"`
	// Checkpoint is a pattern of the files that the program saves, such as checkpoints/*.pt, below its working folder or
	// its snapshots folder. A file newer than the start of an attempt shows that the next attempt can go on from it.
	Checkpoint string `json:"checkpoint,omitempty"`

	// BatchSize is the number of samples per device and pass; without GlobalBatchSize a step is one pass. It,
	// TrainingSetSize and MaxEpochs are hints: without them nothing is predicted before the code reports epochs. An
	// adaptive batch and parameter servers need all three, energy.batch_sizes the first two, a stop rule MaxEpochs.
	BatchSize int `json:"batch_size,omitempty"`
	// GlobalBatchSize is the number of samples of one optimizer step on any number of devices: each has its share, in
	// passes of at most BatchSize (default for elastic all_reduce jobs: batch_size times min_devices).
	GlobalBatchSize int `json:"global_batch_size,omitempty"`
	// BatchPerDevice keeps BatchSize on every device, so that steps grow with the number of devices.
	BatchPerDevice bool `json:"batch_per_device,omitempty"`
	// AdaptiveBatch lets the planner choose the global batch size together with the devices, from GlobalBatchSize up.
	AdaptiveBatch *AdaptiveBatchSpec `json:"adaptive_batch,omitempty"`
	// TrainingSetSize is the number of samples of an epoch, validation excluded.
	TrainingSetSize int `json:"training_set_size,omitempty"`
	// MaxEpochs is the number of epochs to train.
	MaxEpochs int `json:"max_epochs,omitempty"`
	// MaxSteps is the number of optimizer steps to train, on any number of devices. If MaxEpochs is given too, training
	// ends with whichever comes first.
	MaxSteps int `json:"max_steps,omitempty"`
	// Stop ends the job earlier, once its training loss has converged.
	Stop *StopSpec `json:"stop,omitempty"`

	// SingleDevice reports that the code does not support more than one device.
	SingleDevice bool `json:"single_device,omitempty"`
	// AllowSharing lets the job share its devices with other jobs of its tenant that also allow it. EstimatedMemoryMiB is
	// then its part of each device. Without it a job has its devices to itself, and so has a job with parameter servers.
	AllowSharing bool `json:"allow_sharing,omitempty"`
	// ShareAcrossTenants also lets it share with jobs of other tenants that allow that too. A fatal fault of one job can
	// end the others on the device.
	ShareAcrossTenants bool `json:"share_across_tenants,omitempty"`
	// TuneEffectiveBatch also lets the batch of an optimizer step grow while the job shares its device, if its code can
	// follow. Without it only the number of passes per step is tuned, and the training is the same.
	TuneEffectiveBatch bool `json:"tune_effective_batch,omitempty"`
	// DisableSharing keeps the job alone on its devices.
	DisableSharing bool `json:"disable_sharing,omitempty"`
	// EstimatedMemoryMiB is the device memory that the job will use, in MiB per device.
	EstimatedMemoryMiB int64 `json:"estimated_memory_mib,omitempty"`
	// EstimatedHours is the user's estimate of the whole run, in hours, greater than 1.
	EstimatedHours float64 `json:"estimated_hours,omitempty"`
	// Cores is the number of processors and MainMemoryMiB the main memory that each process of the job may use.
	// Default: the processors of its CPU slots, or all of its node's, and all memory. A job that takes
	// more memory is ended and has failed with the reason OutOfMemory. Processes on one node without containers have
	// their memory together. A node's main memory is given once: a job waits while jobs that asked for some leave less
	// than it asks for.
	Cores         int   `json:"cores,omitempty"`
	MainMemoryMiB int64 `json:"main_memory_mib,omitempty"`
	// Ports are container ports to expose on the node. A process without an image listens on the node itself: both numbers
	// must be equal then.
	Ports []PortMapping `json:"ports,omitempty"`

	// Priority from 0 to 100; higher goes first. Left out it is 50.
	Priority *int `json:"priority,omitempty"`
	// Devices is the number of devices if it is fixed: MinDevices and MaxDevices in one.
	Devices int `json:"devices,omitempty"`
	// Device is the kind of device that the job needs: gpu or cpu. Left out, any will do, unless GPU or GPUMemory is
	// given.
	Device DeviceKind `json:"device,omitempty"`
	// GPU is the model of GPU that the job needs, or several: H100|A100. A model is a part of the product's name, in
	// any case.
	GPU string `json:"gpu,omitempty"`
	// GPUMemory is the memory that each GPU must have, with its unit: 20GiB. It is EstimatedMemoryMiB of a GPU.
	GPUMemory string `json:"gpu_memory,omitempty"`
	// CPUs is another name of Cores. Memory is MainMemoryMiB with a unit: 32GiB.
	CPUs   int    `json:"cpus,omitempty"`
	Memory string `json:"memory,omitempty"`
	// MinDevices and MaxDevices bound the allocation (default 1 and 1; a job with a strategy may grow up to
	// MaxDevices).
	MinDevices int `json:"min_devices,omitempty"`
	MaxDevices int `json:"max_devices,omitempty"`
	// NodeLabels are labels that a node must have, all of them, to run the job.
	NodeLabels map[string]string `json:"node_labels,omitempty"`
	// Deadline is the time, as RFC 3339, by which the job should have ended. The job goes before others as far as that
	// helps, and is not stopped after it.
	Deadline *time.Time `json:"deadline,omitempty"`
	// After names jobs that must have ended before this one starts.
	After *AfterSpec `json:"after,omitempty"`
	// Array makes the submission an array of jobs, one for each index: 0-9, 0-99:10 or 1,3,7, and %4 behind them for at
	// most four at once. The job with index 3 of the array ID is ID-3, or ID/3; each has SWITCHYARD_ARRAY_INDEX.
	Array string `json:"array,omitempty"`
	// ArrayMember says which job of an array this one is, or was submitted again as. Admission sets it.
	ArrayMember *ArrayMember `json:"array_member,omitempty"`
	// Continue is the id of a job of the same user that has ended or is paused. This job begins from a copy of that job's
	// checkpoints. Jobs on Kubernetes cannot continue others.
	Continue JobID `json:"continue,omitempty"`
	// TimeLimit is how long the job may run in all, waiting apart, e.g. 90m, 2h or 1d12h. At the limit it is asked to
	// leave, is terminated a minute later, and has failed with the reason TimeLimit; its checkpoints are kept.
	TimeLimit unit.Duration `json:"time_limit,omitempty"`
	// Strategy: none, all_reduce or parameter_server.
	Strategy Strategy `json:"strategy,omitempty"`
	// ParameterServers describes the servers of the strategy parameter_server, beside its workers, which get a device
	// each.
	ParameterServers *ServersSpec `json:"parameter_servers,omitempty"`
	// Launch: per_node (default) or per_device.
	Launch Launch `json:"launch,omitempty"`
	// MaxRestarts bounds how often an attempt that was killed or lost is restarted without progress (default 3).
	MaxRestarts *int `json:"max_restarts,omitempty"`
	// Retries is how often the program is started again, in all, after it ended with a status other than 0 (default: 1
	// if the attempt that failed saved a checkpoint, else 0).
	Retries *int `json:"retries,omitempty"`
	// Notify says who is notified when something happens to the job.
	Notify []NotifySpec `json:"notify,omitempty"`
	// RestartSilent ends an attempt whose code has gone silent, and starts the next one from the newest checkpoint, as
	// after a loss: code that has reported steps and reports none for twenty of its own steps, and a minute, is silent.
	RestartSilent bool `json:"restart_silent,omitempty"`
	// Energy sets the weight of energy for the job, and what may be done to save it.
	Energy *EnergySpec `json:"energy,omitempty"`
}

// ProgressSpec says where a program writes how far it is. Give one of Pattern, CSV and TensorBoard.
type ProgressSpec struct {
	// Pattern is a regular expression for lines of output. Its named groups are (?P<epoch>..), (?P<step>..), (?P<of>..),
	// how many steps there are, and metrics such as (?P<loss>..).
	Pattern string `json:"pattern,omitempty"`
	// CSV is a pattern of CSV files with a header, such as lightning_logs/*/metrics.csv, below the working folder or the
	// snapshots folder. Its columns are epoch, step, and metrics.
	CSV string `json:"csv,omitempty"`
	// TensorBoard is a folder of TensorBoard's event files. Their steps count as steps, their scalars are metrics.
	TensorBoard string `json:"tensorboard,omitempty"`
	// Names gives the program's own names for epoch, step and loss, such as loss: Loss/train, or epoch: step if the steps
	// in TensorBoard count epochs. Usual names of a training loss need none.
	Names map[string]string `json:"names,omitempty"`
}

// StopSpec is the condition under which a training loss counts as converged. The job is then asked to stop and has
// succeeded.
type StopSpec struct {
	// LossDecrease is the fall of the training loss per epoch, in the job's own unit, below which an epoch counts as
	// calm.
	LossDecrease float64 `json:"loss_decrease"`
	// Epochs is the number of consecutive calm epochs required (default 3).
	Epochs int `json:"epochs,omitempty"`
}

// ServersSpec describes the parameter servers of a job. Each needs processors and memory of a node, but no device.
type ServersSpec struct {
	// Max is the largest useful number of servers (default: max_devices).
	Max int `json:"max,omitempty"`
	// Cores and MemoryMiB are the needs of one server (default: 1 core, and no bound on memory).
	Cores     int   `json:"cores,omitempty"`
	MemoryMiB int64 `json:"memory_mib,omitempty"`
	// Async reports that workers push without waiting for each other.
	Async bool `json:"async,omitempty"`
}

// PortMapping exposes a port of the job on its node.
type PortMapping struct {
	NodePort      int `json:"node_port"`
	ContainerPort int `json:"container_port"`
}

// Default values of a Spec.
const (
	DefaultPriority    = 50
	DefaultMaxRestarts = 3
	DefaultCalmEpochs  = 3
)

// Expanded returns the spec with the short forms that it can be written in expanded to the fields that they stand for.
// An amount that cannot be read stays as it is.
func (s Spec) Expanded() Spec {
	if s.Device == "" && (s.GPU != "" || s.GPUMemory != "") {
		s.Device = KindGPU
	}
	s.MinDevices, s.MaxDevices, s.Devices = cmp.Or(s.Devices, s.MinDevices), cmp.Or(s.Devices, s.MaxDevices), 0
	s.Cores, s.CPUs = cmp.Or(s.CPUs, s.Cores), 0
	amount := func(written *string, mib *int64) {
		if *written == "" {
			return // nearly always, and a planner expands the specs of a long queue
		}
		if size, err := unit.ParseBytes(*written); err == nil {
			*written, *mib = "", size.MiB()
		}
	}
	amount(&s.GPUMemory, &s.EstimatedMemoryMiB)
	amount(&s.Memory, &s.MainMemoryMiB)
	return s
}

// WithDefaults expands the spec, and fills in the fields that the user left out.
func (s Spec) WithDefaults() Spec {
	s = s.Expanded()
	if s.Priority == nil {
		p := DefaultPriority
		s.Priority = &p
	}
	if s.MaxRestarts == nil {
		n := DefaultMaxRestarts
		s.MaxRestarts = &n
	}
	if s.MinDevices == 0 {
		s.MinDevices = 1
	}
	if s.MaxDevices == 0 {
		s.MaxDevices = s.MinDevices
	}
	if s.SingleDevice {
		s.MaxDevices = 1
	}
	if s.Strategy == "" {
		s.Strategy = StrategyNone
		if s.MaxDevices > 1 {
			s.Strategy = StrategyAllReduce
		}
	}
	if s.Launch == "" {
		s.Launch = LaunchPerNode
	}
	if s.Stop != nil {
		stop := *s.Stop
		stop.Epochs = cmp.Or(stop.Epochs, DefaultCalmEpochs)
		s.Stop = &stop
	}
	if s.Strategy == StrategyParameterServer {
		servers := ServersSpec{}
		if s.ParameterServers != nil {
			servers = *s.ParameterServers
		}
		servers.Max, servers.Cores = cmp.Or(servers.Max, s.MaxDevices), cmp.Or(servers.Cores, 1)
		s.ParameterServers = &servers
	}
	return s
}

// StopRule returns the rule by which the job ends.
func (s Spec) StopRule() StopRule {
	rule := StopRule{MaxEpochs: s.Epochs()}
	if s.Stop != nil {
		rule.MinDecrease, rule.Patience = s.Stop.LossDecrease, s.Stop.Epochs
	}
	return rule
}

// SpeedKind returns the form of the job's step time.
func (s Spec) SpeedKind() SpeedKind {
	switch {
	case s.Strategy != StrategyParameterServer:
		return SpeedAllReduce
	case s.ParameterServers != nil && s.ParameterServers.Async:
		return SpeedServersAsync
	}
	return SpeedServersSync
}

// Signature identifies jobs that run the same program with the same batch for the same tenant: step times of one hold
// for the next. It is empty if the spec names no program.
func (s Spec) Signature() string {
	program := slices.Concat([]string{s.Image, s.ScriptPath, s.CustomDir}, s.Command)
	if !slices.ContainsFunc(program, func(word string) bool { return word != "" }) {
		return ""
	}
	return fmt.Sprintf("%q %q %d %s", s.Tenant, program, s.BatchSize, s.SpeedKind())
}

// Folders returns the fields that name folders of the node.
func (s *Spec) Folders() []*string {
	return []*string{&s.WorkDir, &s.CustomDir, &s.SnapshotsDir, &s.DatasetsDir}
}

// IsUpload reports whether a text is the hash of an uploaded folder.
func IsUpload(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// EstimatedMemory returns the requested device memory, per device.
func (s Spec) EstimatedMemory() unit.Bytes { return unit.Bytes(s.EstimatedMemoryMiB) * unit.MiB }

// SharedMemory returns the memory the job needs of each device that it may share; 0 if it needs devices to itself.
func (s Spec) SharedMemory() unit.Bytes {
	if !s.AllowSharing || s.DisableSharing || s.Strategy == StrategyParameterServer {
		return 0
	}
	return max(s.EstimatedMemory(), 0)
}

// FamilyKey identifies jobs that teach each other how long they take: one tenant's runs of the same code in the same
// image on the same data. Values of flags, numbers and the environment do not count, so the jobs of a sweep and the
// trials of an experiment are one family. It is empty if the spec neither names a family nor a program.
func (s Spec) FamilyKey() string {
	if s.Family != "" {
		return fmt.Sprintf("%q %q", s.Tenant, s.Family)
	}
	program := append(programWords(s.Command), s.ScriptPath)
	if !slices.ContainsFunc(append(program, s.Image), func(word string) bool { return word != "" }) {
		return ""
	}
	code := append(program, s.Image, cmp.Or(s.WorkDir, s.CustomDir, s.Upload), s.CustomDir)
	return fmt.Sprintf("%q %q %q %d %s", s.Tenant, code, s.DatasetsDir, s.TrainingSetSize, s.SpeedKind())
}

// programWords returns the words of a command that name a program: no flags, values of flags, assignments or numbers.
// The text of a shell is read as a command of its own.
func programWords(command []string) []string {
	var words []string
	for i, word := range command {
		before := ""
		if i > 0 {
			before = command[i-1]
		}
		switch {
		case before == "-c":
			words = append(words, programWords(strings.Fields(word))...)
		case before == "-m" || isProgram(word):
			words = append(words, word)
		case strings.HasPrefix(word, "-") || strings.Contains(word, "=") || isNumber(word):
		case strings.HasPrefix(before, "-") && !strings.Contains(before, "="):
		default:
			words = append(words, word)
		}
	}
	return words
}

// isProgram recognises a program even where it stands behind a flag without a value.
func isProgram(word string) bool {
	return !strings.HasPrefix(word, "-") && slices.Contains([]string{".py", ".sh", ".jar", ".jl", ".R", ".lua", ".rb"}, path.Ext(word))
}

func isNumber(word string) bool {
	_, err := strconv.ParseFloat(word, 64)
	return err == nil
}

// ShellSpec makes a job interactive: its command runs on a terminal of its node, to which people attach theirs.
type ShellSpec struct {
	// Key is the SHA-256 (hex) of the secret with which a terminal may be attached; without it, everyone who reaches the
	// bus may.
	Key string `json:"key,omitempty"`
	// Keep lets the job run on while no terminal is attached. Without it, the job ends five minutes after the last one
	// has gone.
	Keep bool `json:"keep,omitempty"`
	// Idle ends the job after this time without a key pressed, e.g. 30m (default: never).
	Idle unit.Duration `json:"idle,omitempty"`
}

// Allows reports whether a terminal with this secret may be attached.
func (s *ShellSpec) Allows(secret string) bool {
	if s == nil || s.Key == "" {
		return true
	}
	return subtle.ConstantTimeCompare([]byte(s.Key), []byte(Hash(secret))) == 1
}

// Needs is Allows where a terminal without a secret is never attached.
func (s *ShellSpec) Needs(secret string) bool { return s != nil && s.Key != "" && s.Allows(secret) }
