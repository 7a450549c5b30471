package file

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

const own = `
name: digits-lr
group: nightly
mode: v2
job:
  name: digits
  command: [bin/trainer, -lr, "${learning_rate}", -cores, "${cores}", "${HOME}/x", "$5 ${not closed"]
  batch_size: 64
  training_set_size: 4000
  max_epochs: 9
  env: {MOMENTUM: "m=${momentum}"}
space:
  learning_rate: {log_uniform: [1e-4, 0.1]}
  batch_size: [32, 64, 256]
  optimizer: {choice: [sgd, adam]}
  momentum: {uniform: [0, 0.99], when: {optimizer: [sgd]}}
  layers: {int: [1, 4]}
objective: {metric: accuracy/time}
constraints: [{metric: memory_mib, max: 4096}]
search: {algorithm: asha, sampler: gp, trials: 20, seed: 7, median_stopping: {grace_epochs: 2}}
budget: {epochs: 100, hours: 1.5}
concurrency: 2
system: {cores: [2, 1], devices: [1, 2], power_limit_w: [112.5]}
`

func parsed(t *testing.T, text string) Experiment {
	t.Helper()
	e, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestParse(t *testing.T) {
	e := parsed(t, own)
	if e.Name != "digits-lr" || e.Group != "nightly" || e.Mode != V2 || e.Concurrency != 2 || e.Budget != (contract.Budget{Epochs: 100, Hours: 1.5}) || e.Job.MaxEpochs != 9 {
		t.Errorf("experiment %+v", e)
	}
	if e.Objective != (contract.Objective{Metric: "accuracy", Per: contract.PerTime}) {
		t.Errorf("objective %+v", e.Objective)
	}
	want := search.Space{
		{Name: "learning_rate", Kind: search.LogUniform, Low: 1e-4, High: 0.1},
		{Name: "batch_size", Kind: search.Choice, Values: []contract.Value{contract.Number(32), contract.Number(64), contract.Number(256)}},
		{Name: "optimizer", Kind: search.Choice, Values: []contract.Value{contract.Text("sgd"), contract.Text("adam")}},
		{Name: "momentum", Kind: search.Uniform, High: 0.99, When: &contract.Condition{Parameter: "optimizer", In: []contract.Value{contract.Text("sgd")}}},
		{Name: "layers", Kind: search.Int, Low: 1, High: 4},
	}
	if diff := cmp.Diff(want, search.Space(e.Space), cmp.AllowUnexported(contract.Value{})); diff != "" {
		t.Errorf("space: %s", diff)
	}
	config := contract.SearchConfig{Algorithm: search.ASHA, Sampler: search.GP, Trials: 20, Seed: 7, MaxEpochs: 9, Median: &contract.MedianStopping{GraceEpochs: 2}}
	if diff := cmp.Diff(config, e.Search); diff != "" {
		t.Errorf("search: %s", diff)
	}
	if n := len(e.SearchSpace()); n != 8 {
		t.Errorf("%d parameters with those of the system, want 8", n)
	}
	if e.Mode = V1; len(e.SearchSpace()) != 5 {
		t.Error("v1 leaves the system alone")
	}
	if text, err := json.Marshal(e); err != nil || !strings.Contains(string(text), `"low":0.0001`) {
		t.Errorf("as JSON: %s (%v)", text, err)
	}
}

func TestTrialJob(t *testing.T) {
	e := parsed(t, own)
	params := search.Params{
		"learning_rate": contract.Number(0.01), "batch_size": contract.Number(256), "optimizer": contract.Text("adam"), "layers": contract.Number(3),
		"cores": contract.Number(1), "devices": contract.Number(2), "power_limit_w": contract.Number(112.5),
	}
	job := e.TrialJob(4, 3, params, e.Setting(params))
	if want := []string{"bin/trainer", "-lr", "0.01", "-cores", "${cores}", "${HOME}/x", "$5 ${not closed"}; !slices.Equal(job.Command, want) {
		t.Errorf("command %q", job.Command)
	}
	env := map[string]string{
		"MOMENTUM": "m=", "SWITCHYARD_PARAM_LEARNING_RATE": "0.01", "SWITCHYARD_PARAM_BATCH_SIZE": "256", "SWITCHYARD_PARAM_OPTIMIZER": "adam",
		"SWITCHYARD_PARAM_LAYERS": "3",
	}
	if diff := cmp.Diff(env, job.Env); diff != "" {
		t.Errorf("environment: %s", diff)
	}
	if job.Name != "digits-lr-4" || job.BatchSize != 256 || job.MinDevices != 2 || job.MaxDevices != 2 || job.MaxEpochs != 9 {
		t.Errorf("job %+v", job)
	}
	if e.Job.Command[2] != "${learning_rate}" || len(e.Job.Env) != 1 {
		t.Errorf("the template was changed: %+v", e.Job)
	}
	e.Mode = PipeTune
	if diff := cmp.Diff(map[string]float64{"cores": 2, "devices": 1, "power_limit_w": 112.5}, e.Setting(params)); diff != "" {
		t.Errorf("a trial of pipetune starts with the defaults: %s", diff)
	}
}

func TestResult(t *testing.T) {
	four, one := 4.0, 1.0
	for _, tc := range []struct {
		objective string
		bounds    []contract.Constraint
		report    Report
		want      search.Result
		fault     string
	}{
		{"accuracy", nil, Report{Epoch: 2, Metrics: map[string]float64{"accuracy": 0.9}}, search.Result{Epoch: 2, Score: 0.9}, ""},
		{"val_loss", nil, Report{Metrics: map[string]float64{"val_loss": 2}}, search.Result{Score: -2}, ""},
		{"accuracy/time", nil, Report{Metrics: map[string]float64{"accuracy": 0.9}, Seconds: 3}, search.Result{Score: 0.3}, ""},
		{"accuracy/energy", nil, Report{Metrics: map[string]float64{"accuracy": 0.9}, Seconds: 3, Joules: 90}, search.Result{Score: 0.01}, ""},
		{"accuracy/energy", nil, Report{Metrics: map[string]float64{"accuracy": 0.9}, Seconds: 3}, search.Result{}, "the energy was not measured"},
		{"accuracy", nil, Report{Metrics: map[string]float64{"loss": 1, "a": 2}}, search.Result{}, "no metric accuracy among a, loss"},
		{
			"accuracy",
			[]contract.Constraint{{Metric: "gib", Min: nil, Max: &four}, {Metric: "gib", Min: &one, Max: &four}},
			Report{Metrics: map[string]float64{"accuracy": 1, "gib": 4.5}},
			search.Result{Score: 1, Slack: []float64{-0.5, -0.5}},
			"",
		},
		{"accuracy", []contract.Constraint{{Metric: "gib", Min: nil, Max: &four}}, Report{Metrics: map[string]float64{"accuracy": 1}}, search.Result{}, "no metric gib"},
	} {
		r := newReader()
		e := Experiment{Objective: r.objective(r.Document([]byte(tc.objective))), Constraints: tc.bounds}
		got, err := e.Result(tc.report)
		if tc.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("%s of %+v: error %v, want %q", tc.objective, tc.report, err, tc.fault)
			}
			continue
		}
		if err != nil || math.Abs(got.Score-tc.want.Score) > 1e-12 || got.Epoch != tc.want.Epoch || !slices.Equal(got.Slack, tc.want.Slack) {
			t.Errorf("%s of %+v: %+v (%v)", tc.objective, tc.report, got, err)
		}
	}
}

