package fit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func good() train.Spec {
	return train.Spec{
		Name: "mnist", ScriptPath: "/custom/test1.py", CustomDir: "/home/ann/tests", SnapshotsDir: "/home/ann/snap",
		BatchSize: 64, TrainingSetSize: 60000, MaxEpochs: 10,
	}
}

func goodPaths() Paths {
	return Paths{
		Roots:        []string{"/home", "/data"},
		CustomDir:    Path{Resolved: "/home/ann/tests", IsFolder: true},
		SnapshotsDir: Path{Resolved: "/data/ann/snap", IsFolder: true},
		Script:       Path{Resolved: "/home/ann/tests/test1.py"},
	}
}

func inventory() Inventory {
	return Inventory{Means: Means{Commands: []string{"page"}}, Nodes: []train.Node{
		{ID: "small", Devices: []train.Device{{ID: "gpu:0", Memory: 16 * unit.GiB}}},
		{ID: "large", Devices: []train.Device{{ID: "gpu:0", Memory: 24 * unit.GiB}, {ID: "gpu:1", Memory: 24 * unit.GiB}}},
	}}
}

func slots() []train.Node {
	return []train.Node{{ID: "slots", Cores: 8, Memory: 4 * unit.GiB, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}}}}
}

func cards() []train.Node {
	gpu := func(id train.DeviceID, model string, gib unit.Bytes) train.Device {
		return train.Device{ID: id, Kind: train.KindGPU, Model: model, Memory: gib * unit.GiB}
	}
	return []train.Node{
		{ID: "l4", Cores: 8, Devices: []train.Device{gpu("gpu:0", "NVIDIA L4", 24), gpu("gpu:1", "NVIDIA L4", 24)}},
		{ID: "t4", Cores: 8, Devices: []train.Device{gpu("gpu:0", "Tesla T4", 16)}},
	}
}

func ann() Identity { return Identity{User: "ann", Tenant: "vision", At: time.Unix(0, 0)} }

func TestAGoodSpecIsCompleted(t *testing.T) {
	v := Check(good(), ann(), inventory(), goodPaths())
	if len(v.Reasons) > 0 || v.Infeasible {
		t.Fatalf("refused: %s", v.Message())
	}
	want := good()
	want.User, want.Tenant, want.SnapshotsDir = "ann", "vision", "/data/ann/snap"
	if diff := cmp.Diff(want.WithDefaults(), v.Spec); diff != "" {
		t.Fatal(diff)
	}
}

type refusal struct {
	name   string
	change func(*train.Spec, *Identity, *Inventory, *Paths)
	want   []string
}

