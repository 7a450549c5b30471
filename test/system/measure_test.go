package system

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
)

// TestMeasuringTeaches runs the trainer at two scales, and asks for table and CSV. The measurements are known for the
// next job of the kind before it has run.
func TestMeasuringTeaches(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	file := filepath.Join(c.dir, "job.yaml")
	job := "name: measured\ncommand: [" + filepath.Join(binaries, "gotrainer") + ", -hidden, \"128\"]\nbatch_size: 32\ntraining_set_size: 20000\nmax_epochs: 50\n"
	if err := os.WriteFile(file, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := c.command("measure", file, "--workers", "1..2", "--epochs", "3", "--interval", "200ms")
	for _, want := range []string{"run 1 of 2: 1 worker", "run 2 of 2: 2 workers", "processors in use", "PROCESSORS", "model all_reduce: step = ", "fitted to 2 configurations"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("measure (exit %d) does not say %q:\n%s", code, want, out)
		}
	}
	code, out = c.command("measure", file, "--workers", "2", "--epochs", "3", "-o", "csv")
	_, table, found := strings.Cut(out, "servers,workers,")
	rows, err := csv.NewReader(strings.NewReader("servers,workers," + table)).ReadAll()
	if code != 0 || !found || err != nil || len(rows) != 2 {
		t.Fatalf("measure -o csv (exit %d, %v):\n%s", code, err, out)
	}
	for i, name := range rows[0] {
		value := rows[1][i]
		if x, err := strconv.ParseFloat(value, 64); strings.HasSuffix(name, "_second") || strings.HasSuffix(name, "_seconds") || name == "cpu_cores" {
			if err != nil || !(x > 0) {
				t.Errorf("%s is %q, want more than 0", name, value)
			}
		}
	}
	// The run with two workers knew the results of the run with one.
	models, err := bus.OpenKV(c.ctx, c.bus, contract.Models)
	if err != nil {
		t.Fatal(err)
	}
	e, err := models.Get(c.ctx, rows[1][2])
	if err != nil {
		t.Fatal(err)
	}
	known := map[int]bool{}
	for _, m := range e.Value.Speed.Measured {
		known[m.Workers] = true
	}
	if !known[1] || !known[2] {
		t.Errorf("the profiler knows the speeds %+v, want those with one and with two workers", e.Value.Speed.Measured)
	}
}