// Where every trial trains to its end, so far is what ${epochs} says.
func TestEpochsOfWholeTrainings(t *testing.T) {
	text := strings.Replace(own, "m=${momentum}", "${epochs}", 1)
	e := parsed(t, strings.Replace(text, "algorithm: asha, sampler: gp", "algorithm: random", 1))
	if got := e.TrialJob(0, 9, nil, nil).Env["MOMENTUM"]; got != "9" {
		t.Errorf("${epochs} is %s", got)
	}
}

// Every problem is reported with its line and a suggestion.
func TestParseTellsWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ old, with, want string }{
		{"name: digits-lr", "name: a b", `line 2: name: want 1 to 56 letters, digits, '-' or '_', beginning with a letter or digit; found "a b"`},
		{"mode: v2", "mode: v3", `line 4: mode: want v1, v2, pipetune; found "v3" (did you mean v1?)`},
		{"group: nightly", "groop: nightly", "line 3: groop: no such field (did you mean group?)"},
		{"group: nightly", "name: again", "line 3: name: given twice (keep one of them)"},
		{"  max_epochs: 9\n", "", "line 6: job.max_epochs: want the epochs of a whole training, 1 or more"},
		{"max_epochs: 9", "max_epoch: 9", "line 10: job.max_epoch: no such field (did you mean max_epochs?)"},
		{"batch_size: 64", "batch_size: many", `line 8: job.batch_size: want a whole number, found "many"`},
		{"${learning_rate}", "${learning_rat}", "line 7: job.command[2]: ${learning_rat} stands for no parameter (did you mean learning_rate?)"},
		{"${learning_rate}", "${epochs}", "line 7: job.command[2]: a job is submitted once: ${epochs} would stay the epochs of the first rung of asha, and no trial could go on after them"},
		{"m=${momentum}", "${epochs}", "line 11: job.env.MOMENTUM: a job is submitted once"},
		{"m=${momentum}", "${nope}", "line 11: job.env.MOMENTUM: ${nope} stands for no parameter"},
		{"log_uniform: [1e-4, 0.1]", "log_uniform: [0, 0.1]", "line 13: space.learning_rate: a logarithmic range begins above 0, found 0"},
		{"log_uniform: [1e-4, 0.1]", "loguniform: [1e-4, 0.1]", "line 13: space.learning_rate.loguniform: no such field (did you mean log_uniform?)"},
		{"uniform: [0, 0.99]", "uniform: 3", `line 16: space.momentum.uniform: want a list, found 3`},
		{"when: {optimizer: [sgd]}", "when: {optimizer: [rmsprop]}", "line 16: space.momentum: when: optimizer is never rmsprop"},
		{"batch_size: [32, 64, 256]", "batch_size: [32, big]", "line 14: space.batch_size: want whole numbers of at least 1"},
		{"layers:", "cores:", "line 17: space.cores: has a meaning of its own: choose another name, or give it in system"},
		{"layers:", "Optimizer:", "line 17: space.Optimizer: differs from another name in upper and lower case alone"},
		{"{int: [1, 4]}", "{int: [1, 4], choice: [1]}", "line 17: space.layers: is both choice and int"},
		{"accuracy/time", "accuracy/tim", `line 18: objective: want METRIC, METRIC/time or METRIC/energy; found "accuracy/tim" (did you mean time?)`},
		{"accuracy/time", "loss/time", "line 18: objective: what is to be small cannot be divided"},
		{"max: 4096", "maxi: 4096", "line 19: constraints[0].maxi: no such field (did you mean max?)"},
		{"algorithm: asha", "algorithm: ashe", `line 20: search.algorithm: want random, grid, gp, hyperband, asha; found "ashe" (did you mean asha?)`},
		{"trials: 20", "trials: 2.5", `line 20: search.trials: want a whole number of at least 1, found 2.5`},
		{"sampler: gp, trials: 20", "trials: 20000", "line 2, column 1: search of experiment digits-lr: trials 20000: want 1 to 10000"},
		{"hours: 1.5", "hours: .nan", `line 21: budget.hours: want a finite number, found .nan`},
		{"cores: [2, 1]", "cores: [2, 2]", "line 23: system.cores[1]: given twice (keep one of them)"},
		{"cores: [2, 1]", "cores: [2, 0]", `line 23: system.cores[1]: want a number above 0, whole unless it is a power limit; found 0`},
		{"cores: [2, 1]", "memory_mib: [" + counted(64) + "], cores: [" + counted(9) + "]", "line 23: system: 1152 combinations of values: want at most 1024"},
		{"group: nightly", "group: &a nightly\nname2: *a", "line 3: group: anchors (&a) are not read (leave it out)"},
	} {
		text := strings.Replace(own, tc.old, tc.with, 1)
		if text == own {
			t.Fatalf("%q is not in the file", tc.old)
		}
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s:\n%v\nwant\n%s", tc.with, err, tc.want)
		}
	}
	_, err := Parse([]byte("mode: v3\nspace: []\n"))
	var all strict.Problems
	if !errors.As(err, &all) || len(all) != 6 { // four fields missing, the mode, the space
		t.Errorf("problems %v", all)
	}
	for _, text := range []string{"", "[1", "- a", "a: b: c", "{\"a\": 1", strings.Repeat("a", strict.MaxBytes+1)} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.20q was read", text)
		}
	}
}

