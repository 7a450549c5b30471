package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// PipeTune's constants, which its configuration does not contain: trainings of 5 epochs, one trial after the other.
const (
	pipeTuneEpochs = 5
	pipeTuneTrials = 16
)

// bigdlSaved is what a BigDL program saves after each epoch when switchyard.spark runs it, below the snapshots folder.
// The optimizer is saved last.
const bigdlSaved = "bigdl/*/optimMethod*"

// Source opens the files that a configuration names.
type Source struct {
	// Open reads the file at a path of the configuration.
	Open func(path string) ([]byte, error)
	// Home replaces $HOME.
	Home string
}

// Read reads an experiment in Switchyard's form or in PipeTune's (JSON with bigdlConf).
func Read(text []byte, s Source) (Experiment, error) {
	var shape struct {
		BigDLConf any `json:"bigdlConf"`
		Program   any `json:"conf"`
	}
	if json.Unmarshal(text, &shape) == nil {
		switch {
		case shape.BigDLConf != nil:
			return ParsePipeTune(text, s)
		case shape.Program != nil:
			return Experiment{}, errors.New("this file is one job for BigDL without values to search: want a configuration that names it as bigdlConf")
		}
	}
	return Parse(text)
}

// ParsePipeTune reads PipeTune's configuration and the BigDL file that it names. Hyper-parameters are choices, memory
// is in GiB, the objective is accuracy. PipeTune's own files have no search: they are searched by ASHA.
func ParsePipeTune(text []byte, s Source) (Experiment, error) {
	r := newReader()
	root := r.Document(text)
	if root == nil {
		return Experiment{}, r.Err()
	}
	f := r.Object(root, "", "bigdlConf", "powerMeter", "nodes", "systemParameters", "hyperParameters", "search")
	file := r.Scalar(f["bigdlConf"], "bigdlConf")
	e := Experiment{
		Name: trialName(file), Mode: PipeTune, Objective: contract.Objective{Metric: "accuracy"}, Concurrency: 1,
		Power: r.power(f["powerMeter"], f["nodes"]), System: r.systemParameters(f["systemParameters"]), Space: r.hyperParameters(f["hyperParameters"]),
	}
	for _, needed := range []string{"bigdlConf", "hyperParameters"} {
		if f[needed] == nil && root.Kind == strict.Object {
			r.Add(root, needed, "", "is missing")
		}
	}
	if err := r.Err(); err != nil {
		return Experiment{}, err
	}
	body, err := s.Open(file)
	if err != nil {
		r.Add(f["bigdlConf"], "bigdlConf", "", "%v", err)
		return Experiment{}, r.Err()
	}
	job, err := ParseBigDL(body, s.Home)
	if err != nil {
		return Experiment{}, fmt.Errorf("%s: %w", file, err)
	}
	for i, f := range e.System {
		// Executors of a cluster get their cores and memory when a program starts. Within one process of this machine the
		// cores are those of its threads, and its memory is the driver's, which spark-submit fixes.
		e.System[i].AtStart, e.System[i].Fixed = !job.local(), job.local() && f.Name != Cores
	}
	e.Job = job.trialJob(e)
	trials := pipeTuneTrials
	if all, ok := search.Space(e.Space).Finite(trials); ok {
		trials = len(all)
	}
	e.Search = r.search(f["search"], trials)
	e.Search.MaxEpochs = e.Job.MaxEpochs
	if err := r.Err(); err != nil {
		return Experiment{}, err
	}
	if _, err := e.Searcher(); err != nil {
		r.Add(root, "hyperParameters", "", "%v", err)
	}
	return e, r.Err()
}

// trialName makes the name of an experiment from that of its BigDL file.
func trialName(file string) string {
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	if !(Experiment{Name: name}).Named() {
		return "bigdl"
	}
	return name
}

func (r *reader) power(meter, nodes *strict.Node) *contract.PowerMeter {
	if meter == nil && nodes == nil {
		return nil
	}
	p := &contract.PowerMeter{Meter: strict.OneOf(r.Reader, meter, "powerMeter", "", []string{"pcm", "pdu"})}
	for i, n := range r.Items(nodes, "nodes") {
		p.Nodes = append(p.Nodes, r.Scalar(n, fmt.Sprintf("nodes[%d]", i)))
	}
	return p
}

