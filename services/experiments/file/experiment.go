// Package file reads experiments: Switchyard's own YAML and, as their users have them, PipeTune's configuration and BigDL's job files. It turns them into one
// Experiment, a trial of that into a job, and what a trial reports into the result that a search compares. It reads texts, not files, and runs nothing.
package file

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Mode says what becomes of system parameters.
type Mode string

// The modes.
const (
	V1       Mode = "v1"       // left at their defaults
	V2       Mode = "v2"       // searched together with the hyper-parameters
	PipeTune Mode = "pipetune" // tuned inside each trial, between epochs
)

// Modes lists them.
func Modes() []Mode { return []Mode{V1, V2, PipeTune} }

// Experiment is what a user asks for.
type Experiment struct {
	Name string `json:"name"`
	// Group names experiments on jobs that recur and know each other's results.
	Group string `json:"group,omitempty"`
	Mode  Mode   `json:"mode"`
	// Job is that of every trial; ${name} in its command, script path and environment stands for a parameter's value. Its MaxEpochs is a whole training.
	Job       train.Spec   `json:"job"`
	Space     search.Space `json:"space"`
	Objective Objective    `json:"objective"`
	// Constraints bound what a trial may report.
	Constraints []Constraint  `json:"constraints,omitempty"`
	Search      search.Config `json:"search"`
	Budget      Budget        `json:"budget,omitzero"`
	// Concurrency is how many trials run at a time.
	Concurrency int `json:"concurrency"`
	// System are the system parameters that may be tuned.
	System []Factor `json:"system,omitempty"`
	// Costs are the parameters that change what an epoch costs; nil leaves that to a rule.
	Costs []string `json:"costs,omitzero"`
	// Profiles names the ground truth that its trials learn from and add to; empty is the yard's own. Comparisons have others, so that theirs begins empty and this
	// one stays as it is.
	Profiles string `json:"profiles,omitempty"`
	// Power says where PipeTune's users measured. The nodes' own meters hold; it is for people.
	Power *Power `json:"power,omitempty"`
}

// Factor is a system parameter with its values, the default first.
type Factor struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	// Fixed says that it cannot change while a trial runs: only mode v2 tries its values.
	Fixed bool `json:"fixed,omitempty"`
}

// Names of the system parameters.
const (
	Cores      = "cores"
	MemoryMiB  = "memory_mib"
	Devices    = "devices"
	MicroBatch = "micro_batch"
	PowerLimit = "power_limit_w"
)

func factorNames() []string { return []string{Cores, MemoryMiB, Devices, MicroBatch, PowerLimit} }

// Check says what is wrong with a system parameter that did not come from a file.
func (f Factor) Check() error {
	if !slices.Contains(factorNames(), f.Name) {
		return fmt.Errorf("system: %.80q is none of %s", f.Name, strings.Join(factorNames(), ", "))
	}
	if len(f.Values) == 0 {
		return fmt.Errorf("system.%s: want a list of values, the default first", f.Name)
	}
	for i, x := range f.Values {
		if wrongValue(f.Name, x) || slices.Contains(f.Values[:i], x) {
			return fmt.Errorf("system.%s: %g: want numbers above 0, whole unless it is a power limit, each once", f.Name, x)
		}
	}
	return nil
}

// wrongValue says whether a system parameter cannot have a value.
func wrongValue(name string, x float64) bool {
	return !(x > 0) || name != PowerLimit && x != math.Trunc(x) || x > math.MaxInt32
}

// MostSettings bounds the combinations of values of system parameters: a decision weighs them all, while other experiments wait.
const MostSettings = 1024

// Combinations is how many settings system parameters make.
func Combinations(system []Factor) float64 {
	n := 1.0
	for _, f := range system {
		n *= float64(len(f.Values))
	}
	return n
}

// Budget bounds an experiment; 0 is no bound. No new trial starts beyond it.
type Budget struct {
	// Epochs is over all trials, Hours since the start.
	Epochs int     `json:"epochs,omitempty"`
	Hours  float64 `json:"hours,omitempty"`
}