func run(t *testing.T, cases []refusal, infeasible bool) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			spec, who, where, paths := good(), ann(), inventory(), goodPaths()
			tc.change(&spec, &who, &where, &paths)
			v := Check(spec, who, where, paths)
			var got []string
			for _, r := range v.Reasons {
				got = append(got, r.Code+" "+r.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if v.Infeasible != (infeasible && len(tc.want) > 0) {
				t.Errorf("infeasible is %v", v.Infeasible)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	two, none, many, negative := 2, 0, 101, -1
	spec := func(f func(*train.Spec)) func(*train.Spec, *Identity, *Inventory, *Paths) {
		return func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { f(s) }
	}
	run(t, []refusal{
		{"no name", spec(func(s *train.Spec) { s.Name = "" }), []string{
			`InvalidName name: want 1 to 63 printable characters, found "" (name the experiment, e.g. resnet50-lr3)`,
		}},
		{"long name", spec(func(s *train.Spec) { s.Name = strings.Repeat("é", 63) }), nil},
		{"too long a name", spec(func(s *train.Spec) { s.Name = strings.Repeat("é", 64) }), []string{
			`InvalidName name: want 1 to 63 printable characters, found "` + strings.Repeat("é", 64) + `" (name the experiment, e.g. resnet50-lr3)`,
		}},
		{"name that reorders text", spec(func(s *train.Spec) { s.Name = "a\u202eb" }), []string{
			`InvalidName name: want 1 to 63 printable characters, found "a\u202eb" (name the experiment, e.g. resnet50-lr3)`,
		}},
		{"somebody else", spec(func(s *train.Spec) { s.User, s.Tenant = "bob", "speech" }), []string{
			`NotYourself user: the body says "bob", but submissions here come from "ann" (leave it out: the submitter's identity supplies it)`,
			`NotYourself tenant: the body says "speech", but submissions here come from "vision" (leave it out: the submitter's identity supplies it)`,
		}},
		{"oneself", spec(func(s *train.Spec) { s.User, s.Tenant = "ann", "vision" }), nil},
		{"unknown log", spec(func(s *train.Spec) { s.LogFormat = "spark" }), []string{
			`UnknownLogFormat log_format: want bigdl or mxnet, found "spark" (leave it out if the code calls the job API)`,
		}},
		{"log of BigDL", spec(func(s *train.Spec) { s.LogFormat = train.LogBigDL }), nil},
		{"log of MXNet with parameter servers", spec(func(s *train.Spec) { s.LogFormat, s.Strategy = train.LogMXNet, train.StrategyParameterServer }), nil},
		{"a secret in a file", spec(func(s *train.Spec) {
			s.SecretEnv = map[string]string{"KEY": "file:/home/ann/key", "OTHER": "credential:wandb"}
		}), nil},
		{"secrets that are none", spec(func(s *train.Spec) {
			s.Env = map[string]string{"BOTH": "x"}
			s.SecretEnv = map[string]string{"BOTH": "file:/home/ann/key", "JOB_UUID": "file:/home/ann/key", "1": "file:/home/ann/key", "KEY": "value", "POD": "secret:a/b"}
		}), []string{
			`InvalidVariable secret_env.1: want letters, digits and '_', not beginning with a digit; found "1"`,
			`Contradiction secret_env.BOTH: env has a value for BOTH, too (leave one of them out)`,
			`ReservedVariable secret_env.JOB_UUID: the scheduler sets JOB_UUID (leave it out: the job gets it from the scheduler)`,
			`InvalidSecret secret_env.KEY: want file:/PATH, credential:NAME or secret:NAME/KEY, found "value" (e.g. file:/home/ann/.wandb-key)`,
			`NotSupported secret_env.POD: no node is one of Kubernetes, which would have the Secret (name a file: file:/PATH)`,
		}},
		{"leaves by a signal", spec(func(s *train.Spec) { s.Preempt, s.Checkpoint = "signal", "out/checkpoint-*/model.pt" }), nil},
		{"leaves without a checkpoint", spec(func(s *train.Spec) { s.Preempt = "signal" }), []string{
			`NoCheckpoint checkpoint: preempt: signal needs it: without a checkpoint a job that leaves loses its work (name the files that the code saves and goes on from, e.g. "checkpoints/*.pt")`,
		}},
		{"leaves in no known way", spec(func(s *train.Spec) { s.Preempt, s.Checkpoint = "usr1", "/etc/*" }), []string{
			`UnknownPreempt preempt: want signal, found "usr1" (leave it out if the code calls the job API)`,
			`InvalidPattern checkpoint: want a path below /snapshots or /custom, or a relative one, found "/etc/*" (give it relative to the working folder or the snapshots folder)`,
		}},
		{"a checkpoint elsewhere", spec(func(s *train.Spec) { s.Checkpoint = "../*.pt" }), []string{
			`InvalidPattern checkpoint: want a pattern of file names with * ? [..] and without .., at most 1024 bytes, found "../*.pt" (e.g. "checkpoints/*.pt")`,
		}},
		{"no signals for pods", func(s *train.Spec, _ *Identity, where *Inventory, _ *Paths) {
			s.Preempt, s.Checkpoint = "signal", "*.pt"
			for i := range where.Nodes {
				where.Nodes[i].Backend = train.BackendKubernetes
			}
		}, []string{
			"NotSupported checkpoint: all nodes are those of Kubernetes: Switchyard sends no signals to the processes of a pod, and does not look at its files (let the code report its checkpoints to the job API)",
		}},
		{"progress in lines", spec(func(s *train.Spec) { s.Progress = &train.ProgressSpec{Pattern: `epoch (?P<epoch>\d+)`} }), nil},
		{"progress in files", spec(func(s *train.Spec) {
			s.Progress = &train.ProgressSpec{CSV: "logs/*/metrics.csv", Names: map[string]string{"loss": "train"}}
		}), nil},
		{"progress in two places", spec(func(s *train.Spec) {
			s.Progress = &train.ProgressSpec{CSV: "a.csv", TensorBoard: "runs", Names: map[string]string{"lr": "x"}}
		}), []string{
			"Contradiction progress: want one of pattern, csv and tensorboard, found 2 (e.g. progress: {csv: metrics.csv})",
			`UnknownName progress.names: want names for epoch, step, of or loss, found "lr"`,
		}},
		{"progress that says nothing", spec(func(s *train.Spec) { s.Progress = &train.ProgressSpec{Pattern: `loss (.*)`} }), []string{
			`InvalidPattern progress.pattern: want a regular expression with a group named epoch or step, at most 1024 bytes: "loss (.*)" has neither a group (?P<epoch>..) nor a group (?P<step>..) (e.g. 'epoch (?P<epoch>\d+): loss (?P<loss>\S+)')`,
		}},
		{"two programs", spec(func(s *train.Spec) { s.Command = []string{"python", "a.py"} }), []string{
			"TwoPrograms script_path: both command and script_path are given (give one of them)",
		}},
		{"no program", spec(func(s *train.Spec) { s.ScriptPath = "" }), []string{
			`NoProgram command: neither command, nor script_path, nor an image with its own program (e.g. "command": ["python", "train.py"])`,
		}},
		{"empty program", spec(func(s *train.Spec) { s.ScriptPath, s.Command = "", []string{"", "x\x00"} }), []string{
			"NoProgram command[0]: the program has an empty name", "InvalidText command[1]: holds a NUL character",
		}},
		{"image that is an option", spec(func(s *train.Spec) { s.Image = "--privileged" }), []string{
			`InvalidImage image: "--privileged" is not an image name (e.g. docker.io/pytorch/pytorch:2.4.0)`,
			"NoContainerRuntime image: no node can run containers (install docker or podman on the node, or leave image out and run the job as a process)",
		}},
		{"no sizes", spec(func(s *train.Spec) { s.BatchSize, s.TrainingSetSize, s.MaxEpochs = -1, -4, -2 }), []string{
			"OutOfRange batch_size: want at least 0, found -1 (the number of samples per device and pass)",
			"OutOfRange training_set_size: want at least 0, found -4 (the number of samples of an epoch, validation excluded)",
			"OutOfRange max_epochs: want at least 0, found -2 (the number of epochs to train)",
		}},
		{"nothing told", spec(func(s *train.Spec) { s.BatchSize, s.TrainingSetSize, s.MaxEpochs = 0, 0, 0 }), nil},
		{"nothing told, on several devices", spec(func(s *train.Spec) { s.BatchSize, s.TrainingSetSize, s.MaxEpochs, s.MaxDevices = 0, 0, 0, 2 }), nil},
		{"an adaptive batch of unknown work", spec(func(s *train.Spec) {
			s.BatchSize, s.TrainingSetSize, s.MaxEpochs, s.AdaptiveBatch = 0, 0, 0, &train.AdaptiveBatchSpec{Max: 64}
		}), []string{
			"OutOfRange batch_size: want at least 1, found 0 (the number of samples per device and pass)",
			"OutOfRange training_set_size: want at least 1, found 0 (the number of samples of an epoch, validation excluded)",
			"OutOfRange max_epochs: want at least 1, found 0 (the number of epochs to train)",
		}},
		{"a stop rule without a last epoch", spec(func(s *train.Spec) { s.MaxEpochs, s.Stop = 0, &train.StopSpec{LossDecrease: 0.01} }), []string{
			"OutOfRange max_epochs: want at least 1, found 0 (the number of epochs to train)",
		}},
		{"a stop that never comes", spec(func(s *train.Spec) { s.Stop = &train.StopSpec{Epochs: -1} }), []string{
			"OutOfRange stop.loss_decrease: want more than 0 and at most 1e+12, found 0 (the fall of the loss per epoch below which training is at its end)",
			"OutOfRange stop.epochs: want at least 0, found -1",
		}},
		{"a stop", spec(func(s *train.Spec) { s.Stop = &train.StopSpec{LossDecrease: 0.01} }), nil},
		{"servers without their strategy", spec(func(s *train.Spec) { s.ParameterServers = &train.ServersSpec{Max: -1, Cores: 1} }), []string{
			`Contradiction parameter_servers: only jobs with that strategy have parameter servers; this job has "" (use strategy parameter_server)`,
			"OutOfRange parameter_servers.max: want at least 0, found -1",
		}},
		{"too many epochs", spec(func(s *train.Spec) { s.MaxEpochs = 1_000_001 }), []string{"OutOfRange max_epochs: want at most 1000000, found 1000001 (the number of epochs to train)"}},
		{"most epochs", spec(func(s *train.Spec) { s.MaxEpochs = 1_000_000 }), nil},
		{"batch larger than the set", spec(func(s *train.Spec) { s.BatchSize, s.TrainingSetSize = 65, 64 }), []string{
			"BatchTooLarge batch_size: want at most training_set_size 64, found 65 (an epoch needs at least one full batch)",
		}},
		{"batch as large as the set", spec(func(s *train.Spec) { s.BatchSize, s.TrainingSetSize = 64, 64 }), nil},
		{"one hour", spec(func(s *train.Spec) { s.EstimatedHours = 1 }), []string{
			"OutOfRange estimated_hours: want more than 1 and at most 100000 hours, found 1 (leave it out for a short job)",
		}},
		{"negative hours", spec(func(s *train.Spec) { s.EstimatedHours = -2 }), []string{
			"OutOfRange estimated_hours: want more than 1 and at most 100000 hours, found -2 (leave it out for a short job)",
		}},
		{"a bit more than one hour", spec(func(s *train.Spec) { s.EstimatedHours = 1.01 }), nil},
		{"negative memory", spec(func(s *train.Spec) { s.EstimatedMemoryMiB = -1 }), []string{"OutOfRange estimated_memory_mib: want at least 0, found -1"}},
		{"memory that overflows", spec(func(s *train.Spec) { s.EstimatedMemoryMiB = 1 << 62 }), []string{
			"OutOfRange estimated_memory_mib: want at most 1073741824, found 4611686018427387904",
		}},
		{"sharing", spec(func(s *train.Spec) { s.AllowSharing, s.EstimatedMemoryMiB = true, 4096 }), nil},
		{"sharing and not sharing", spec(func(s *train.Spec) { s.AllowSharing, s.DisableSharing, s.EstimatedMemoryMiB = true, true, 4096 }), []string{
			"Contradiction allow_sharing: disable_sharing is also set (leave one of them out)",
		}},
		{"sharing without a memory need", spec(func(s *train.Spec) { s.AllowSharing = true }), []string{
			"OutOfRange estimated_memory_mib: want more than 0 for a job that may share its devices (give the memory that the job needs on a device)",
		}},
		{"sharing of two devices", spec(func(s *train.Spec) {
			s.AllowSharing, s.EstimatedMemoryMiB, s.MinDevices, s.MaxDevices, s.Strategy = true, 4096, 2, 2, train.StrategyAllReduce
		}), nil},
		{"sharing with servers", spec(func(s *train.Spec) {
			s.AllowSharing, s.EstimatedMemoryMiB, s.Strategy = true, 4096, train.StrategyParameterServer
		}), []string{
			"NotSupported allow_sharing: jobs with parameter servers share no device (leave it out, or use strategy all_reduce)",
		}},
		{"priority and restarts at their borders", spec(func(s *train.Spec) { s.Priority, s.MaxRestarts = &none, &none }), nil},
		{"priority and restarts beyond", spec(func(s *train.Spec) { s.Priority, s.MaxRestarts = &many, &negative }), []string{
			"OutOfRange priority: want at most 100, found 101", "OutOfRange max_restarts: want at least 0, found -1",
		}},
		{"a deadline", spec(func(s *train.Spec) { s.Deadline = new(time.Unix(3600, 0)) }), nil},
		{"a group", spec(func(s *train.Spec) {
			s.Energy = &train.EnergySpec{Eta: new(0.5), Group: "nightly", BatchSizes: []int{32, 64, 60000}, StartBy: new(time.Unix(3600, 0))}
		}), nil},
		{"a target", spec(func(s *train.Spec) {
			s.Energy = &train.EnergySpec{Target: &train.TargetSpec{Metric: "accuracy", AtLeast: new(0.75)}}
		}), nil},
		{"a target of nothing", spec(func(s *train.Spec) { s.Energy = &train.EnergySpec{StopEarly: true, Target: &train.TargetSpec{}} }), []string{
			"InvalidName energy.target.metric: want the name of a value that the training code reports, 1 to 128 bytes, found 0 (e.g. validation_accuracy, or loss)",
			`Contradiction energy.target: want one of at_least and at_most (e.g. {"metric": "accuracy", "at_least": 0.75})`,
			"Contradiction energy.stop_early: a job is compared with the cheapest job of its group, but no group is named (name the group of recurring jobs in energy.group)",
		}},
		{"a group that begins elsewhere", spec(func(s *train.Spec) { s.Energy = &train.EnergySpec{Group: "night.ly", BatchSizes: []int{32, 32, 70000}} }), []string{
			`InvalidName energy.group: want 1 to 64 letters, digits, '-' or '_', beginning with a letter or digit, found "night.ly" (e.g. nightly-ranking)`,
			"OutOfRange energy.batch_sizes: want different numbers in ascending order from 1 to training_set_size 60000",
			"Contradiction energy.batch_sizes: batch_size 64, with which the group begins, is not in the list (add it to the list)",
		}},
		{"a group without batch sizes", spec(func(s *train.Spec) { s.Energy = &train.EnergySpec{Group: "nightly"} }), []string{
			"OutOfRange energy.batch_sizes: want 1 to 32 batch sizes, found 0 (e.g. [32, 64, 128])",
		}},
		{"energy for nothing", spec(func(s *train.Spec) {
			s.Energy = &train.EnergySpec{Eta: new(1.5), BatchSizes: []int{64}, StartBy: new(time.Unix(-1, 0))}
		}), []string{
			"OutOfRange energy.eta: want 0 (time alone) to 1 (energy alone), found 1.5",
			"OutOfRange energy.start_by: want a time after the submission at 1970-01-01T00:00:00Z, within 100000 hours, found 1969-12-31T23:59:59Z (leave it out if the job may start at once)",
			"Contradiction energy.batch_sizes: batch sizes are tried over the jobs of a group, but no group is named (name the group of recurring jobs in energy.group)",
		}},
		{"a deadline that is over", spec(func(s *train.Spec) { s.Deadline = new(time.Unix(0, 0)) }), []string{
			"OutOfRange deadline: want a time after the submission at 1970-01-01T00:00:00Z, within 100000 hours, found 1970-01-01T00:00:00Z (leave it out if the job may end at any time)",
		}},
		{"labels", spec(func(s *train.Spec) {
			s.NodeLabels = map[string]string{"example.com/tier": "", "-tier": "fast", "gpu": "a b", "/x": "y"}
		}), []string{
			`InvalidLabel node_labels: "-tier": "fast" is not a valid node label (e.g. gpushare: "true")`,
			`InvalidLabel node_labels: "/x": "y" is not a valid node label (e.g. gpushare: "true")`,
			"InvalidLabel node_labels: \"gpu\": \"a b\" is not a valid node label (e.g. gpushare: \"true\")",
			`NoNode node_labels: no node has the labels -tier=fast,/x=y,example.com/tier=,gpu=a b (label a node, or leave node_labels out)`,
		}},
		{"words of its user", spec(func(s *train.Spec) {
			s.Project, s.Labels = "my thesis", map[string]string{"phase": "warmup", "example.com/lr": "3e-4"}
		}), nil},
		{"words that are none", spec(func(s *train.Spec) { s.Project, s.Labels = "a\tb", map[string]string{"my phase": "x"} }), []string{
			`InvalidName project: want 1 to 63 printable characters, found "a\tb" (e.g. thesis)`,
			`InvalidLabel labels: "my phase": "x" is not a valid label (e.g. phase: warmup)`,
		}},
		{"two restarts", spec(func(s *train.Spec) { s.MaxRestarts = &two }), nil},
		{"ports", spec(func(s *train.Spec) {
			s.Ports = []train.PortMapping{{NodePort: 80, ContainerPort: 0}, {NodePort: 30000, ContainerPort: 65536}, {NodePort: 30000, ContainerPort: 1}}
		}), []string{
			"OutOfRange ports[0].node_port: want at least 1024, found 80", "OutOfRange ports[0].container_port: want at least 1, found 0",
			"OutOfRange ports[1].container_port: want at most 65535, found 65536",
			"Contradiction ports[2].node_port: port 30000 of the node is already used by ports[1]",
		}},
		{"ports of a process", spec(func(s *train.Spec) {
			s.Ports = []train.PortMapping{{NodePort: 30000, ContainerPort: 30000}, {NodePort: 30001, ContainerPort: 6006}}
		}), []string{
			"NotSupported ports[1]: a job that is no pod listens on the node itself: port 30001 cannot lead to port 6006 (listen on port 30001 and give 30001 for both)",
		}},
		{"ports of a container without Kubernetes", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.Image, s.Ports, w.Nodes[0].ContainerRuntime = "trainer", []train.PortMapping{{NodePort: 30001, ContainerPort: 6006}}, "docker"
		}, []string{
			"NotSupported ports[0]: a job that is no pod listens on the node itself: port 30001 cannot lead to port 6006 (listen on port 30001 and give 30001 for both)",
		}},
		{"fewer than least", spec(func(s *train.Spec) { s.MinDevices, s.MaxDevices = 2, 1 }), []string{"Contradiction min_devices: min_devices is 2, max_devices 1"}},
		{"single device on two", spec(func(s *train.Spec) { s.SingleDevice, s.MinDevices = true, 2 }), []string{
			"Contradiction min_devices: single_device is set, but min_devices is 2 (leave out single_device if the code can use several devices)",
		}},
		{"no strategy for two", spec(func(s *train.Spec) { s.Strategy, s.MaxDevices = "none", 2 }), []string{
			"Contradiction max_devices: strategy none uses one device, but max_devices is 2 (use strategy all_reduce, or one device)",
		}},
		{"two devices", spec(func(s *train.Spec) {
			s.Strategy, s.MinDevices, s.MaxDevices, s.Launch = "all_reduce", 1, 2, "per_device"
		}), nil},
		{"unknown words", spec(func(s *train.Spec) { s.Strategy, s.Launch = "allreduce", "per-gpu" }), []string{
			`UnknownValue strategy: want none, all_reduce or parameter_server, found "allreduce" (did you mean all_reduce?)`,
			`UnknownValue launch: want per_node or per_device, found "per-gpu"`,
		}},
		{"variables", spec(func(s *train.Spec) {
			s.Env = map[string]string{"LR": "0.1", "1X": "", "JOB_UUID": "x", "SWITCHYARD_JOB": "y", "SWITCHYARD_PARAM_LR": "0.1", "Z": "\x00", "": ""}
		}), []string{
			`InvalidVariable env.: want letters, digits and '_', not beginning with a digit; found ""`,
			`InvalidVariable env.1X: want letters, digits and '_', not beginning with a digit; found "1X"`,
			`ReservedVariable env.JOB_UUID: the scheduler sets JOB_UUID (leave it out: the job gets it from the scheduler)`,
			`ReservedVariable env.SWITCHYARD_JOB: the scheduler sets SWITCHYARD_JOB (leave it out: the job gets it from the scheduler)`,
			`InvalidText env.Z: holds a NUL character`,
		}},
		{"the same twice", spec(func(s *train.Spec) {
			s.Devices, s.MinDevices, s.MaxDevices, s.CPUs, s.Cores = 2, 2, 2, 1, 1
			s.Memory, s.MainMemoryMiB, s.GPUMemory, s.EstimatedMemoryMiB = "1GiB", 1, "1GiB", 1
		}), []string{
			"Contradiction devices: it stands for min_devices, which is also given (leave one of them out)",
			"Contradiction devices: it stands for max_devices, which is also given (leave one of them out)",
			"Contradiction cpus: it stands for cores, which is also given (leave one of them out)",
			"Contradiction memory: it stands for main_memory_mib, which is also given (leave one of them out)",
			"Contradiction gpu_memory: it stands for estimated_memory_mib, which is also given (leave one of them out)",
		}},
		{"amounts that cannot be read", spec(func(s *train.Spec) { s.Memory, s.GPUMemory, s.Devices = "much", "20", -1 }), []string{
			`InvalidAmount gpu_memory: want an amount with a unit, such as 20GiB, 512MiB or 80GB; found "20"`,
			`InvalidAmount memory: want an amount with a unit, such as 20GiB, 512MiB or 80GB; found "much"`,
			"OutOfRange devices: want at least 0, found -1",
		}},
		{"a kind that no device has", spec(func(s *train.Spec) { s.Device, s.GPU = "gpus", "|" }), []string{
			`UnknownValue device: want gpu or cpu, found "gpus" (did you mean gpu?)`,
			`InvalidName gpu: want models of GPUs with | between them, at most 256 bytes, found "|" (e.g. H100, or H100|A100)`,
		}},
		{"processors with a GPU", spec(func(s *train.Spec) { s.Device, s.GPUMemory = "cpu", "1GiB" }), []string{
			"Contradiction device: it is cpu, but gpu or gpu_memory is given (leave it out)",
		}},
		{"people to tell", spec(func(s *train.Spec) {
			s.Notify = []train.NotifySpec{
				{On: []train.NoticeKind{"fail"}, Webhook: "https://x/y"},
				{},
				{Webhook: "https://x", Mail: "a@b"},
				{Webhook: "ftp://x"},
				{Webhook: "http://ann:pw@x"},
				{Mail: "a@b\r\nBcc: c@d"},
				{Mail: "ann@lab.example"},
				{Command: "rm"},
			}
		}), []string{
			`UnknownValue notify[0].on[0]: want ended, failed, silent, preempted or late, found "fail" (did you mean failed?)`,
			`Contradiction notify[1]: want one of webhook, mail and command, found 0 (e.g. {"on": ["failed"], "webhook": "https://example.com/hook"})`,
			`Contradiction notify[2]: want one of webhook, mail and command, found 2 (e.g. {"on": ["failed"], "webhook": "https://example.com/hook"})`,
			`InvalidTarget notify[3].webhook: want a URL of http or https without user and password, at most 1024 bytes`,
			`InvalidTarget notify[4].webhook: want a URL of http or https without user and password, at most 1024 bytes`,
			`InvalidTarget notify[5].mail: want one address such as ann@example.com, found "a@b\r\nBcc: c@d"`,
			`NotSupported notify[6].mail: no mail is sent here (ask the operator for admission.notify_smtp, or give a webhook)`,
			`NoSuchCommand notify[7].command: want one of the commands [page], found "rm" (ask the operator for an entry in admission.notify_commands)`,
		}},
		{"everything at once", spec(func(s *train.Spec) { s.Name, s.BatchSize, s.MaxEpochs, s.ScriptPath = "", -1, -1, "" }), []string{
			`InvalidName name: want 1 to 63 printable characters, found "" (name the experiment, e.g. resnet50-lr3)`,
			`NoProgram command: neither command, nor script_path, nor an image with its own program (e.g. "command": ["python", "train.py"])`,
			"OutOfRange batch_size: want at least 0, found -1 (the number of samples per device and pass)",
			"OutOfRange max_epochs: want at least 0, found -1 (the number of epochs to train)",
		}},
	}, false)
}

func TestPaths(t *testing.T) {
	run(t, []refusal{
		{"host path of the script", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.ScriptPath = "/home/ann/tests/test1.py" }, []string{
			`HostPath script_path: "/home/ann/tests/test1.py" is a path on the host; the job sees custom_dir at /custom (use /custom/test1.py)`,
		}},
		{"host path behind a link", func(s *train.Spec, _ *Identity, _ *Inventory, p *Paths) {
			s.CustomDir, p.CustomDir.Resolved, s.ScriptPath = "/home/ann/link", "/home/ann/tests", "/home/ann/tests/sub/test1.py"
		}, []string{
			`HostPath script_path: "/home/ann/tests/sub/test1.py" is a path on the host; the job sees custom_dir at /custom (use /custom/sub/test1.py)`,
		}},
		{"script beside the folder", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.ScriptPath = "/home/ann/tests2/test1.py" }, nil},
		{"script below nothing", func(s *train.Spec, _ *Identity, _ *Inventory, p *Paths) { s.CustomDir, p.CustomDir = "", Path{} }, []string{
			`NoCustomDir script_path: "/custom/test1.py" is below /custom, but custom_dir is not given (give custom_dir, the folder that is mounted at /custom)`,
		}},
		{"relative script", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.ScriptPath = "test1.py" }, []string{
			`RelativePath script_path: want an absolute path as the job sees it, found "test1.py"`,
		}},
		{"script in an image", func(s *train.Spec, _ *Identity, w *Inventory, p *Paths) {
			s.Image, s.ScriptPath, p.Script, w.Nodes[0].ContainerRuntime = "torch:2", "train.py", Path{}, "docker"
		}, nil},
		{"an image alone", func(s *train.Spec, _ *Identity, w *Inventory, p *Paths) {
			s.Image, s.ScriptPath, s.CustomDir, p.CustomDir, p.Script, w.Nodes[0].ContainerRuntime = "torch:2", "", "", Path{}, Path{}, "docker"
		}, nil},
		{"missing script", func(_ *train.Spec, _ *Identity, _ *Inventory, p *Paths) {
			p.Script = Path{Resolved: "/home/ann/tests/test1.py", Fault: "does not exist"}
		}, []string{
			`NoSuchFile script_path: "/custom/test1.py": does not exist`,
		}},
		{"script that is a folder", func(_ *train.Spec, _ *Identity, _ *Inventory, p *Paths) { p.Script.IsFolder = true }, []string{
			`NotAFile script_path: "/custom/test1.py" is a folder`,
		}},
		{"missing folder", func(_ *train.Spec, _ *Identity, _ *Inventory, p *Paths) {
			p.CustomDir = Path{Resolved: "/home/ann/tests", Fault: "does not exist"}
		}, []string{
			`NoSuchFolder custom_dir: "/home/ann/tests": does not exist (create it first, readable for the scheduler)`,
		}},
		{"file for a folder", func(_ *train.Spec, _ *Identity, _ *Inventory, p *Paths) { p.SnapshotsDir.IsFolder = false }, []string{
			`NotAFolder snapshots_dir: "/home/ann/snap" is no folder`,
		}},
		{"relative folder", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.DatasetsDir = "data" }, []string{
			`RelativePath datasets_dir: want an absolute path, found "data"`,
		}},
		{"link out of the roots", func(_ *train.Spec, _ *Identity, _ *Inventory, p *Paths) { p.CustomDir.Resolved = "/etc" }, []string{
			`OutsideRoots custom_dir: "/home/ann/tests" lies outside the allowed folders (use a folder below /home or /data, or ask the operator for --allow-root)`,
		}},
		{"name that only begins like a root", func(s *train.Spec, _ *Identity, _ *Inventory, p *Paths) {
			s.CustomDir, p.CustomDir.Resolved = "/home2/x", "/home2/x"
		}, []string{
			`OutsideRoots custom_dir: "/home2/x" lies outside the allowed folders (use a folder below /home or /data, or ask the operator for --allow-root)`,
		}},
		{"the root of everything is a root", func(s *train.Spec, _ *Identity, _ *Inventory, p *Paths) {
			p.Roots, s.CustomDir, p.CustomDir.Resolved = []string{"/"}, "/etc", "/etc"
		}, nil},
		{"work_dir below a mount", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.WorkDir = "/custom/sub" }, nil},
		{"an uploaded folder", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) {
			s.CustomDir, s.Upload, s.WorkDir = "", strings.Repeat("0a", 32), "/custom/sub"
		}, nil},
		{"a key of a shell", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.Shell = &train.ShellSpec{Key: "x"} }, []string{
			`InvalidKey shell.key: want a SHA-256 as 64 hexadecimal digits, found "x" (` + "`switchyard shell`" + ` makes it)`,
		}},
		{"an uploaded folder beside another", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.Upload = strings.Repeat("0a", 32) }, []string{
			"Contradiction upload: the uploaded folder is the job's custom_dir, but custom_dir is given too (give one of them)",
		}},
		{"an upload that is no hash", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.CustomDir, s.Upload = "", "../x" }, []string{
			`InvalidUpload upload: want the hash of an uploaded folder, 64 hexadecimal digits, found "../x" (` + "`switchyard submit --upload`" + ` uploads a folder and names its hash)`,
		}},
		{"work_dir that is missing", func(s *train.Spec, _ *Identity, _ *Inventory, p *Paths) {
			s.WorkDir, p.WorkDir = "/data/w", Path{Resolved: "/data/w", Fault: "does not exist"}
		}, []string{`NoSuchFolder work_dir: "/data/w": does not exist (create it first, readable for the scheduler)`}},
	}, false)
}

