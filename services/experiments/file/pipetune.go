package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// What PipeTune does that its configuration does not say: trainings of 5 epochs, one trial after the other. Of its searches random search is the one for programs that
// cannot pause: a BigDL program trains as many epochs as its arguments say.
const (
	pipeTuneEpochs = 5
	pipeTuneTrials = 16
)

// Source is what a configuration refers to.
type Source struct {
	// Open reads the file at a path, as the configuration has it.
	Open func(path string) ([]byte, error)
	// Home stands for $HOME.
	Home string
}

// Read reads an experiment in whichever form the text has: Switchyard's own, or PipeTune's (JSON with bigdlConf).
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
			return Experiment{}, errors.New("this is one job for BigDL, and says nothing of what to search: want a configuration that names it as bigdlConf")
		}
	}
	return Parse(text)
}

// ParsePipeTune reads PipeTune's configuration and the BigDL file that it names. Hyper-parameters are choices, memory is in GiB, the objective is accuracy.
func ParsePipeTune(text []byte, s Source) (Experiment, error) {
	r := &reader{}
	root := r.document(text)
	if root == nil {
		return Experiment{}, r.err()
	}
	f := r.object(root, "", "bigdlConf", "powerMeter", "nodes", "systemParameters", "hyperParameters")
	file := r.text(f["bigdlConf"], "bigdlConf")
	e := Experiment{
		Name: trialName(file), Mode: PipeTune, Objective: Objective{Metric: "accuracy"}, Concurrency: 1,
		Power: r.power(f["powerMeter"], f["nodes"]), System: r.systemParameters(f["systemParameters"]), Space: r.hyperParameters(f["hyperParameters"]),
	}
	for _, needed := range []string{"bigdlConf", "hyperParameters"} {
		if f[needed] == nil && root.Kind == yaml.MappingNode {
			r.add(root, needed, "", "is missing")
		}
	}
	if err := r.err(); err != nil {
		return Experiment{}, err
	}
	body, err := s.Open(file)
	if err != nil {
		r.add(f["bigdlConf"], "bigdlConf", "", "%v", err)
		return Experiment{}, r.err()
	}
	job, err := ParseBigDL(body, s.Home)
	if err != nil {
		return Experiment{}, fmt.Errorf("%s: %w", file, err)
	}
	for i, f := range e.System {
		// Memory is given to Spark at its start, and so are cores of a cluster; those of the machine are its threads'.
		e.System[i].Fixed = f.Name != Cores || !job.local()
	}
	e.Job = job.trialJob(e)
	trials := pipeTuneTrials
	if all, ok := e.Space.Finite(trials); ok {
		trials = len(all)
	}
	e.Search = search.Config{Algorithm: search.Random, Trials: trials, MaxEpochs: e.Job.MaxEpochs}
	if _, err := e.Searcher(); err != nil {
		r.add(root, "hyperParameters", "", "%v", err)
	}
	return e, r.err()
}

// trialName makes a name out of that of the BigDL file.
func trialName(file string) string {
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	if !(Experiment{Name: name}).Named() {
		return "bigdl"
	}
	return name
}

func (r *reader) power(meter, nodes *yaml.Node) *Power {
	if meter == nil && nodes == nil {
		return nil
	}
	p := &Power{Meter: oneOf(r, meter, "powerMeter", "", []string{"pcm", "pdu"})}
	for i, n := range r.items(nodes, "nodes") {
		p.Nodes = append(p.Nodes, r.text(n, fmt.Sprintf("nodes[%d]", i)))
	}
	return p
}

func (r *reader) systemParameters(n *yaml.Node) []Factor {
	const mebibytes = 1024 // in each of what memory is given in
	f := r.object(n, "systemParameters", "cores", "memory")
	var factors []Factor
	for _, p := range []struct {
		key, name string
		scale     float64
	}{{"cores", Cores, 1}, {"memory", MemoryMiB, mebibytes}} {
		factor := Factor{Name: p.name}
		for i, item := range r.items(f[p.key], "systemParameters."+p.key) {
			x, err := strconv.Atoi(item.Value)
			if err != nil || x < 1 || x > 1<<20 || slices.Contains(factor.Values, float64(x)*p.scale) {
				r.add(item, fmt.Sprintf("systemParameters.%s[%d]", p.key, i), "", "want different whole numbers above 0, found %s", kind(item))
			}
			factor.Values = append(factor.Values, float64(x)*p.scale)
		}
		if len(factor.Values) > 0 {
			factors = append(factors, factor)
		}
	}
	return factors
}

func (r *reader) hyperParameters(n *yaml.Node) search.Space {
	var space search.Space
	for _, e := range r.entries(n, "hyperParameters") {
		field := "hyperParameters." + e.key.Value
		r.parameterName(e.key, space)
		p := search.Parameter{Name: e.key.Value, Kind: search.Choice}
		for i, item := range r.items(e.value, field) {
			v := search.ParseValue(r.text(item, fmt.Sprintf("%s[%d]", field, i)))
			if slices.Contains(p.Values, v) {
				r.add(item, fmt.Sprintf("%s[%d]", field, i), "keep one of them", "given twice")
			}
			p.Values = append(p.Values, v)
		}
		if len(p.Values) == 0 {
			r.add(e.value, field, "", "want a list of values")
		}
		r.batch(e.value, field, p)
		space = append(space, p)
	}
	return space
}

// trialJob is the job of trials: the file's, with ${..} where a parameter sets an argument. A parameter that the file does not mention becomes an argument.
func (b BigDL) trialJob(e Experiment) train.Spec {
	b.Arguments = slices.Clone(b.Arguments)
	job := train.Spec{Name: e.Name, BatchSize: 1, MaxEpochs: pipeTuneEpochs, LogFormat: train.LogBigDL}
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
			b.Arguments[i].Value = "${" + epochsWord + "}"
		}
	}
	if cores := b.localCores(e.System); cores > 0 {
		job.MinDevices, job.MaxDevices = cores, cores
	}
	b.setSystem(e.System)
	job.Command = b.Command()
	return job
}

// localCores is how many processors a program needs that runs on the machine where it was started; 0 where its work is done by a cluster of Spark's own, or nothing is
// said of cores.
func (b BigDL) localCores(system []Factor) int {
	i := slices.IndexFunc(system, func(f Factor) bool { return f.Name == Cores })
	if i < 0 || !b.local() {
		return 0
	}
	return int(slices.Max(system[i].Values))
}

// local says whether Spark runs in the process that was started.
func (b BigDL) local() bool { return b.Master == "local" || strings.HasPrefix(b.Master, "local[") }

// setSystem puts ${..} where Spark is told of cores and memory. Cores of an executor stay as many as divide every number of cores.
func (b *BigDL) setSystem(system []Factor) {
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

// divisor is the greatest common one.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
