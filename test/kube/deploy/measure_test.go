package deploy

import (
	"bytes"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const served = `
name: served
command: [/usr/local/bin/switchyard-trainer, -hidden, "64"]
strategy: parameter_server
parameter_servers: {max: 2}
launch: per_device
batch_size: 32
training_set_size: 20000
max_epochs: 4
`

// TestServersAreMeasured runs a job of workers around parameter servers at every scale that two GPUs allow. A plan
// gives no more servers than workers.
func TestServersAreMeasured(t *testing.T) {
	s := apply(t, "lab")
	file := filepath.Join(t.TempDir(), "job.yaml")
	s.must(os.WriteFile(file, []byte(served), 0o600))
	address, err := cluster.Forward(s.ctx, "switchyard", "bus-0", 4222)
	s.must(err)
	cmd := exec.CommandContext(s.ctx, commandLine, "measure", file, "--ps", "1..2", "--workers", "1..2", "--interval",
		"1s", "-o", "csv", "--nats", "nats://"+address, "--keys", s.at.Keys)
	var progress bytes.Buffer
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("measure: %v\n%s%s", err, out, &progress)
	}
	for _, want := range []string{"run 4 of 4: 2 workers and 2 servers", "samples/s", "processors in use"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("the course does not say %q:\n%s", want, &progress)
		}
	}
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	s.must(err)
	var scales []string
	for _, row := range rows[1:] {
		scales = append(scales, row[0]+"+"+row[1])
		for i, name := range rows[0] {
			if x, err := strconv.ParseFloat(row[i], 64); strings.Contains(name, "_second") && (err != nil || !(x > 0)) {
				t.Errorf("%s of job %s is %q, want more than 0", name, row[2], row[i])
			}
		}
		if row[3] != string(train.StateSucceeded) || row[4] != "4" {
			t.Errorf("job %s: %s after %s epochs", row[2], row[3], row[4])
		}
	}
	if got := strings.Join(scales, " "); got != "1+1 1+2 1+1 2+2" {
		t.Errorf("servers and workers %s, want 1+1 1+2 1+1 2+2", got)
	}
	s.knows(train.JobID(rows[len(rows)-1][2]), 3)
}

// knows checks that the profiler has fitted the speeds at this many scales, including those of earlier jobs.
func (s *site) knows(id train.JobID, scales int) {
	s.t.Helper()
	models, err := bus.OpenKV(s.ctx, s.bus, contract.Models)
	s.must(err)
	e, err := models.Get(s.ctx, string(id))
	s.must(err)
	if speed := e.Value.Speed; speed.Kind != train.SpeedServersSync || len(speed.Measured) != scales {
		s.t.Errorf("the profiler has fitted %s to %+v, want %s to %d scales", speed.Kind, speed.Measured,
			train.SpeedServersSync, scales)
	}
}