func TestWhatCanNeverRunHere(t *testing.T) {
	run(t, []refusal{
		{"too many devices", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.MinDevices = 3 }, []string{
			"TooFewDevices min_devices: want at least 3 on one node, the largest node large has 2 (ask for fewer)",
		}},
		{"as many as there are", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.MinDevices, s.MaxDevices = 2, 8 }, nil},
		{"nodes without devices", func(_ *train.Spec, _ *Identity, w *Inventory, _ *Paths) { w.Nodes = []train.Node{{ID: "bare"}} }, []string{
			"TooFewDevices min_devices: want at least 1 on one node, the largest node bare has 0 (ask for fewer)",
		}},
		{"an uploaded folder for pods", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.CustomDir, s.Upload, w.Nodes = "", strings.Repeat("0a", 32), []train.Node{{ID: "pods", Backend: train.BackendKubernetes}}
		}, []string{
			"NotSupported upload: the nodes run pods, which cannot have an uploaded folder (put the code into an image, or into a folder below a volume root, as custom_dir)",
		}},
		{"a shell for pods", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.Shell, w.Nodes = &train.ShellSpec{}, []train.Node{{ID: "pods", Backend: train.BackendKubernetes}}
		}, []string{
			"NotSupported shell: the nodes run pods, to which Switchyard attaches no terminal (submit `sleep infinity` with a time_limit, and `kubectl exec -it` into its pod)",
		}},
		{"too much memory", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.EstimatedMemoryMiB = 24*1024 + 1 }, []string{
			"TooMuchMemory estimated_memory_mib: want 24577 MiB per device, the largest device (node large) has 24 GiB (a smaller batch_size needs less)",
		}},
		{"more of a node than any has", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.Cores, s.MainMemoryMiB, w.Nodes[0].Cores, w.Nodes[0].Memory = 9, 4097, 8, 4*unit.GiB
		}, []string{
			"TooManyCores cores: want 9, the largest node has 8 (ask for fewer)", "TooMuchMemory main_memory_mib: want 4097 MiB, the largest node has 4 GiB (ask for less)",
		}},
		{"all the memory", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.EstimatedMemoryMiB = 24 * 1024 }, nil},
		{"a device that tells no memory", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.EstimatedMemoryMiB, w.Nodes[0].Devices[0].Memory = 1<<20, 0
		}, nil},
		{"a GPU among slots", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) { s.Device, w.Nodes = "gpu", slots() }, []string{
			"NoSuchDevice device: needs 1 GPU, and no node has a GPU (`switchyard node list` shows the devices)",
		}},
		{"memory of a GPU", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.GPUMemory, s.Devices, w.Nodes = "40GiB", 2, append(slots(), cards()...)
		}, []string{
			"NoSuchDevice gpu_memory: needs 2 GPUs with 40 GiB each, and the largest here has 24 GiB (`switchyard node list` shows the devices)",
		}},
		{"a model", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) { s.GPU, w.Nodes = "H100|A100", cards() }, []string{
			"NoSuchDevice gpu: needs 1 GPU (H100 or A100), and each GPU here is another model: NVIDIA L4, Tesla T4 (`switchyard node list` shows the devices)",
		}},
		{"too many of a model", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) { s.GPU, s.Devices, w.Nodes = "t4", 2, cards() }, []string{
			"TooFewDevices devices: want at least 2 on one node, the largest node t4 has 1 (ask for fewer)",
		}},
		{"as large as there is", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.GPU, s.GPUMemory, s.Devices, s.CPUs, s.Memory, w.Nodes = "L4", "24GiB", 2, 8, "4GiB", append(cards(), slots()...)
		}, nil},
		{"processors and memory in short", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.CPUs, s.Memory, w.Nodes = 9, "4.5GiB", slots()
		}, []string{
			"TooManyCores cpus: want 9, the largest node has 8 (ask for fewer)", "TooMuchMemory memory: want 4608 MiB, the largest node has 4 GiB (ask for less)",
		}},
		{"an image without a runtime", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.Image = "torch:2" }, []string{
			"NoContainerRuntime image: no node can run containers (install docker or podman on the node, or leave image out and run the job as a process)",
		}},
		{"labels of a node", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.NodeLabels, s.MinDevices, w.Nodes[1].Labels = map[string]string{"tier": "fast"}, 2, map[string]string{"tier": "fast", "gpushare": "true"}
		}, nil},
		{"labels that no node has", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.NodeLabels, w.Nodes[1].Labels = map[string]string{"tier": "fast", "gpushare": "true"}, map[string]string{"tier": "fast"}
		}, []string{"NoNode node_labels: no node has the labels gpushare=true,tier=fast (label a node, or leave node_labels out)"}},
		{"labels of a node that is too small", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.NodeLabels, s.MinDevices, w.Nodes[0].Labels = map[string]string{"tier": "slow"}, 2, map[string]string{"tier": "slow"}
		}, []string{"TooFewDevices min_devices: want at least 2 on one node, the largest node small has 1 (ask for fewer)"}},
		{"parameter servers", func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { s.Strategy = "parameter_server" }, nil},
		{"parameter servers larger than any node", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.Strategy, s.ParameterServers = "parameter_server", &train.ServersSpec{Cores: 40, MemoryMiB: 1 << 16}
			for i := range w.Nodes {
				w.Nodes[i].Cores, w.Nodes[i].Memory = 32, 32*unit.GiB
			}
		}, []string{
			"TooManyCores parameter_servers.cores: want 40, the largest node has 32 (ask for fewer)",
			"TooMuchMemory parameter_servers.memory_mib: want 64 GiB, the largest node has 32 GiB (ask for less)",
		}},
		{"parameter servers in a cluster", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.Strategy, s.ParameterServers, s.Image, w.Nodes = "parameter_server", &train.ServersSpec{Max: 2}, "mxnet:1", cluster()
		}, nil},
		{"a gang over the nodes of a cluster", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.MinDevices, s.MaxDevices, w.Nodes = 4, 4, cluster()
		}, nil},
		{"output of a gang of pods", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.LogFormat, s.MinDevices, s.MaxDevices, w.Nodes = train.LogBigDL, 4, 4, cluster()
		}, nil},
		{"more than a cluster has", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			s.MinDevices, s.MaxDevices, w.Nodes = 5, 5, cluster()
		}, []string{
			"TooFewDevices min_devices: want at least 5, all nodes of the cluster together have 4 (ask for fewer)",
		}},
		{"no node known yet", func(s *train.Spec, _ *Identity, w *Inventory, _ *Paths) {
			w.Nodes, s.MinDevices, s.Image, s.EstimatedMemoryMiB = nil, 9, "torch:2", 1<<20
		}, nil},
	}, true)
}

