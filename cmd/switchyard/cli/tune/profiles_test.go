package tune

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
)

// A row of the ground truth says which training it is, and what the setting is to it.
func TestProfilesNameWhatTheyShow(t *testing.T) {
	s := clitest.New(t, Command)
	at := func(cores, cost float64) pipeline.Epoch {
		return pipeline.Epoch{Setting: contract.SettingValues{"cores": cores}, Cost: cost}
	}
	trial := pipeline.Trial{
		Workload: `"" ["" "" "" "python" "-m" "switchyard.spark"]`, Name: "mnist lenet5.py", BatchSize: 32, Unit: "s", Epochs: 2,
		Settings: []contract.SettingValues{{"cores": 2}, {"cores": 4}}, Ended: []pipeline.Epoch{at(2, 5), at(4, 3)},
	}
	clitest.Put(t, s.Bus, contract.Profiles, contract.ProfilesKey, contract.GroundTruth(profile.Store{}.Learn(&trial, nil)))
	code, out, told := s.Run("tune", "profiles")
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, told)
	}
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"WORKLOAD KIND BATCH SETTING EPOCHS EPOCH COSTS", "mnist lenet5.py - 32 cores=2 1 5 s default", "mnist lenet5.py - 32 cores=4 1 3 s best",
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

// Which trainings were learnt is not exported, and not taken from an older export: one of the same name elsewhere is
// another one.
func TestProfilesTravelWithoutTheirTrainings(t *testing.T) {
	s := clitest.New(t, Command)
	trial := pipeline.Trial{
		Workload: "w", BatchSize: 32, Unit: "s", Epochs: 1, Settings: []contract.SettingValues{{"cores": 2}}, Ended: []pipeline.Epoch{{Setting: contract.SettingValues{"cores": 2}, Cost: 5}},
	}
	store := profile.Store{}.Learn(&trial, nil).WithPosition(contract.LearntUpTo{Training: "nightly-t0", Attempt: 1, Epoch: 3})
	clitest.Put(t, s.Bus, contract.Profiles, contract.ProfilesKey, contract.GroundTruth(store))
	code, out, told := s.Run("tune", "profiles", "export")
	if code != exit.OK || !strings.Contains(out, `"w"`) || strings.Contains(out, "nightly-t0") {
		t.Errorf("exit code %d: %s%s", code, out, told)
	}
	text, err := json.Marshal(store)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "older.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, told := s.Run("tune", "profiles", "import", path); code != exit.OK || out != "1 workload known\n" {
		t.Errorf("exit code %d: %s%s", code, out, told)
	}
	if known, err := s.Yard(clitest.Noon).GroundTruth(t.Context()); err != nil || len(known.Entries) != 1 || len(known.Heard) > 0 {
		t.Errorf("imported %+v, error %v", known, err)
	}
}

// The model that PipeTune ships is added to what is known here; an exported store replaces it.
func TestImportOfClusters(t *testing.T) {
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA names no folder with the published measurements")
	}
	s := clitest.New(t, Command)
	exported := func() (store profile.Store) {
		t.Helper()
		code, out, told := s.Run("tune", "profiles", "export")
		if code != exit.OK || json.Unmarshal([]byte(out), &store) != nil {
			t.Fatalf("exit code %d: %s%s", code, out, told)
		}
		return store
	}
	dir := t.TempDir()
	write := func(name string, store profile.Store) string {
		t.Helper()
		text, err := json.Marshal(store)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if code, out, told := s.Run("tune", "profiles", "import", write("own.json", profile.Store{Seed: 7})); code != exit.OK {
		t.Fatalf("exit code %d: %s%s", code, out, told)
	}
	code, out, told := s.Run("tune", "profiles", "import", filepath.Join(root, "pipetune", "derived", "kmeans_model_decoded.json"))
	if code != exit.OK || out != "2 clusters of 1263 signatures given\n" || !strings.Contains(told, "its 58 features have no names") {
		t.Fatalf("exit code %d: %s%s", code, out, told)
	}
	known := exported()
	if known.Seed != 7 || len(known.Given.Clusters) != 2 || known.Given.Clusters[0].Members != 776 {
		t.Errorf("seed %d, %d clusters", known.Seed, len(known.Given.Clusters))
	}
	if code, out, told := s.Run("tune", "profiles", "import", write("again.json", known)); code != exit.OK || len(exported().Given.Features) != 58 {
		t.Errorf("what was exported is not imported: exit code %d: %s%s", code, out, told)
	}
	broken := filepath.Join(dir, "broken.json")
	if err := os.WriteFile(broken, []byte(`{"cluster_centers": [[1, 2]], "labels": [3]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, told := s.Run("tune", "profiles", "import", broken); code != exit.Usage || !strings.Contains(told, "label 0 is 3") {
		t.Errorf("exit code %d: %s", code, told)
	}
}
