package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// tuneGrid writes a workload that is fastest on fewer cores, and another whose default was not measured.
func tuneGrid(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grid.csv")
	text := "model,dataset,cores,memory_gb,batch,init_s,n_epochs,epoch_s_mean,epoch_s_first,epoch_s_all\n" +
		"lenet,toy,2,8,32,1,5,10,12,12 10\nlenet,toy,1,8,32,1,5,6.1,7,7 6\nlenet,toy,2,4,32,1,5,10.2,12,12 10\ncnn,toy,1,8,32,1,5,3,3,3\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimulateTuneJSON(t *testing.T) {
	code, out, errs := simulateWith(t, "tune", "--grid", tuneGrid(t), "--mode", "fixed,probe,switchyard,oracle", "--passes", "2", "-o", "json")
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	row := func(mode string, pass, seconds float64) map[string]any {
		return map[string]any{"workload": "lenet/toy/32", "mode": mode, "pass": pass, "total_seconds": seconds, "epochs": 10.0}
	}
	want := []map[string]any{
		row("fixed", 1, 100), row("fixed", 2, 100), row("probe", 1, 69), row("probe", 2, 64.9), row("switchyard", 1, rows[4]["total_seconds"].(float64)),
		row("switchyard", 2, 61), row("oracle", 1, 61), row("oracle", 2, 61),
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if cold := rows[4]["total_seconds"].(float64); cold > 70 {
		t.Errorf("switchyard took %g s, want 70 at most", cold)
	}
}

func TestSimulateTuneTableAndCSV(t *testing.T) {
	grid := tuneGrid(t)
	code, out, errs := simulateWith(t, "tune", "--grid", grid, "--mode", "probe")
	if code != exit.OK || !strings.Contains(out, "2/8 1/8 2/4 1/8 x7") || !strings.Contains(out, "all           probe  1     69.0 s") {
		t.Errorf("exit code %d: %s%s", code, errs, out)
	}
	code, out, errs = simulateWith(t, "tune", "--grid", grid, "--mode", "fixed", "--cores", "1,2", "--epochs", "3", "-o", "csv")
	if want := "workload,mode,pass,total_seconds,epochs\nlenet/toy/32,fixed,1,18.3,3\n"; code != exit.OK || out != want {
		t.Errorf("exit code %d: %s%s, want %s", code, errs, out, want)
	}
}

func TestSimulateTuneUsage(t *testing.T) {
	grid := tuneGrid(t)
	for text, args := range map[string][]string{
		"--grid and --mode":             {"--mode", "fixed"},
		"did you mean probe?":           {"--grid", grid, "--mode", "prob"},
		"--passes 0":                    {"--grid", grid, "--mode", "fixed", "--passes", "0"},
		"numbers of more than 0":        {"--grid", grid, "--mode", "fixed", "--cores", "0,1"},
		"no workload was measured":      {"--grid", grid, "--mode", "fixed", "--memory", "16,8"},
		"no such file":                  {"--grid", grid + "x", "--mode", "fixed"},
		"is no number of 0 or more":     {"--grid", filepath.Join(filepath.Dir(grid), "bad.csv"), "--mode", "fixed"},
		"--cores and --memory name the": {"--grid", grid, "--mode", "fixed", "--cores", "64,32"},
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(grid), "bad.csv"), []byte("model,dataset,cores,memory_gb,batch,n_epochs,epoch_s_mean\nlenet,toy,many,8,32,5,10\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := simulateWith(t, append([]string{"tune"}, args...)...); code != exit.Usage || !strings.Contains(errs, text) {
			t.Errorf("%v: exit code %d, %s: want %q", args, code, errs, text)
		}
	}
}
