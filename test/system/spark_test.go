package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// withSpark gives jobs the stand-in for Spark and BigDL of test/spark, and returns its folder.
func (c *cluster) withSpark() string {
	c.t.Helper()
	python := pythonProgram(c.t)
	folder := filepath.Join(c.dir, "spark") // below a folder that jobs may use
	if err := os.CopyFS(folder, os.DirFS("../spark")); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, "spark-submit"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	c.env = []string{"PATH=" + folder + ":" + filepath.Dir(python) + ":/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1"}
	return folder
}

// pipeTune writes the files of PipeTune's users for a training of some epochs: configuration is what pipetune.conf has
// beside bigdlConf, and scale makes epochs of the stand-in longer.
func (c *cluster) pipeTune(master string, epochs int, scale float64, configuration string) (path string) {
	c.t.Helper()
	for name, text := range map[string]string{
		"spark.conf": fmt.Sprintf("standin.scale %g\n", scale),
		"net.json": fmt.Sprintf(`{"master": %q, "properties_file": %q, "conf": %q, "extras": {"batchSize": "512", "learningRate": "0.1", "learningrateDecay": "0.0002", "endTriggerNum": "%d"}}`,
			master, filepath.Join(c.dir, "spark.conf"), filepath.Join(c.dir, "spark", "lenet5.py"), epochs),
		"pipetune.conf": `{"bigdlConf": "net.json", ` + configuration + `}`,
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	return filepath.Join(c.dir, "pipetune.conf")
}

// PipeTune's files, as its users have them, give results: the program only writes a log and checkpoints, and its trials
// pause and go on although every process is killed.
func TestABigDLProgramHasResults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.withSpark()
	conf := c.pipeTune("local[2]", 1, 0.02, `"systemParameters": {"cores": ["2", "1"], "memory": ["2"]}, "hyperParameters": {"learning_rate": [0.001, 0.01]}`)
	c.start("up")
	c.connect()
	if code, out := c.command("tune", "run", "--config", conf, "--id", "net"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	c.await("the first epoch", func(map[train.JobID]train.Job) bool {
		r := c.experiments()["net"]
		return len(r.Trials) > 0 && len(r.Trials[0].Done) > 0
	})
	c.kill("up", syscall.SIGKILL)
	c.start("up")
	var r conduct.Record
	c.await("the end of the experiment", func(map[train.JobID]train.Job) bool {
		r = c.experiments()["net"]
		return r.Over()
	})
	c.sparkTrials(r, 2, 5)
}

// sparkTrials checks the results of an experiment on the stand-in: a rate of 0.01 is best and is trained to the end.
func (c *cluster) sparkTrials(r conduct.Record, trials, epochs int) {
	c.t.Helper()
	best, score, ok := r.Best()
	if !ok || len(r.Trials) != trials || best.Params["learning_rate"].String() != "0.01" || best.State != search.Ended || !(score > 0.8) {
		c.t.Fatalf("%s after %d trials, best %+v: %g: %s", r.State, len(r.Trials), best, score, r.Message)
	}
	for _, trial := range r.Trials {
		for i, e := range trial.Done {
			if e.Epoch != i+1 || !(e.Seconds > 0.1) || !(e.Metrics["accuracy"] > 0) {
				c.t.Errorf("trial %d: epoch %+v", trial.ID, e)
			}
		}
	}
	if len(best.Done) != epochs {
		c.t.Errorf("the best trial ended after %d epochs", len(best.Done))
	}
}

// worker starts a node of a Spark cluster: a worker of the stand-in and a node agent that sees only its processes.
func (c *cluster) worker(master int, node string) {
	c.t.Helper()
	words := settings.Words("--nats", c.url(), "--keys", string(c.keys()), "--data-dir", c.data+node, "--node", node, "--device-kind", "gpu")
	script := fmt.Sprintf("python3 %s worker 127.0.0.1:%d %s & exec %s \"$@\"", filepath.Join(c.dir, "spark", "cluster.py"), master, node, filepath.Join(binaries, "nodeagent"))
	namespace := []string{"--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"}
	if os.Getuid() != 0 {
		namespace = append([]string{"--user", "--map-root-user"}, namespace...)
	}
	c.run("worker-"+node, "unshare", append(namespace, words.Flags...), words.Environ)
}

// newSparkCluster starts a Spark cluster of two nodes beside a Switchyard, and returns its address. The test takes at
// most d.
func newSparkCluster(t *testing.T, d time.Duration) (c *cluster, master string) {
	t.Helper()
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("the machine allows no PID namespaces: %v: %s", err, out)
	}
	c = newClusterIn(t, t.TempDir(), d)
	folder, port := c.withSpark(), bustest.FreePort(t)
	c.run("master", "python3", []string{filepath.Join(folder, "cluster.py"), "master", strconv.Itoa(port)}, nil)
	c.start("up")
	c.connect()
	for _, node := range []string{"eiger-1", "eiger-2"} {
		c.worker(port, node)
	}
	c.await("the workers' nodes are known", func(map[train.JobID]train.Job) bool { return len(c.bucket(string(contract.Nodes))) == 3 })
	return c, "spark://127.0.0.1:" + strconv.Itoa(port)
}