func TestMalformedIsNotInfeasible(t *testing.T) {
	s := good()
	s.Name, s.MinDevices = "", 9
	v := Check(s, ann(), inventory(), goodPaths())
	if v.Infeasible || len(v.Reasons) != 2 {
		t.Fatalf("infeasible %v: %s", v.Infeasible, v.Message())
	}
}

func TestTrustedBodiesNameTheirUser(t *testing.T) {
	s, who := good(), ann()
	who.TrustBodies, s.User = true, "bob"
	if v := Check(s, who, inventory(), goodPaths()); len(v.Reasons) > 0 || v.Spec.User != "bob" || v.Spec.Tenant != "vision" {
		t.Fatalf("user %s of %s: %s", v.Spec.User, v.Spec.Tenant, v.Message())
	}
	s.User = "bob\n"
	if v := Check(s, who, inventory(), goodPaths()); len(v.Reasons) != 1 {
		t.Fatalf("an unprintable user: %s", v.Message())
	}
}

// TestAdmittedSpecsKeepTheRules draws random specs: an accepted spec keeps every rule, and the answer stays small.
func TestAdmittedSpecsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.IntRange(-1, 4)
		s := good()
		s.Name = rapid.StringN(0, 70, 300).Draw(t, "name")
		s.BatchSize, s.TrainingSetSize, s.MaxEpochs = small.Draw(t, "batch"), small.Draw(t, "set"), small.Draw(t, "epochs")
		s.MinDevices, s.MaxDevices, s.SingleDevice = small.Draw(t, "min"), small.Draw(t, "max"), rapid.Bool().Draw(t, "single")
		s.Strategy = train.Strategy(rapid.SampledFrom([]string{"", "none", "all_reduce", "x"}).Draw(t, "strategy"))
		s.Env = rapid.MapOfN(rapid.StringN(0, 5, 20), rapid.Just("v"), 0, 100).Draw(t, "env")
		v := Check(s, ann(), inventory(), goodPaths())
		if data, err := json.Marshal(v.Reasons); err != nil || len(data) > 64<<10 {
			t.Fatalf("an answer of %d bytes, error %v", len(data), err)
		}
		if len(v.Reasons) > 0 {
			return
		}
		got := v.Spec
		ok := got.BatchSize >= 0 && (got.TrainingSetSize == 0 || got.TrainingSetSize >= got.BatchSize) && got.MaxEpochs >= 0 && got.MinDevices >= 1 &&
			got.MinDevices <= got.MaxDevices && got.MinDevices <= 2 && (!got.SingleDevice || got.MaxDevices == 1) &&
			(got.MaxDevices == 1 || got.Strategy == train.StrategyAllReduce) && got.Name != ""
		for name := range got.Env {
			ok = ok && train.Identifier(name) && !Reserved(name)
		}
		if !ok {
			t.Fatalf("admitted %+v", got)
		}
	})
}

