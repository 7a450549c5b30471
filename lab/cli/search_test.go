package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/contest"
)

func TestSimulateSearch(t *testing.T) {
	dir := t.TempDir()
	text := "0.1,4,32,50\n0.1,16,32,40\n0.01,4,32,70\n0.01,4,64,60\n0.1,4,64,65\n"
	if err := os.WriteFile(filepath.Join(dir, "TuneV1Vary_net_1.csv"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"search", "--recorded", dir, "--problem", "branin,net", "--seeds", "3"}
	code, out, errs := simulateWith(t, append(args, "-o", "json")...)
	var rows []contest.Row
	if err := json.Unmarshal([]byte(out), &rows); code != exit.OK || err != nil {
		t.Fatalf("exit code %d, error %v: %s", code, err, errs)
	}
	if len(rows) != 9 || rows[0].Problem != "branin" || rows[2].Problem != "net" {
		t.Fatalf("rows %+v", rows)
	}
	for _, r := range rows {
		whole := r.Algorithm == "random" || r.Algorithm == "gp"
		if r.Seeds != 3 || whole && r.Reached != 3 || r.Trials.Median < 1 || r.Epochs.Median < r.Epochs.Low {
			t.Errorf("row %+v", r)
		}
		if r.Problem == "net" && whole && (r.Trials.Median > 4 || r.Epochs.Median != 16*r.Trials.Median) {
			t.Errorf("of four points, 16 epochs each: %+v", r)
		}
	}
	_, table, _ := simulateWith(t, args...)
	_, csv, _ := simulateWith(t, append(args, "-o", "csv")...)
	if !strings.Contains(table, "of 3") || strings.Count(csv, "\n") != 10 {
		t.Errorf("table\n%s\ncsv\n%s", table, csv)
	}
	for _, tc := range []struct{ flag, want string }{
		{"--problem=brannin", "no such problem"}, {"--best=1", "want more than 0"}, {"--workers=0", "want 1 or more"}, {"--recorded=" + dir + "/none", "find recorded trainings"},
	} {
		if code, _, errs := simulateWith(t, "search", tc.flag); code != exit.Usage || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, %s", tc.flag, code, errs)
		}
	}
}
