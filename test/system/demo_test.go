package system

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The demo is the first thing that people run: its jobs succeed, are rescaled and preempted, and nothing is left.
func TestTheDemo(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	demo := exec.CommandContext(t.Context(), filepath.Join(binaries, "switchyard"), "demo", "--json", "--trainer", filepath.Join(binaries, "gotrainer"), "--timeout", "6m")
	demo.Env = append(os.Environ(), "TMPDIR="+temp)
	var said bytes.Buffer
	demo.Stderr = &said
	out, err := demo.Output() // which judges itself
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, said.Bytes())
	}
	var report struct {
		Jobs []struct {
			EnergyJoules float64 `json:"energy_joules"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Jobs) != 6 {
		t.Fatalf("a report of %d jobs, %v: %s", len(report.Jobs), err, out)
	}
	for i, job := range report.Jobs {
		if job.EnergyJoules <= 0 {
			t.Errorf("job %d has no energy: %s", i, out)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%d entries are left in the folder for temporary files, %v", len(left), err)
	}
}