func ExampleVerdict_Message() {
	spec := good()
	spec.BatchSize, spec.ScriptPath = -1, "/home/ann/tests/test1.py"
	message := Check(spec, ann(), inventory(), goodPaths()).Message()
	fmt.Println(strings.NewReplacer("; batch", ";\nbatch", "; the job", ";\nthe job").Replace(message))
	// Output:
	// script_path: "/home/ann/tests/test1.py" is a path on the host;
	// the job sees custom_dir at /custom (use /custom/test1.py);
	// batch_size: want at least 0, found -1 (the number of samples per device and pass)
}

// cluster returns two Kubernetes nodes with two GPUs each.
func cluster() []train.Node {
	devices := []train.Device{{ID: "gpu:0", Kind: train.KindGPU}, {ID: "gpu:1", Kind: train.KindGPU}}
	return []train.Node{{ID: "k1", Backend: train.BackendKubernetes, Devices: devices}, {ID: "k2", Backend: train.BackendKubernetes, Devices: devices}}
}

// Addresses of data are checked as far as they can be without following them.
func TestAddressesOfData(t *testing.T) {
	set := Path{Resolved: "/nfs/set"}
	for name, c := range map[string]struct {
		address Address
		want    []string
	}{
		"https":            {Address{Scheme: "https", Host: "example.org", Path: "/a"}, nil},
		"hdfs":             {Address{Scheme: "hdfs", Host: "namenode:9000", Path: "/a"}, nil},
		"a link":           {Address{Scheme: "file", Path: "/nfs/link", File: set, Resolved: "file:///nfs/set"}, nil},
		"another scheme":   {Address{Scheme: "ftp", Host: "example.org"}, []string{"InvalidAddress"}},
		"no address":       {Address{}, []string{"InvalidAddress"}},
		"no host":          {Address{Scheme: "https", Path: "/a"}, []string{"InvalidAddress"}},
		"a password":       {Address{Scheme: "https", Host: "example.org", Named: true}, []string{"InvalidAddress"}},
		"a file elsewhere": {Address{Scheme: "file", Host: "host", Path: "/nfs/set", File: set}, []string{"RelativePath"}},
		"outside":          {Address{Scheme: "file", Path: "/nfs/link", File: Path{Resolved: "/etc/passwd"}}, []string{"PathNotAllowed"}},
		"not there":        {Address{Scheme: "file", Path: "/nfs/no", File: Path{Resolved: "/nfs/no", Fault: "no such file"}}, []string{"NoSuchFile"}},
	} {
		got := Check(train.Spec{Name: "a", Command: []string{"true"}, DataURL: "as given"}, Identity{}, Inventory{}, Paths{Roots: []string{"/nfs"}, Data: c.address})
		if codes := codesOf(got); !slices.Equal(codes, c.want) {
			t.Errorf("%s: %q, want %q", name, codes, c.want)
		}
		if slices.ContainsFunc(got.Reasons, func(r train.Reason) bool { return strings.Contains(r.Message, "as given") }) != (name == "a file elsewhere") {
			t.Errorf("%s: %+v: everybody sees the reason, and an address may hold a password", name, got.Reasons)
		}
		if name == "a link" && got.Spec.DataURL != "file:///nfs/set" {
			t.Errorf("the link is followed to %s", got.Spec.DataURL)
		}
	}
	both := train.Spec{Name: "a", Command: []string{"true"}, DataURL: "https://example.org/a", DatasetsDir: "/nfs"}
	got := Check(both, Identity{}, Inventory{}, Paths{Roots: []string{"/nfs"}, Data: Address{Scheme: "https", Host: "example.org"}, DatasetsDir: Path{Resolved: "/nfs", IsFolder: true}})
	if codes := codesOf(got); !slices.Equal(codes, []string{"Contradiction"}) {
		t.Errorf("%q", codes)
	}
}

func codesOf(v Verdict) []string {
	var codes []string
	for _, r := range v.Reasons {
		codes = append(codes, r.Code)
	}
	return codes
}