// Power is a meter outside the node agent, and the nodes that it measures.
type Power struct {
	Meter string   `json:"meter,omitempty"` // pcm or pdu
	Nodes []string `json:"nodes,omitempty"`
}

// Per is what a metric is divided by.
type Per string

// What a metric may be divided by.
const (
	PerNothing Per = ""
	PerTime    Per = "time"
	PerEnergy  Per = "energy"
)

// Objective is what a search is for.
type Objective struct {
	Metric string `json:"metric"`
	// Per divides it by the seconds or joules that the trial has trained for.
	Per      Per  `json:"per,omitempty"`
	Minimise bool `json:"minimise,omitempty"`
}

// String is the objective as the file has it.
func (o Objective) String() string {
	if o.Per == PerNothing {
		return o.Metric
	}
	return o.Metric + "/" + string(o.Per)
}

// Constraint bounds a metric.
type Constraint struct {
	Metric string   `json:"metric"`
	Min    *float64 `json:"min,omitempty"`
	Max    *float64 `json:"max,omitempty"`
}

// Metrics are those that results are made of.
func (e Experiment) Metrics() []string {
	names := []string{e.Objective.Metric}
	for _, c := range e.Constraints {
		names = append(names, c.Metric)
	}
	return names
}

// Report is what is known of a trial at the end of an epoch.
type Report struct {
	Epoch   int                `json:"epoch"`
	Metrics map[string]float64 `json:"metrics"`
	// Seconds and Joules are of all its epochs so far; 0 where they were not measured.
	Seconds float64 `json:"seconds,omitempty"`
	Joules  float64 `json:"joules,omitempty"`
}

// Result turns a report into what searches compare. The error says which metric is missing, or that there is nothing to divide by: energy that nobody measured
// is not 0.
func (e Experiment) Result(r Report) (search.Result, error) {
	result := search.Result{Epoch: r.Epoch}
	score, ok := r.Metrics[e.Objective.Metric]
	if !ok {
		return result, fmt.Errorf("epoch %d: no metric %s among %s", r.Epoch, e.Objective.Metric, listed(r.Metrics))
	}
	by := 1.0
	switch e.Objective.Per {
	case PerTime:
		by = r.Seconds
	case PerEnergy:
		by = r.Joules
	case PerNothing:
	}
	if !(by > 0) {
		return result, fmt.Errorf("epoch %d: %s: the %s was not measured", r.Epoch, e.Objective, e.Objective.Per)
	}
	if result.Score = score / by; e.Objective.Minimise {
		result.Score = -result.Score
	}
	for _, c := range e.Constraints {
		x, ok := r.Metrics[c.Metric]
		if !ok {
			return result, fmt.Errorf("epoch %d: no metric %s among %s", r.Epoch, c.Metric, listed(r.Metrics))
		}
		slack := math.Inf(1)
		if c.Min != nil {
			slack = x - *c.Min
		}
		if c.Max != nil {
			slack = min(slack, *c.Max-x)
		}
		result.Slack = append(result.Slack, slack)
	}
	return result, nil
}

func listed(metrics map[string]float64) string {
	if len(metrics) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(metrics)), ", ")
}

// SearchSpace is what the search chooses from: in mode v2 the system parameters, too.
func (e Experiment) SearchSpace() search.Space {
	space := slices.Clone(e.Space)
	if e.Mode != V2 {
		return space
	}
	for _, f := range e.System {
		p := search.Parameter{Name: f.Name, Kind: search.Choice}
		for _, x := range f.Values {
			p.Values = append(p.Values, search.Number(x))
		}
		space = append(space, p)
	}
	return space
}

// Searcher decides on the experiment's trials. A file that was read without an error has one.
func (e Experiment) Searcher() (search.Searcher, error) {
	s, err := search.New(e.SearchSpace(), e.Search)
	if err != nil {
		return nil, fmt.Errorf("search of experiment %s: %w", e.Name, err)
	}
	return s, nil
}

// Setting gives the system parameters that a trial starts with: the defaults or, in mode v2, what the search chose.
func (e Experiment) Setting(params search.Params) map[string]float64 {
	setting := map[string]float64{}
	for _, f := range e.System {
		setting[f.Name] = f.Values[0]
		if x, ok := params[f.Name].Float(); ok && e.Mode == V2 {
			setting[f.Name] = x
		}
	}
	return setting
}