// PipeTune on its own setup, a Spark cluster as master: the executors get other cores and memory between the epochs of
// running trials, trials pause and go on from BigDL's checkpoints, and what the executors use on their nodes is
// measured there and billed to the trials. That holds for each search that pauses trials.
func TestPipeTuneTunesTheExecutorsOfASparkCluster(t *testing.T) {
	if os.Getenv("SPARK") == "" {
		t.Skip("SPARK is not set: make e2e-spark sets it (three minutes)")
	}
	t.Parallel()
	for _, algorithm := range []string{"asha", "hyperband"} {
		// A cluster of its own: what one search has learned of the program, the next would begin with.
		t.Run(algorithm, func(t *testing.T) { pipeTuneOnSpark(t, algorithm) })
	}
}

func pipeTuneOnSpark(t *testing.T, algorithm string) {
	c, master := newSparkCluster(t, 5*time.Minute)
	parameters := `"systemParameters": {"cores": ["4", "16"], "memory": ["2", "4"]}, "hyperParameters": {"learning_rate": [0.001, 0.01, 0.1]}`
	// With 120 epochs a probe, which costs two restarts, is within the bound of what a trial may lose.
	const epochs, scale = 120, 0.008
	wrong := 0
	for named, want := range map[string]string{
		`"nodes": ["eiger-1.maas", "eiger-9.maas"]`:                 `no agent runs on "eiger-9.maas"`,
		`"nodes": ["eiger-1.maas"], "powerMeter": "pdu"`:            "no pdu measures eiger-1.maas",
		`"nodes": ["eiger-1.maas", "eiger-2"], "powerMeter": "pcm"`: "no pcm measures eiger-1.maas",
	} {
		wrong++
		if code, out := c.command("tune", "run", "--config", c.pipeTune(master, epochs, scale, named+", "+parameters), "--id", fmt.Sprint("wrong-", wrong)); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s", named, code, out)
		}
	}
	conf := c.pipeTune(master, epochs, scale, fmt.Sprintf(`"search": {"algorithm": %q}, "nodes": ["eiger-1.maas", "eiger-2.maas"], %s`, algorithm, parameters))
	if code, out := c.command("tune", "run", "--config", conf, "--id", "net"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	c.await("two trials", func(map[train.JobID]train.Job) bool { return len(c.experiments()["net"].Trials) > 1 })
	c.kill("up", syscall.SIGKILL)
	c.start("up")
	var r conduct.Record
	c.await("the end of the experiment", func(map[train.JobID]train.Job) bool {
		r = c.experiments()["net"]
		return r.Over()
	})
	c.sparkTrials(r, 3, epochs)
	c.executorsWereTuned(r)
	for _, node := range []train.NodeID{"eiger-1", "eiger-2"} {
		if used := c.workOn(node); !(used > 0) {
			t.Errorf("%s measured %g s of the trials", node, used)
		}
	}
	if code, out := c.command("tune", "profiles"); code != 0 || !strings.Contains(out, "net lenet5.py") || !strings.Contains(out, "best") {
		t.Errorf("profiles: %d, %s", code, out)
	}
}