// counted are the numbers from 1 on.
func counted(most int) string {
	words := make([]string, most)
	for i := range words {
		words[i] = strconv.Itoa(i + 1)
	}
	return strings.Join(words, ", ")
}

const bigdlFile = `{
	"master": "spark://head:7077", "driver_memory": "2G", "total_executor_cores": 1, "executor_cores": "4", "executor_memory": "2G",
	"py_files": "$HOME/api.zip,apps/net.py", "properties_file": "${HOME}/spark.conf", "jars": "$HOME/a.jar,/opt/b.jar", "conf": "apps/net.py",
	"extras": {"action": "train", "dataPath": "$HOME/data", "batchSize": "32", "learningRate": 0.01, "endTriggerNum": "1"}
}`

const pipeTuneFile = `{
	"bigdlConf": "config/net.json", "powerMeter": "pcm", "nodes": ["n-1"],
	"systemParameters": {"cores": ["8", "4"], "memory": ["2", 4]},
	"hyperParameters": {"batch_size": [1024, 32], "learning_rate": ["0.001", 0.1], "learning_rate_decay": [0.2]}
}`

func source(files map[string]string) Source {
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Source{Open: func(path string) ([]byte, error) { return fs.ReadFile(folder, path) }, Home: "/home/u"}
}

func TestBigDLCommand(t *testing.T) {
	b, err := ParseBigDL([]byte(bigdlFile), "/home/u")
	if err != nil {
		t.Fatal(err)
	}
	want := "spark-submit --master spark://head:7077 --driver-memory 2G --total-executor-cores 1 --executor-cores 4 --executor-memory 2G " +
		"--py-files /home/u/api.zip,apps/net.py --properties-file /home/u/spark.conf --jars /home/u/a.jar,/opt/b.jar " +
		"--conf spark.driver.extraClassPath=/home/u/a.jar:/opt/b.jar --conf spark.executor.extraClassPath=a.jar:b.jar apps/net.py " +
		"--action train --dataPath /home/u/data --batchSize 32 --learningRate 0.01 --endTriggerNum 1"
	if got := strings.Join(b.Command(), " "); got != want {
		t.Errorf("command\n%s\nwant\n%s", got, want)
	}
	other, err := ParseBigDL([]byte(strings.Replace(bigdlFile, `"extras"`, `"extra"`, 1)), "/home/u")
	if diff := cmp.Diff(b, other); err != nil || diff != "" {
		t.Errorf("extra is extras: %v %s", err, diff)
	}
}

