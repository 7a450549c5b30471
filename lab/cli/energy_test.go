package cli

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// energyFolder writes a training with two batch sizes on a GPU with two power limits. The larger batch costs half.
func energyFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"trace/summary_train.csv": "dataset,network,batch_size,optimizer,target_metric,target_epoch\n" +
			"squad,bert_base_uncased,32,adamw,84.0,4\nsquad,bert_base_uncased,48,adamw,84.0,2\n",
		"trace/summary_power_toy.csv": "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n" +
			"squad,bert_base_uncased,32,adamw,100,12,80\nsquad,bert_base_uncased,32,adamw,200,10,190\n" +
			"squad,bert_base_uncased,48,adamw,100,12,80\nsquad,bert_base_uncased,48,adamw,200,10,190\n",
		"windows/toy+gpu0.csv": "window_name,elapsed_time,gpu0_energy\n__x_200,10,1900\n__x_100,12,960\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSimulateEnergyJSON(t *testing.T) {
	code, out, errs := simulateWith(t, "energy", "--data", energyFolder(t), "--gpu", "toy", "--seeds", "2", "--eta", "0.5", "-o", "json")
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var got struct {
		Rows      []map[string]any              `json:"rows"`
		Aggregate map[string]map[string]float64 `json:"aggregate"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	figures := []string{"energy_ratio", "time_ratio", "cost_ratio", "regret", "first20_energy_ratio", "worst_time_ratio"}
	var policies []string
	for _, r := range got.Rows {
		for _, key := range append([]string{"gpu", "dataset", "policy"}, figures...) {
			if _, ok := r[key]; !ok {
				t.Errorf("row %v has no %s", r, key)
			}
		}
		policies = append(policies, r["policy"].(string))
	}
	if !slices.Equal(policies, []string{"default", "grid", "zeus", "switchyard"}) {
		t.Fatalf("policies %v", policies)
	}
	for _, policy := range policies {
		for _, key := range figures {
			if _, ok := got.Aggregate[policy][key]; !ok {
				t.Errorf("the aggregate of %s has no %s", policy, key)
			}
		}
	}
	if def, ours := got.Aggregate["default"]["energy_ratio"], got.Aggregate["switchyard"]["energy_ratio"]; def != 1 || ours > 0.5 {
		t.Errorf("energy beside the default: %g of itself, %g of switchyard, want 1 and less than half", def, ours)
	}
}

func TestSimulateEnergyTableAndCSV(t *testing.T) {
	data := energyFolder(t)
	code, out, errs := simulateWith(t, "energy", "--data", data, "--gpu", "TOY", "--seeds", "1")
	if lines := strings.Count(out, "\n"); code != exit.OK || lines != 9 {
		t.Fatalf("exit code %d: %s%s", code, errs, out)
	}
	code, out, errs = simulateWith(t, "energy", "--data", data, "--gpu", "toy", "--seeds", "1", "-o", "csv")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if code != exit.OK || err != nil || len(rows) != 5 || rows[4][2] != "switchyard" {
		t.Fatalf("exit code %d, error %v: %s%s", code, err, errs, out)
	}
}

func TestSimulatePowerLimit(t *testing.T) {
	windows := filepath.Join(energyFolder(t), "windows")
	code, out, errs := simulateWith(t, "power-limit", "--windows", windows, "--eta", "0.5", "-o", "json")
	var got struct {
		Rows []struct {
			File       string  `json:"file"`
			PowerLimit float64 `json:"power_limit"`
		} `json:"rows"`
	}
	if err := json.Unmarshal([]byte(out), &got); code != exit.OK || err != nil {
		t.Fatalf("exit code %d, error %v: %s", code, err, errs)
	}
	if len(got.Rows) != 1 || got.Rows[0].File != "toy+gpu0.csv" || got.Rows[0].PowerLimit != 100 {
		t.Errorf("chosen %+v, want 100 W", got.Rows)
	}
	for _, format := range []string{"table", "csv"} {
		if code, out, errs = simulateWith(t, "power-limit", "--windows", windows, "-o", format); code != exit.OK || strings.Count(out, "\n") != 2 {
			t.Errorf("-o %s: exit code %d: %s%s", format, code, errs, out)
		}
	}
}

func TestSimulateEnergyUsage(t *testing.T) {
	data := energyFolder(t)
	for _, args := range [][]string{
		{"energy"},
		{"energy", "--data", data},
		{"energy", "--data", data, "--gpu", "other"},
		{"energy", "--data", data, "--gpu", "toy", "--seeds", "0"},
		{"energy", "--data", data, "--gpu", "toy", "--eta", "1.5"},
		{"energy", "--data", data, "--gpu", "toy", "-o", "yaml"},
		{"power-limit"},
		{"power-limit", "--windows", data},
		{"power-limit", "--windows", filepath.Join(data, "windows"), "--eta", "-1"},
	} {
		if code, _, errs := simulateWith(t, args...); code != exit.Usage || errs == "" {
			t.Errorf("%v: exit code %d, said %q", args, code, errs)
		}
	}
	if _, _, errs := simulateWith(t, "energy", "--data", data, "--gpu", "other"); !strings.Contains(errs, "types of GPU there: toy") {
		t.Errorf("of a type of GPU that was not measured it says %q", errs)
	}
}
