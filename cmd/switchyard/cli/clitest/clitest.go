// Package clitest runs commands of the client against a bus of their own, for tests.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Update is set to write the golden files again.
var Update = flag.Bool("update", false, "write the golden files again") //nolint:gochecknoglobals // a flag of the test binary

// Golden compares with a file of testdata.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it again):\n%s", path, diff)
	}
}

// Noon is the present of these tests.
var Noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

// Ago is a time before Noon.
func Ago(d time.Duration) time.Time { return Noon.Add(-d) }

// Terminal is a person's terminal on a bus of its own.
type Terminal struct {
	*console.Console
	Bus      *bus.Bus
	out, Err *bytes.Buffer
	commands []console.Command
}

// New starts a bus, and a terminal that knows the given commands.
func New(t *testing.T, commands ...console.Command) *Terminal {
	t.Helper()
	s := bustest.Start(t)
	b := bustest.Connect(t, s, "test")
	var out, err bytes.Buffer
	a := &console.Console{Nats: s.URL(), Output: "table", Context: filepath.Join(t.TempDir(), "context.json"), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err}
	return &Terminal{Console: a, Bus: b, out: &out, Err: &err, commands: commands}
}

func NewWithoutBus() *Terminal {
	var out, err bytes.Buffer
	return &Terminal{Console: &console.Console{Output: "table", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err}, out: &out, Err: &err}
}

// Yard is what the bus says at a moment.
func (s *Terminal) Yard(now time.Time) console.Yard {
	return console.OnBus(s.Bus, func() time.Time { return now })
}

// Run runs a whole command line and gives its exit code and what it printed.
func (s *Terminal) Run(args ...string) (code int, out, err string) {
	return Execute(s.commands, "", append([]string{"--nats", s.Nats}, args...)...)
}

// Execute runs a whole command line on a terminal without a bus.
func Execute(commands []console.Command, stdin string, args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	a := &console.Console{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr}
	root := &cobra.Command{Use: "switchyard"}
	a.Add(root, commands...)
	code = a.Run(root, args)
	return code, stdout.String(), stderr.String()
}

// RefuseUnknownWords gives each group of commands below root a word that it does not have. run runs a command line of
// the same program.
func RefuseUnknownWords(t *testing.T, root *cobra.Command, run func(args ...string) (code int, said string)) {
	t.Helper()
	root.InitDefaultCompletionCmd()
	var walk func(group *cobra.Command, path ...string)
	walk = func(group *cobra.Command, path ...string) {
		for _, cmd := range group.Commands() {
			walk(cmd, append(slices.Clone(path), cmd.Name())...)
		}
		switch {
		case !group.HasSubCommands():
		case group.Runnable():
			if group.ValidateArgs([]string{"nope"}) == nil {
				t.Errorf("%v nope: the group runs with any word", path)
			}
		default:
			if code, said := run(append(slices.Clone(path), "nope")...); code != exit.Usage || !strings.Contains(said, `unknown command "nope"`) {
				t.Errorf("%v nope: exit %d, %s", path, code, said)
			}
		}
	}
	walk(root)
}

// Printed gives what was printed since it was last asked.
func (s *Terminal) Printed() (out, err string) {
	out, err = s.out.String(), s.Err.String()
	s.out.Reset()
	s.Err.Reset()
	return out, err
}