func TestPipeTune(t *testing.T) {
	e, err := Read([]byte(pipeTuneFile), source(map[string]string{"config/net.json": bigdlFile}))
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != "net" || e.Mode != PipeTune || e.Job.LogFormat != train.LogBigDL || e.Search.Algorithm != search.ASHA || e.Search.Trials != 4 || e.Search.MaxEpochs != 5 {
		t.Errorf("experiment %+v", e)
	}
	if diff := cmp.Diff([]contract.Factor{{Name: Cores, Values: []float64{8, 4}, AtStart: true}, {Name: MemoryMiB, Values: []float64{2048, 4096}, AtStart: true}}, e.System); diff != "" {
		t.Errorf("system: %s", diff)
	}
	if diff := cmp.Diff(&contract.PowerMeter{Meter: "pcm", Nodes: []string{"n-1"}}, e.Power); diff != "" {
		t.Errorf("power: %s", diff)
	}
	params := search.Params{"batch_size": contract.Number(1024), "learning_rate": contract.Number(0.001), "learning_rate_decay": contract.Number(0.2)}
	job := e.TrialJob(0, 2, params, map[string]float64{Cores: 4, MemoryMiB: 4096})
	line := strings.Join(job.Command, " ")
	for _, part := range []string{
		"--total-executor-cores ${cores} --executor-cores 4 --executor-memory ${memory_mib}m", "--batchSize 1024 --learningRate 0.001 --endTriggerNum 5 --learning_rate_decay 0.2", "python -m switchyard.spark spark-submit --master",
	} {
		if !strings.Contains(line, part) {
			t.Errorf("command %s\nwithout %s", line, part)
		}
	}
	local, err := Read([]byte(pipeTuneFile), source(map[string]string{"config/net.json": strings.Replace(bigdlFile, "spark://head:7077", "local[8]", 1)}))
	if err != nil || local.System[0].Fixed || local.System[0].AtStart || !local.System[1].Fixed || local.Job.MinDevices != 8 || local.Job.MaxDevices != 8 || e.Job.MinDevices != 0 {
		t.Errorf("on this machine: error %v, %+v", err, local)
	}
	if job.BatchSize != 1024 || job.TrainingSetSize != 1024 || job.MaxEpochs != 5 {
		t.Errorf("job %+v", job)
	}
	searched := strings.Replace(pipeTuneFile, `"powerMeter"`, `"search": {"algorithm": "hyperband", "seed": 3}, "powerMeter"`, 1)
	byHyperband, err := Read([]byte(searched), source(map[string]string{"config/net.json": bigdlFile}))
	if diff := cmp.Diff(contract.SearchConfig{Algorithm: search.Hyperband, Trials: 4, Seed: 3, MaxEpochs: 5}, byHyperband.Search); err != nil || diff != "" {
		t.Errorf("search: %v %s", err, diff)
	}
	for _, tc := range []struct{ old, with, want string }{
		{`"hyperParameters"`, `"hyperparameter"`, "line 4: hyperparameter: no such field (did you mean hyperParameters?)"},
		{`"pcm"`, `"ipmi"`, `line 2: powerMeter: want pcm, pdu; found "ipmi"`},
		{`"8", "4"`, `"8", "four"`, `line 3: systemParameters.cores[1]: want different whole numbers above 0, found "four"`},
		{`[0.2]`, `[]`, "line 4: hyperParameters.learning_rate_decay: want a list of values"},
		{`config/net.json`, `config/no.json`, "line 2: bigdlConf: open config/no.json"},
		{`"powerMeter": "pcm"`, `"search": {"algorithm": "hyperbands"}`, "line 2: search.algorithm: want random, grid, gp, hyperband, asha; found \"hyperbands\" (did you mean hyperband?)"},
	} {
		_, err := Read([]byte(strings.Replace(pipeTuneFile, tc.old, tc.with, 1)), source(map[string]string{"config/net.json": bigdlFile}))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", tc.with, err, tc.want)
		}
	}
	_, err = Read([]byte(pipeTuneFile), source(map[string]string{"config/net.json": `{"master": "x", "extras": {}, "driver_memry": "1G"}`}))
	if want := "driver_memry: no such field; arguments of the program go into extras (did you mean driver_memory?)"; err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "conf: is missing") {
		t.Errorf("error %v, want %s", err, want)
	}
}