// TestModesAreComparedOnASparkCluster runs V1, V2 and PipeTune as often as SPARK_RUNS says and prints the figures.
// Epochs last as long as PipeTune's authors measured, times a factor.
func TestModesAreComparedOnASparkCluster(t *testing.T) {
	runs, grid := os.Getenv("SPARK_RUNS"), filepath.Join(os.Getenv("SWITCHYARD_DATA"), "pipetune/derived/epoch_grid.csv")
	if runs == "" {
		t.Skip("SPARK_RUNS is not set: make bench-spark sets it (half an hour)")
	}
	if _, err := os.Stat(grid); err != nil {
		t.Fatal("SWITCHYARD_DATA does not name the folder with PipeTune's measurements: ", err)
	}
	for _, w := range []struct {
		workload, space string
		scale           float64
	}{
		{"lstm/news20", `"batch_size": [32], "learning_rate_decay": [0.002, 0.02, 0.2]`, 0.004},
		{"lenet/mnist", `"batch_size": [32, 64, 512, 1024]`, 0.01},
	} {
		t.Run(w.workload, func(t *testing.T) {
			c, master := newSparkCluster(t, time.Hour)
			conf := c.pipeTune(master, 10, w.scale, `"systemParameters": {"cores": ["16", "8", "4"], "memory": ["8", "4"]},
				"hyperParameters": {"learning_rate": [0.001, 0.01, 0.1], `+w.space+`}`)
			settings := fmt.Sprintf("standin.scale %g\nstandin.grid %s\nstandin.workload %s\nstandin.load 0.005\n", w.scale, grid, w.workload)
			if err := os.WriteFile(filepath.Join(c.dir, "spark.conf"), []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			code, out := c.command("tune", "compare", conf, "--runs", runs)
			fmt.Printf("%s, times %g\n%s", w.workload, w.scale, out)
			if trained := regexp.MustCompile(`(?m)^pipetune .* 0\.[0-9]+ +[0-9]+ *$`); code != 0 || !trained.MatchString(out) {
				t.Errorf("exit code %d, or no trial was trained", code)
			}
		})
	}
}

// executorsWereTuned checks that the best trial trained with other executors than at its beginning.
func (c *cluster) executorsWereTuned(r conduct.Record) {
	c.t.Helper()
	best, _, _ := r.Best()
	for _, a := range best.Applied {
		if len(a.Refused) > 0 {
			c.t.Errorf("refused: %v", a.Refused)
		}
	}
	i := slices.IndexFunc(r.Trials, func(t contract.Trial) bool { return t.Profile != nil && t.Profile.BusyCores > 0 })
	if i < 0 {
		c.t.Errorf("no trial has a profile: %+v", r.Trials)
	}
	tuned := false
	for _, t := range r.Trials {
		_, log := c.command("logs", string(t.Job))
		granted := map[string]bool{}
		for _, m := range regexp.MustCompile(`Granted executor ID .* with (\d+ core\(s\), \S+ GB RAM)`).FindAllStringSubmatch(log, -1) {
			granted[m[1]] = true
		}
		tuned = tuned || len(granted) > 1 && len(t.Settings) > 1
		if n := len(t.Done); n > 0 && t.Done[n-1].Attempt > 1 && !strings.Contains(log, "it goes on from") {
			c.t.Errorf("trial %d did not go on from a checkpoint:\n%s", t.ID, log)
		}
		if n := strings.Count(log, "Granted executor ID"); n == 0 {
			c.t.Errorf("trial %d had no executors:\n%s", t.ID, log)
		}
	}
	if !tuned {
		c.t.Errorf("no trial had other executors: %+v", r.Trials)
	}
}

// workOn returns the processor seconds of trials that a node has measured.
func (c *cluster) workOn(node train.NodeID) (seconds float64) {
	c.t.Helper()
	subject := event.Subject{Entity: "energy", ID: string(node), Fact: event.FactMeasured, Version: 1}.String()
	err := c.bus.Stored(c.ctx, event.StreamSamples, []string{subject}, time.Time{}, func(m bus.Message) {
		measured, err := event.Decode[event.Measured](m.Data)
		if err != nil {
			c.t.Error(err)
		}
		for _, u := range measured.Users {
			if _, _, trial := contract.SplitTrialJob(string(u.Job)); trial && u.Component == event.ComponentCPU {
				seconds += u.Work
			}
		}
	})
	if err != nil {
		c.t.Error(err)
	}
	return seconds
}