// ParameterVariable is the environment variable in which a trial finds a parameter.
func ParameterVariable(name string) string { return train.ParameterVariable(name) }

// TrialJob is the job of a trial with a setting of system parameters, as Setting gives it or a later one. Parameters are in the environment (ParameterVariable)
// and wherever the job says ${name}; so are the system parameters, and ${epochs} is how far it trains (FrozenEpochs). A parameter that does not exist in
// the trial leaves nothing. Of its own accord a job takes batch_size and, unless that is tuned while trials run, the number of devices from them. MaxEpochs stays that of a whole training.
func (e Experiment) TrialJob(trial, epochs int, params search.Params, setting map[string]float64) train.Spec {
	job := e.Job
	job.Name = fmt.Sprintf("%s-%d", e.Name, trial)
	words := map[string]string{epochsWord: strconv.Itoa(epochs)}
	job.Env = maps.Clone(job.Env)
	if job.Env == nil {
		job.Env = map[string]string{}
	}
	for _, p := range e.Space {
		words[p.Name] = ""
		if v, ok := params[p.Name]; ok {
			words[p.Name] = v.String()
			job.Env[ParameterVariable(p.Name)] = v.String()
		}
	}
	for name, x := range setting {
		words[name] = search.Number(x).String()
	}
	job.Command = slices.Clone(job.Command)
	for i, word := range job.Command {
		job.Command[i] = filled(word, words)
	}
	job.ScriptPath = filled(job.ScriptPath, words)
	for name, value := range job.Env {
		job.Env[name] = filled(value, words)
	}
	if batch, ok := params[batchSize].Float(); ok {
		job.BatchSize = int(batch)
	}
	e.submit(&job, setting)
	return job
}

// texts are those of the job in which ${name} may stand, by their fields.
func (e Experiment) texts() iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for i, word := range e.Job.Command {
			if !yield(fmt.Sprintf("command[%d]", i), word) {
				return
			}
		}
		if !yield("script_path", e.Job.ScriptPath) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(e.Job.Env)) {
			if !yield("env."+name, e.Job.Env[name]) {
				return
			}
		}
	}
}

// FrozenEpochs names a field of the job that says ${epochs} where the search promotes trials, and what is wrong with that; both are empty where none does.
func (e Experiment) FrozenEpochs() (field, wrong string) {
	if e.Search.Algorithm != search.ASHA && e.Search.Algorithm != search.Hyperband {
		return "", ""
	}
	for field, text := range e.texts() {
		for name := range placeholders(text) {
			if name == epochsWord {
				return "job." + field, fmt.Sprintf("a job is submitted once: ${%s} would stay the epochs of the first rung of %s, and no trial could go on after them", epochsWord, e.Search.Algorithm)
			}
		}
	}
	return "", ""
}

// Names that have a meaning of their own.
const (
	epochsWord = "epochs"
	batchSize  = "batch_size"
)

// filled puts words where ${name} stands for them, and leaves others, which are the shell's.
func filled(text string, words map[string]string) string {
	var b strings.Builder
	for name, before := range placeholders(text) {
		b.WriteString(before)
		if word, ok := words[name]; ok {
			b.WriteString(word)
		} else if name != "" {
			b.WriteString("${" + name + "}")
		}
	}
	return b.String()
}

// placeholders gives each name in ${name} with the text before it and, at the end, no name with the rest.
func placeholders(text string) func(yield func(name, before string) bool) {
	return func(yield func(string, string) bool) {
		rest, from := text, 0
		for {
			i := strings.Index(rest[from:], "${")
			if i < 0 {
				yield("", rest)
				return
			}
			i += from
			name, after, closed := strings.Cut(rest[i+2:], "}")
			if !closed || !identifier(name) {
				from = i + 2
				continue
			}
			if !yield(name, rest[:i]) {
				return
			}
			rest, from = after, 0
		}
	}
}

// identifier says whether s may name a parameter.
func identifier(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= train.MaxIDLength
}
