package tune

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
)

// A configuration of PipeTune is copied from another machine with the BigDL file that it names there.
func TestAConfigurationFindsItsBigDLFile(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "pipetune.conf")
	run := func() (code int, out string) {
		code, stdout, stderr := clitest.Execute([]console.Command{Command}, "", "tune", "run", "--config", conf, "--print-event", "--id", "e")
		return code, stdout + stderr
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(conf, `{"bigdlConf": "/home/elsewhere/config/lenet.json", "hyperParameters": {"batch_size": [32, 64]}}`)
	if code, out := run(); code != exit.Usage || !strings.Contains(out, "lenet.json is neither there nor beside the configuration") {
		t.Errorf("exit code %d: %s", code, out)
	}
	write(filepath.Join(dir, "lenet.json"), `{"master": "local[2]", "conf": "/models/lenet.py", "extras": {"batch-size": "32", "maxEpoch": "5"}}`)
	if code, out := run(); code != exit.OK || !strings.Contains(out, `"/models/lenet.py"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A script that waits for an experiment learns from the exit code whether it has found anything.
func TestAnExperimentThatFoundNothingFails(t *testing.T) {
	example := filepath.Join("..", "..", "..", "..", "examples", "experiments", "digits.yaml")
	result := contract.Trial{ID: 0, Job: "x-t0", State: contract.TrialEnded, Params: map[string]contract.Value{}, Done: []contract.TrialEpoch{{Epoch: 1, Metrics: map[string]float64{"accuracy": 0.9}}}}
	for name, tt := range map[string]struct {
		record contract.ExperimentRecord
		code   int
		said   []string
	}{
		"result":    {contract.ExperimentRecord{State: conduct.Finished, Trials: []contract.Trial{result}}, exit.OK, []string{"experiment result: finished", "best       trial 0: 0.9"}},
		"nothing":   {contract.ExperimentRecord{State: conduct.Finished, Message: "no trial has a result"}, exit.JobFailed, []string{"finished, no trial has a result", "no trial of experiment nothing has a result"}},
		"stopped":   {contract.ExperimentRecord{State: conduct.Stopped, Trials: []contract.Trial{result}}, exit.JobCancelled, []string{"best       trial 0", "experiment stopped was stopped"}},
		"stoppedat": {contract.ExperimentRecord{State: conduct.Stopped, Message: "enough"}, exit.JobCancelled, []string{"stopped, enough"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := clitest.New(t, Command)
			tt.record.ID, tt.record.Experiment = name, contract.Experiment{Objective: contract.Objective{Metric: "accuracy"}}
			clitest.Put(t, s.Bus, contract.Experiments, name, tt.record)
			code, out, stderr := s.Run("tune", "run", example, "--id", name, "--wait")
			for _, words := range tt.said {
				if !strings.Contains(out+stderr, words) {
					t.Errorf("it does not say %q: %s%s", words, out, stderr)
				}
			}
			if code != tt.code {
				t.Errorf("exit %d, want %d: %s", code, tt.code, stderr)
			}
			code, out, _ = s.Run("tune", "run", example, "--id", name, "--wait", "-o", "json")
			if got := clitest.Parse[contract.ExperimentRecord](t, out); code != tt.code || got.State != tt.record.State {
				t.Errorf("as JSON: exit %d, %+v", code, got)
			}
		})
	}
}

// An energy that is not known is no energy of 0, and a trial without a system parameter has none of 0.
func TestCellsOfUnknownValuesAreEmpty(t *testing.T) {
	s := clitest.New(t, Command)
	trial := func(id int, joules float64, setting contract.SettingValues) contract.Trial {
		return contract.Trial{
			ID: id, Job: "x", Settings: []contract.SettingValues{setting},
			Done: []contract.TrialEpoch{{Epoch: 1, Joules: joules, Metrics: map[string]float64{"accuracy": 0.9}}},
		}
	}
	clitest.Put(t, s.Bus, contract.Experiments, "x", contract.ExperimentRecord{
		ID: "x", Experiment: contract.Experiment{Objective: contract.Objective{Metric: "accuracy"}},
		Trials: []contract.Trial{trial(0, 7, contract.SettingValues{"cores": 2}), trial(1, 0, contract.SettingValues{})},
	})
	code, out, stderr := s.Run("tune", "results", "x", "-o", "csv")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || code != exit.OK || len(rows) != 3 {
		t.Fatal(code, stderr, err, out)
	}
	for column, want := range map[string][]string{"energy_j": {"7", ""}, "setting.cores": {"2", ""}} {
		if i := slices.Index(rows[0], column); rows[1][i] != want[0] || rows[2][i] != want[1] {
			t.Errorf("%s: %q, %q", column, rows[1][i], rows[2][i])
		}
	}
}