// The files that PipeTune's users have are read as they are.
func TestPublishedConfigurations(t *testing.T) {
	folder := data(t, "config_examples")
	conf, err := os.ReadFile(filepath.Join(folder, "pipetune.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := Source{Home: "/home/ubuntu", Open: func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(folder, filepath.Base(name))) }}
	e, err := Read(conf, s)
	if err != nil {
		t.Fatal(err)
	}
	if all, ok := search.Space(e.Space).Finite(1000); !ok || len(all) != 36 || e.Name != "mnist" {
		t.Errorf("experiment %+v", e)
	}
	if text, err := s.Open("mnist.json"); err != nil {
		t.Fatal(err)
	} else if _, err := Read(text, s); err == nil || !strings.Contains(err.Error(), "bigdlConf") {
		t.Errorf("a job alone: %v", err)
	}
	last := map[string]string{
		"mnist.json":          "--action train --dataPath /tmp/mnist --batchSize 32 --learningRate 0.01 --learningrateDecay 0.0002 --endTriggerNum 1",
		"cifar10.json":        "--appName cifar10 --action train --batchSize 32 --learningRate 0.01 --learningrateDecay 0.0002 --endTriggerNum 1",
		"fashion-mnist.json":  "--dataPath /home/ubuntu/dataset/fashion-mnist --batchSize 32 --learningRate 0.01 --learningrateDecay 0.0002 --endTriggerNum 1",
		"textclassifier.json": "--model cnn --batchSize 32 --embedding_dim 200 --learning_rate 0.005 --max_epoch 1",
	}
	for name, arguments := range last {
		text, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseBigDL(text, s.Home)
		if line := strings.Join(b.Command(), " "); err != nil || !strings.HasSuffix(line, arguments) || !strings.HasPrefix(line, "spark-submit --master spark://eiger-1.maas:7077 ") {
			t.Errorf("%s: %s (%v)", name, line, err)
		}
	}
}

func data(t *testing.T, folder string) string {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA does not name the published measurements")
	}
	return filepath.Join(root, "pipetune", folder)
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{own, pipeTuneFile, "a: &a [*a]", "job: {1: 2}", "space: {a: {choice: [.inf]}}", "{\"bigdlConf\": 3}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := Read(text, source(map[string]string{"config/net.json": bigdlFile}))
		if err != nil {
			return
		}
		s, err := e.Searcher()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range s.Next(nil, 2) {
			job := e.TrialJob(a.Trial, a.Epochs, a.Params, e.Setting(a.Params))
			if !contract.Experiment(e).Tries(a.Trial, job) {
				t.Fatalf("not its own job: %+v", job)
			}
			if len(job.Command) != len(e.Job.Command) || job.BatchSize < 0 {
				t.Fatalf("job %+v", job)
			}
		}
	})
}

func FuzzBigDL(f *testing.F) {
	f.Add([]byte(bigdlFile))
	f.Add([]byte(`{"master": "m", "conf": "c", "app_name": "x", "batch_size": "3"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := ParseBigDL(text, "/h"); err == nil && !slices.Contains(b.Command(), b.Program) {
			t.Fatalf("command %q", b.Command())
		}
	})
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/experiments/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples (%v)", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