func (r *reader) systemParameters(n *strict.Node) []contract.Factor {
	const mebibytes = 1024 // in each of what memory is given in
	f := r.Object(n, "systemParameters", "cores", "memory")
	var factors []contract.Factor
	for _, p := range []struct {
		key, name string
		scale     float64
	}{{"cores", Cores, 1}, {"memory", MemoryMiB, mebibytes}} {
		factor := contract.Factor{Name: p.name}
		for i, item := range r.Items(f[p.key], "systemParameters."+p.key) {
			x, err := strconv.Atoi(item.Written())
			if err != nil || x < 1 || x > 1<<20 || slices.Contains(factor.Values, float64(x)*p.scale) {
				r.Add(item, fmt.Sprintf("systemParameters.%s[%d]", p.key, i), "", "want different whole numbers above 0, found %s", item)
			}
			factor.Values = append(factor.Values, float64(x)*p.scale)
		}
		if len(factor.Values) > 0 {
			factors = append(factors, factor)
		}
	}
	return factors
}

func (r *reader) hyperParameters(n *strict.Node) search.Space {
	var space search.Space
	for _, e := range r.Entries(n, "hyperParameters") {
		field := "hyperParameters." + e.Key
		r.parameterName(e, space)
		p := contract.Parameter{Name: e.Key, Kind: search.Choice}
		for i, item := range r.Items(&e.Value, field) {
			v := contract.ParseValue(r.Scalar(item, fmt.Sprintf("%s[%d]", field, i)))
			if slices.Contains(p.Values, v) {
				r.Add(item, fmt.Sprintf("%s[%d]", field, i), "keep one of them", "given twice")
			}
			p.Values = append(p.Values, v)
		}
		if len(p.Values) == 0 {
			r.Add(&e.Value, field, "", "want a list of values")
		}
		r.batch(&e.Value, field, p)
		space = append(space, p)
	}
	return space
}

// trialJob returns the job of trials: that of the file, with ${..} for arguments that a parameter sets. A parameter
// that the file does not mention becomes an argument.
func (b BigDL) trialJob(e Experiment) train.Spec {
	b.Arguments = slices.Clone(b.Arguments)
	job := train.Spec{
		Name: e.Name, BatchSize: 1, MaxEpochs: pipeTuneEpochs, LogFormat: train.LogBigDL, Checkpoint: bigdlSaved, Preempt: train.PreemptBySignal,
	}
	whole := func(name string) int {
		i, ok := b.argument(name)
		if !ok {
			return 0
		}
		x, err := strconv.Atoi(b.Arguments[i].Value)
		if err != nil {
			return 0
		}
		return x
	}
	job.BatchSize = max(whole(batchSize), 1)
	job.TrainingSetSize = job.BatchSize
	for _, p := range e.Space {
		word := "${" + p.Name + "}"
		if i, ok := b.argument(p.Name); ok {
			b.Arguments[i].Value = word
		} else {
			b.Arguments = append(b.Arguments, Argument{p.Name, word})
		}
		if p.Name == batchSize {
			for _, v := range p.Values {
				x, _ := v.Float()
				job.TrainingSetSize = max(job.TrainingSetSize, int(x))
			}
		}
	}
	for _, name := range []string{"endTriggerNum", "max_epoch"} {
		if i, ok := b.argument(name); ok {
			job.MaxEpochs = max(job.MaxEpochs, whole(name))
			b.Arguments[i].Value = strconv.Itoa(job.MaxEpochs)
		}
	}
	if cores := b.localCores(e.System); cores > 0 {
		job.MinDevices, job.MaxDevices = cores, cores
	}
	b.setSystem(e.System)
	// It goes on from its checkpoints, and its executors carry the job's mark: see libs/python/switchyard/spark.py.
	job.Command = append([]string{"python", "-m", "switchyard.spark"}, b.Command()...)
	return job
}

// localCores returns the processors that a program needs on the machine where it starts. It is 0 if a Spark cluster
// does the work, or no cores are given.
func (b BigDL) localCores(system []contract.Factor) int {
	i := slices.IndexFunc(system, func(f contract.Factor) bool { return f.Name == Cores })
	if i < 0 || !b.local() {
		return 0
	}
	return int(slices.Max(system[i].Values))
}

// local reports whether Spark runs in the process that starts it.
func (b BigDL) local() bool { return b.Master == "local" || strings.HasPrefix(b.Master, "local[") }

// setSystem puts ${..} into the arguments for cores and memory. The cores of an executor become the greatest common
// divisor of the numbers of cores.
func (b *BigDL) setSystem(system []contract.Factor) {
	for _, f := range system {
		switch f.Name {
		case Cores:
			b.TotalExecutorCores = "${" + Cores + "}"
			each, _ := strconv.Atoi(b.ExecutorCores)
			for _, x := range f.Values {
				each = divisor(each, int(x))
			}
			b.ExecutorCores = strconv.Itoa(max(each, 1))
		case MemoryMiB:
			b.ExecutorMemory = "${" + MemoryMiB + "}m"
		}
	}
}

// divisor returns the greatest common divisor.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
