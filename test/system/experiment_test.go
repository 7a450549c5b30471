package system

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// experiments returns the records of all experiments.
func (c *cluster) experiments() map[string]conduct.Record {
	all := map[string]conduct.Record{}
	for key, text := range c.bucket(string(contract.Experiments)) {
		var r conduct.Record
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			c.t.Fatal(err)
		}
		all[key] = r
	}
	return all
}

// A real experiment on real processes: trials pause and continue, get other cores while they run, and everything is
// killed in between.
func TestAnExperimentGoesOnAfterKills(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	text := fmt.Sprintf(`
name: mnist
mode: pipetune
job:
  name: mnist
  command: [%s, -hidden, "64", -lr, "${lr}"]
  env: {TRAIN_LEDGER: %s}
  work_dir: %s
  batch_size: 32
  training_set_size: 6000
  max_epochs: 9
  min_devices: 2
  max_devices: 2
space: {lr: [0.001, 0.01, 0.1]}
objective: accuracy
search: {algorithm: asha, trials: 3, reduction: 3}
system: {cores: [2, 1]}
`, filepath.Join(binaries, "gotrainer"), c.ledger, c.dir)
	path := filepath.Join(c.dir, "mnist.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := c.command("tune", "run", path, "--id", "mnist"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for trials := 1; trials <= 2; trials++ {
		c.await(fmt.Sprintf("trial %d trains", trials), func(map[train.JobID]train.Job) bool {
			r := c.experiments()["mnist"]
			return len(r.Trials) >= trials && len(r.Trials[trials-1].Done) > 0
		})
		c.kill("up", syscall.SIGKILL)
		c.start("up")
	}
	var r conduct.Record
	c.await("the end of the experiment", func(map[train.JobID]train.Job) bool {
		r = c.experiments()["mnist"]
		return r.Over() && r.Published
	})
	// A report of a setting that a killed service had received is delivered again after 5 s.
	c.await("a report of each trial's setting", func(map[train.JobID]train.Job) bool {
		r = c.experiments()["mnist"]
		return !slices.ContainsFunc(r.Trials, func(t contract.Trial) bool { return len(t.Applied) == 0 })
	})
	best, score, ok := r.Best()
	if r.State != conduct.Finished || len(r.Trials) != 3 || !ok || !(score > 0.3) {
		t.Fatalf("%s after %d trials, best %+v: %g", r.State, len(r.Trials), best, score)
	}
	whole := func(t contract.Trial) bool { return t.State == search.Ended && t.EpochsDone() == 9 }
	if !slices.ContainsFunc(r.Trials, whole) {
		t.Errorf("no trial has trained to its end: %+v", r.Trials)
	}
	trained := map[string]int{}
	for _, e := range readLedger(t, c.ledger) {
		if e.Event == "epoch" {
			trained[fmt.Sprintf("%s/%d", e.Job, e.Epoch)]++
		}
	}
	for _, trial := range r.Trials {
		// While no service is there to stop it, a trial trains beyond the epoch at which it was to pause: that work is
		// not lost, and not done again.
		if n := trial.EpochsDone(); n < trial.Epochs || n > 9 {
			t.Errorf("trial %d was left after %d epochs, %d were wanted", trial.ID, n, trial.Epochs)
		}
		for epoch := 1; epoch <= trial.EpochsDone(); epoch++ {
			if n := trained[fmt.Sprintf("%s/%d", trial.Job, epoch)]; n != 1 {
				t.Errorf("epoch %d of %s was trained %d times", epoch, trial.Job, n)
			}
		}
	}
	if code, out := c.command("tune", "results", "mnist", "-o", "csv"); code != 0 || strings.Count(out, "\n") != 4 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := c.command("tune", "results", "mnist", "-o", "html"); code != 0 || !strings.Contains(out, "</html>") {
		t.Errorf("exit code %d: %.200s", code, out)
	}
}

// Experiments arrive as a Poisson process, two trials at a time on one slot: the parts of a response time add up, and
// recurring experiments need fewer trials.
func TestModesAreComparedOnline(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	text := fmt.Sprintf(`
name: online
job:
  name: online
  command: [%s, -hidden, "32", -lr, "${lr}"]
  work_dir: %s
  batch_size: 32
  training_set_size: 3000
  max_epochs: 3
  min_devices: 2
  max_devices: 2
space: {lr: [0.01, 0.1]}
objective: accuracy
search: {algorithm: random, trials: 2}
concurrency: 2
system: {cores: [2]}
`, filepath.Join(binaries, "gotrainer"), c.dir)
	path := filepath.Join(c.dir, "online.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := c.command("tune", "compare", path, "--jobs", "2", "--mean-gap", "12s", "--modes", "v1,pipetune",
		"--prefix", "cmp", "-o", "json")
	_, body, found := strings.Cut(out, "\n{") // after the progress messages
	var got struct {
		Experiments []struct {
			Mode      string  `json:"mode"`
			Response  float64 `json:"response_seconds"`
			Queue     float64 `json:"queue_seconds"`
			Tuning    float64 `json:"tuning_seconds"`
			Training  float64 `json:"training_seconds"`
			Objective float64 `json:"objective"`
			Trials    int     `json:"trials"`
		} `json:"experiments"`
	}
	if err := json.Unmarshal([]byte("{"+body), &got); code != 0 || !found || err != nil || len(got.Experiments) != 4 {
		t.Fatalf("exit code %d, error %v: %s", code, err, out)
	}
	trials := map[string]int{}
	for _, e := range got.Experiments {
		trials[e.Mode] += e.Trials
		if math.Abs(e.Queue+e.Tuning+e.Training-e.Response) > 0.001 || !(e.Queue > 0) || !(e.Training > 0) || !(e.Tuning > 0) || !(e.Objective > 0.2) {
			t.Errorf("%+v", e)
		}
	}
	if trials["v1"] != 4 || trials["pipetune"] > 4 {
		t.Errorf("trials %v", trials)
	}
	records := c.experiments()
	for n, id := range []string{"cmp-pipetune-0", "cmp-pipetune-1"} {
		if r := records[id]; (r.Recurs != nil) != (len(r.Trials) == 1) || n == 0 && r.Recurs != nil {
			t.Errorf("%s recurs: %+v, %d trials", id, r.Recurs, len(r.Trials))
		}
	}
}