// Put writes a record, whatever was there. It may be called by other goroutines of the test.
func Put[T any](t *testing.T, b *bus.Bus, bucket contract.Bucket[T], key string, value T) {
	t.Helper()
	kv, err := bus.OpenKV(t.Context(), b, bucket)
	if err != nil {
		t.Error(err)
		return
	}
	_, err = kv.Modify(t.Context(), key, func(v *T) (bool, error) {
		*v = value
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}

func PutJob(t *testing.T, b *bus.Bus, j train.Job) {
	t.Helper()
	Put(t, b, contract.Jobs, string(j.ID), j)
}

func Publish(t *testing.T, b *bus.Bus, facts ...event.Fact) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := b.Publish(ctx, facts...); err != nil {
		t.Fatal(err)
	}
}

func Parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

// Resnet runs.
func Resnet() train.Job {
	return train.Job{
		ID: "resnet-4f2a",
		Spec: train.Spec{
			Name: "resnet", User: "ann", Command: []string{"python3", "train.py", "--note", "it's fine"}, CustomDir: "/home/ann/resnet", DatasetsDir: "/srv/imagenet",
			Env: map[string]string{"WANDB_API_KEY": "secret", "ALPHA": "1"}, BatchSize: 64, TrainingSetSize: 50000, MaxEpochs: 40, MaxDevices: 4, EstimatedHours: 3,
			EstimatedMemoryMiB: 8192, Ports: []train.PortMapping{{NodePort: 30000, ContainerPort: 6006}},
		},
		State: train.StateRunning, Reason: "Training", Message: "12 of 40 epochs done, the last one in 312 s, loss 0.7121", Since: Ago(50 * time.Minute),
		SubmittedAt: Ago(70 * time.Minute), AdmittedAt: Ago(70 * time.Minute), StartedAt: Ago(65 * time.Minute), Attempt: 2, EpochsDone: 12, Restarts: 1, Rescales: 1,
		Devices: []train.DeviceID{"gpu:0", "gpu:1"}, Generation: 12, RunSeconds: 900, AttemptStartedAt: Ago(49 * time.Minute), EstimateSeconds: 12500, PriorityPenalty: 10,
		FirstPredictedFinish: Noon.Add(2 * time.Hour), PredictedFinish: Noon.Add(151 * time.Minute),
		Warnings: []string{"the estimate of 3 h is outrun", "second"},
		History: []train.Change{
			{At: Ago(70 * time.Minute), Fact: "submitted", State: train.StateSubmitted, Message: "waits to be admitted"},
			{At: Ago(65 * time.Minute), Fact: "started", State: train.StateProfiling, Attempt: 1, Devices: []train.DeviceID{"gpu:0"}, Message: "attempt 1 runs on gpu:0 of node gpu1"},
			{At: Ago(50 * time.Minute), Fact: "preempted", State: train.StatePreempted, Attempt: 1, Epochs: 3, Reason: "Preempted", Message: "left after epoch 3 to go on with other devices"},
			{At: Ago(49 * time.Minute), Fact: "started", State: train.StateProfiling, Attempt: 2, Devices: []train.DeviceID{"gpu:0", "gpu:1"}, Epochs: 3},
		},
	}
}

// Bert waits.
func Bert() train.Job {
	return train.Job{
		ID: "bert-91bc", Spec: train.Spec{Name: "bert", User: "bob", ScriptPath: "/custom/bert.py", Image: "torch:2", BatchSize: 8, TrainingSetSize: 1000, MaxEpochs: 4, MinDevices: 4},
		State: train.StateQueued, Reason: "WaitingForDevices", Message: "needs 4 devices, 2 are free", Hint: "--min-devices 2 starts now", Since: Ago(20 * time.Minute),
		Blockers: []train.Reason{
			{Code: "WaitingForDevices", Message: "needs 4 devices, 2 are free", Hint: "--min-devices 2 starts now"}, {Code: "HeadOfLineBlocked", Message: "waits in line behind vgg"},
		},
		SubmittedAt: Ago(20 * time.Minute), AdmittedAt: Ago(20 * time.Minute),
	}
}

// Mnist has succeeded, yesterday.
func Mnist() train.Job {
	return train.Job{
		ID: "mnist-77de", Spec: train.Spec{Name: "mnist", User: "ann", Command: []string{"./train"}, BatchSize: 32, TrainingSetSize: 60000, MaxEpochs: 10, SingleDevice: true},
		State: train.StateSucceeded, Reason: "Finished", Message: "10 epochs in 20 min", Since: Ago(20 * time.Hour), SubmittedAt: Ago(21 * time.Hour), StartedAt: Ago(20*time.Hour + 20*time.Minute),
		FinishedAt: Ago(20 * time.Hour), FirstPredictedFinish: Ago(20*time.Hour + time.Minute), Attempt: 1, EpochsDone: 10, RunSeconds: 1200, ExitCode: new(0),
	}
}

// Vgg has failed, with control sequences in its output and in its name.
func Vgg() train.Job {
	return train.Job{
		ID: "vgg-0c", Spec: train.Spec{Name: "vgg\x1b[31m\u202eevil", User: "bob", Command: []string{"python3", "vgg.py"}, BatchSize: 32, TrainingSetSize: 60000, MaxEpochs: 10},
		State: train.StateFailed, Reason: "NonZeroExit", Message: "attempt 1 ended with status 3", Hint: "switchyard logs vgg-0c", Since: Ago(time.Hour), SubmittedAt: Ago(2 * time.Hour),
		StartedAt: Ago(2 * time.Hour), FinishedAt: Ago(time.Hour), Attempt: 1, EpochsDone: 2, RunSeconds: 3600, ExitCode: new(3),
		LogTail: "epoch 2\r\n\x1b]0;title\x07Traceback\n  10%|#\r  20%|##\rdone",
	}
}

// refused was rejected before it had a user.
func refused() train.Job {
	return train.Job{
		ID: "huge", Spec: train.Spec{Name: "huge", Command: []string{"x"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1, MinDevices: 64}, State: train.StateRejected,
		Reason: "TooFewDevices", Infeasible: true, Message: "min_devices: 64 devices on one node, the largest has 4", SubmittedAt: Ago(3 * time.Hour), FinishedAt: Ago(3 * time.Hour),
		Blockers: []train.Reason{{Code: "TooFewDevices", Field: "min_devices", Message: "64 devices on one node, the largest has 4", Hint: "ask for 4"}},
	}
}

func resnetModel() train.Model {
	return train.Model{
		Job:         "resnet-4f2a",
		Convergence: &train.Convergence{Hyperbola: train.Hyperbola{B0: 0.21, B1: 1.04, B2: 0.07}, Scale: 2.31, Points: 12, RMSE: 0.012},
		Speed: train.Speed{
			Kind: train.SpeedAllReduce, AllReduce: train.AllReduce{ComputeFixed: 0.1, ComputePerSample: 0.0045, LocalBase: 0.02, Overlap: 1}, TypicalBatch: 64, FitError: 0.021,
			Measured: []train.Measured{
				{Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: 64}, StepSeconds: 0.39, Weight: 2343},
				{Config: train.Config{Workers: 2, Nodes: 1, LocalBatch: 64}, StepSeconds: 0.41, Weight: 3510},
			},
		},
		Memory:       &train.Memory{FixedBytes: 2 << 30, SampleBytes: 30 << 20, Points: 1},
		Efficiency:   &train.Efficiency{Variance: 3, Square: 1, BaseBatch: 128},
		EpochSeconds: 312, EpochConfig: train.Config{Workers: 2, Nodes: 1, LocalBatch: 64}, EpochsSeen: 12, StepsSeen: 5853,
	}
}

func resnetAccount() train.Account {
	return train.Account{
		Job: "resnet-4f2a", Energy: 812_345 * unit.Joule, Components: map[string]unit.Energy{"gpu": 700_000 * unit.Joule, "cpu": 112_345 * unit.Joule},
		Methods: []string{"nvml_counter", "rapl"}, Seconds: 3840, Epochs: 12, MeanPower: unit.Watts(211.5), PeakPower: unit.Watts(402),
	}
}

// Fill puts the whole cast on the bus.
func (s *Terminal) Fill(t *testing.T) {
	t.Helper()
	for _, j := range []train.Job{Resnet(), Bert(), Mnist(), Vgg(), refused()} {
		PutJob(t, s.Bus, j)
	}
	Put(t, s.Bus, contract.Models, "resnet-4f2a", resnetModel())
	Put(t, s.Bus, contract.Accounts, "job.resnet-4f2a", resnetAccount())
	Put(t, s.Bus, contract.Accounts, "job.mnist-77de", train.Account{Job: "mnist-77de", Energy: 9000 * unit.Joule, Methods: []string{"modelled"}, Seconds: 1200, Epochs: 10, Final: true})
	// The book of a node is no account.
	Put(t, s.Bus, contract.Bucket[map[string]any](contract.Books), "node.gpu1", map[string]any{"last": 7})
	Put(t, s.Bus, contract.Attempts, "resnet-4f2a", train.Attempt{
		Job: "resnet-4f2a", Number: 2, Node: "gpu1", Devices: []train.DeviceID{"gpu:0", "gpu:1"}, Phase: train.PhaseRunning, CapabilityHash: "aa", TokenHash: "bb", StartedAt: Ago(49 * time.Minute),
		Stop: train.StopRescale, StopSince: Ago(30 * time.Second),
	})
	Put(t, s.Bus, contract.Attempts, "vgg-0c", train.Attempt{
		Job: "vgg-0c", Number: 1, Node: "gpu1", Devices: []train.DeviceID{"gpu:2"}, Phase: train.PhaseExited, Outcome: train.OutcomeFailed, Published: true,
	})
	Put(t, s.Bus, contract.Reports, "resnet-4f2a.2", train.AttemptReport{Job: "resnet-4f2a", Attempt: 2, EpochsDone: 12, Spoke: true, Checkpoint: "/snapshots/x/model.pt", CheckpointEpochs: 12})
	Put(t, s.Bus, contract.Nodes, "gpu1", train.Node{
		ID: "gpu1", Cores: 32, Memory: 256 * unit.GiB, SeenAt: Ago(3 * time.Second), Meters: []string{"nvml_counter", "rapl"},
		Devices: []train.Device{
			{ID: "gpu:0", Kind: train.KindGPU, Model: "NVIDIA H200"},
			{ID: "gpu:1", Kind: train.KindGPU, Model: "NVIDIA H200"},
			{ID: "gpu:2", Kind: train.KindGPU, Model: "NVIDIA H200"},
			{ID: "gpu:3", Kind: train.KindGPU, Model: "NVIDIA H200"},
		},
	})
	Put(t, s.Bus, contract.Nodes, "cpu1", train.Node{
		ID: "cpu1", Cores: 2, Memory: 8 * unit.GiB, SeenAt: Ago(10 * time.Minute), Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU, Core: 1}},
	})
	Publish(t, s.Bus,
		event.JobFact("resnet-4f2a", event.FactStarted, "attempt/2/started", event.Started{Attempt: 2, Node: "gpu1", Mounts: true}),
		event.JobFact("vgg-0c", event.FactStarted, "attempt/1/started", event.Started{Attempt: 1, Node: "gpu1"}),
		event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/12", Body: event.PlanDecided{Plan: train.Plan{
			Generation: 12, Policy: "optimus", DecidedAt: Ago(time.Minute),
			Allocations: []train.Allocation{{
				Job: "resnet-4f2a", Node: "gpu1", Devices: []train.DeviceID{"gpu:0", "gpu:1"}, RemainingSeconds: 9060,
				Forecast: train.Forecast{Finish: &train.Span{Expected: 9060, Low: 8400, High: 9960}},
				Reason:   train.Reason{Code: "GrewByMarginalGain", Message: "2 devices instead of 1 save 4000 s of 13000 s; the restart costs 20 s"},
			}},
			Waiting: []train.Waiting{{Job: "other"}, {
				Job: "bert-91bc", Blockers: Bert().Blockers, StartInSeconds: 3660, Holders: []train.JobID{"resnet-4f2a"},
				Forecast: train.Forecast{Start: &train.Span{Expected: 3660, Low: 1860, High: 9960}, Finish: &train.Span{Expected: 7260, Low: 2460, High: 20000}},
			}},
		}}},
		event.Fact{Subject: event.Subject{Entity: "energy", ID: "gpu1", Fact: event.FactMeasured, Version: 1}, Key: "node/gpu1/boot/9", Body: event.Measured{
			Node: "gpu1", From: Ago(4 * time.Second), To: Ago(2 * time.Second), Meters: []event.Meter{
				{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: 800 * unit.Joule},
				{Component: "gpu", Device: "gpu:1", Method: "nvml_counter", Energy: 600 * unit.Joule},
				{Component: "cpu", Method: "rapl", Energy: 200 * unit.Joule},
			},
		}},
	)
}
