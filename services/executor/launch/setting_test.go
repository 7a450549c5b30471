package launch

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAStepOnOtherDevices: a trial on other devices than it was submitted with makes the same steps, and its
// environment has the number of devices it got, not the number that was wanted.
func TestAStepOnOtherDevices(t *testing.T) {
	spec := train.Spec{BatchSize: 32}
	setting := train.Setting{Generation: 1, BatchDevices: 2, Values: map[string]float64{train.SettingDevices: 4}}
	for devices, batch := range map[int]string{1: "64", 2: "32", 4: "16"} {
		a := train.Attempt{Node: "n", Setting: setting}
		place := Place{Node: train.Node{ID: "n"}}
		for i := range devices {
			d := gpu(string(rune('0'+i)), 16, train.EnforcedByAdvice)
			a.Devices, place.Devices = append(a.Devices, d.ID), append(place.Devices, d)
		}
		env := Setting{Spec: Tuned(spec, a), Attempt: a, Places: []Place{place}}.Scheduler(0)
		if env["SWITCHYARD_DEVICE_COUNT"] != env["NUM_GPUS"] || env["SWITCHYARD_GLOBAL_BATCH"] != "" {
			t.Errorf("on %d devices: %v", devices, env)
		}
		if env["BATCH_SIZE"] != batch || env["SWITCHYARD_PARAM_DEVICES"] != env["NUM_GPUS"] {
			t.Errorf("on %d devices: BATCH_SIZE=%s, SWITCHYARD_PARAM_DEVICES=%s", devices, env["BATCH_SIZE"], env["SWITCHYARD_PARAM_DEVICES"])
		}
	}
	if got := Tuned(spec, train.Attempt{Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}).BatchSize; got != 32 {
		t.Errorf("no trial, and each of its devices has %d samples", got)
	}
}

// TestAProcessKnowsItsShare: with several processes on nodes of different sizes each learns which of the devices that
// share out the step are its own.
func TestAProcessKnowsItsShare(t *testing.T) {
	spec := train.Spec{BatchSize: 32, GlobalBatchSize: 64, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 256, LearningRate: train.RateSqrt}}
	a := train.Attempt{BatchGeneration: 7, Batch: train.Batch{Samples: 100, LocalBatch: 17, Accumulation: 1}}
	s := Setting{Attempt: a, Places: []Place{
		{Node: train.Node{ID: "n"}, Devices: make([]train.Device, 2)}, {Node: train.Node{ID: "m"}, Devices: make([]train.Device, 1)},
	}}
	s.Spec = Tuned(spec, a)
	for rank, before := range []string{"0", "2"} {
		env := s.Scheduler(rank)
		for name, want := range map[string]string{
			"SWITCHYARD_DEVICE_RANK": before, "SWITCHYARD_DEVICE_COUNT": "3", "BATCH_SIZE": "17", "SWITCHYARD_GLOBAL_BATCH": "100",
			"SWITCHYARD_ACCUMULATION": "2", "SWITCHYARD_BASE_BATCH": "64", "SWITCHYARD_LEARNING_RATE": "sqrt", "SWITCHYARD_BATCH_GENERATION": "7",
		} {
			if env[name] != want {
				t.Errorf("rank %d: %s=%q, want %q", rank, name, env[name], want)
			}
		}
	}
}

// TestServersStartWhereTheyWerePlanned: the scheduler is the first process, servers follow on their nodes, workers
// last. A process that serves sees no GPU, and takes what servers were planned with.
func TestServersStartWhereTheyWerePlanned(t *testing.T) {
	spec := train.Spec{
		Strategy: train.StrategyParameterServer, ParameterServers: &train.ServersSpec{Max: 3, Cores: 2, MemoryMiB: 300}, Cores: 5, MainMemoryMiB: 1000,
	}
	s := Setting{Spec: spec, Ports: []int{1, 2, 3, 4, 5}, Places: []Place{
		{Node: train.Node{ID: "n"}, Devices: []train.Device{gpu("0", 16, train.EnforcedByAdvice)}},
		{Node: train.Node{ID: "m"}, Devices: []train.Device{gpu("0", 16, train.EnforcedByAdvice)}, Servers: 2},
	}}
	type is struct {
		role                 Role
		index, place, cores  int
		memory               int64
		dmlc, visible, world string
	}
	for rank, want := range []is{
		{RoleScheduler, 0, 0, 0, 0, "scheduler", "", "2"},
		{RoleServer, 0, 1, 2, 300, "server", "", "2"},
		{RoleServer, 1, 1, 2, 300, "server", "", "2"},
		{RoleWorker, 0, 0, 5, 1000, "worker", "0", "2"},
		{RoleWorker, 1, 1, 5, 1000, "worker", "0", "2"},
	} {
		p, env := s.Processes()[rank], s.Scheduler(rank)
		got := is{p.Role, p.Index, p.Place, s.Cores(p), s.MemoryMiB(p), env["DMLC_ROLE"], env["CUDA_VISIBLE_DEVICES"], env["WORLD_SIZE"]}
		if got != want || env["DMLC_NUM_SERVER"] != "2" || env["DMLC_NUM_WORKER"] != "2" {
			t.Errorf("rank %d: %+v, want %+v", rank, got, want)
		}
	}
}

// System parameters are filled into what an attempt runs: numbers, under their own names alone.
func TestSystemParametersAreFilledIn(t *testing.T) {
	spec := train.Spec{Command: []string{"sh", "-c", "train --cores ${cores} ${HOME} ${memory_mib}"}, Env: map[string]string{"OPTS": "-Xmx${memory_mib}m"}, ScriptPath: "${cores}.py"}
	a := train.Attempt{Setting: train.Setting{Values: map[string]float64{"cores": 4, "HOME": 7, "memory_mib": 4096}}}
	got := Tuned(spec, a)
	if got.Command[2] != "train --cores 4 ${HOME} 4096" || got.Env["OPTS"] != "-Xmx4096m" || got.ScriptPath != "4.py" {
		t.Errorf("%+v", got)
	}
	if spec.Command[2] != "train --cores ${cores} ${HOME} ${memory_mib}" || spec.Env["OPTS"] != "-Xmx${memory_mib}m" {
		t.Errorf("the spec was changed: %+v", spec)
	}
}
