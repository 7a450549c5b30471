package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/lab/live"
	"github.com/switchyard-dl/switchyard/lab/live/cluster"
	"github.com/switchyard-dl/switchyard/lab/live/trainer"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/test/programs"
)

// binaries builds what the cluster runs.
func binaries(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := programs.Build(folder, "cmd/switchyard-server", "cmd/switchyard-supervisor", "services/nodeagent/cmd/nodeagent"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(folder, "nodeagent"), filepath.Join(folder, "switchyard-nodeagent")); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(folder, "switchyard-replay"), "../../cmd/switchyard-replay")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the trainer: %v\n%s", err, out)
	}
	return folder
}

// measurements writes the traces of two applications of a second each: a step takes as long on any devices.
func measurements(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, p := range traces.Profiles() {
		steps := map[string]int{"bert": 40, "ncf": 128}[p.Name]
		if steps == 0 {
			continue
		}
		stepSeconds := 1 / float64(steps*p.Epochs)
		var placements, training strings.Builder
		placements.WriteString("placement,local_bsz,step_time,sync_time\n")
		for _, shape := range []string{"1", "2", "3", "4", "24", "44"} {
			fmt.Fprintf(&placements, "%s,%d,%g,0\n", shape, p.Limits.MaxLocal, stepSeconds)
		}
		training.WriteString("progress,iteration,grad_sqr,grad_var\n")
		for epoch := range p.Epochs {
			fmt.Fprintf(&training, "%d,%d,1,1\n", steps*(epoch+1), steps*(epoch+1))
		}
		files := map[string]string{
			"placements.csv": placements.String(), "scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n",
			fmt.Sprintf("validation-%d.csv", p.Limits.BaseBatch): training.String(),
		}
		for name, content := range files {
			path := filepath.Join(folder, "traces", p.Name, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return folder
}

// One machine presents itself as two nodes. A gang of six runs over both, and every job trains exactly its work, live
// and simulated.
func TestAWorkloadIsPlayed(t *testing.T) {
	root, dir := measurements(t), t.TempDir()
	apps, err := traces.Load(os.DirFS(root), "traces", "derived")
	if err != nil {
		t.Fatal(err)
	}
	ledger := filepath.Join(dir, "ledger.jsonl")
	p := live.Plan{Applications: apps, Nodes: 2, Factor: 1}
	c := cluster.Config{Bin: binaries(t), Dir: dir, Nodes: p.Nodes, Policy: "fifo", Terms: p.Terms()}
	p.Trainer = []string{filepath.Join(c.Bin, "switchyard-replay"), "--traces", root, "--ledger", ledger}
	for i, application := range []string{"bert", "ncf", "ncf", "bert"} {
		p.Arrivals = append(p.Arrivals, traces.Arrival{
			Name: train.JobID(fmt.Sprintf("job-%d", i)), Seconds: float64(i) / 4, Application: application, Devices: 6, Batch: apps[application].Limits.BaseBatch,
		})
	}
	jobs, err := p.Jobs(c.Policy)
	if err != nil {
		t.Fatal(err)
	}
	var outcome live.Outcome
	err = c.During(t.Context(), func(ctx context.Context, url string) (err error) {
		outcome, err = c.Play(ctx, url, jobs, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	epochs, err := trainer.ReadLedger(ledger)
	if err == nil {
		err = live.Check(jobs, epochs)
	}
	if err != nil {
		t.Error(err)
	}
	for _, a := range outcome.Attempts {
		if gang := outcome.Jobs[a.Job].Spec.MinDevices == 6; gang && len(a.Places) != 2 {
			t.Errorf("job %s asked for six devices and held %v, want parts of both nodes", a.Job, a.Places)
		}
	}
	simulation, err := p.Simulation(c.Policy, outcome.Nodes, outcome.StartSeconds(epochs))
	if err != nil {
		t.Fatal(err)
	}
	simulation.IntervalSeconds = 1
	if r, err := sim.Run(simulation); err != nil || r.Completed != len(jobs) {
		t.Errorf("the simulation ended %d of %d jobs: %v", r.Completed, len(jobs), err)
	}
}
