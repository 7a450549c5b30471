package file

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Parse reads an experiment in Switchyard's own form, YAML or JSON. The error is Problems: everything that is wrong, at once, with lines.
func Parse(text []byte) (Experiment, error) {
	r := &reader{}
	root := r.document(text)
	if root == nil {
		return Experiment{}, r.err()
	}
	e := r.experiment(root)
	if err := r.err(); err != nil {
		return Experiment{}, err
	}
	if _, err := e.Searcher(); err != nil {
		r.add(root, "", "", "%v", err)
	}
	return e, r.err()
}

func (r *reader) experiment(root *yaml.Node) Experiment {
	f := r.object(root, "", "name", "group", "mode", "job", "space", "objective", "constraints", "search", "budget", "concurrency", "system", "costs")
	e := Experiment{
		Name: r.text(f["name"], "name"), Group: r.text(f["group"], "group"), Mode: oneOf(r, f["mode"], "mode", PipeTune, Modes()),
		Concurrency: max(r.whole(f["concurrency"], "concurrency", 1), 1),
	}
	for _, needed := range []string{"name", "job", "space", "objective", "search"} {
		if f[needed] == nil && root.Kind == yaml.MappingNode {
			r.add(root, needed, "", "is missing")
		}
	}
	if f["name"] != nil && !e.Named() {
		r.add(f["name"], "name", "", "want 1 to %d letters, digits, '-' or '_', beginning with a letter or digit; found %s", LongestName, kind(f["name"]))
	}
	e.Job = r.job(f["job"])
	e.Space = r.space(f["space"])
	e.Objective = r.objective(f["objective"])
	for i, n := range r.items(f["constraints"], "constraints") {
		e.Constraints = append(e.Constraints, r.constraint(n, fmt.Sprintf("constraints[%d]", i)))
	}
	e.Search = r.search(f["search"])
	e.Search.MaxEpochs = e.Job.MaxEpochs
	b := r.object(f["budget"], "budget", "epochs", "hours")
	e.Budget = Budget{r.whole(b["epochs"], "budget.epochs", 1), r.number(b["hours"], "budget.hours")}
	if e.Budget.Hours < 0 {
		r.add(b["hours"], "budget.hours", "", "want more than 0, found %s", kind(b["hours"]))
	}
	e.System = r.system(f["system"])
	e.Costs = r.costs(f["costs"], e.Space)
	if f["job"] != nil {
		r.placeholders(f["job"], e)
	}
	return e
}

// LongestName is how many characters the name of an experiment has at most: they leave room for the number of a trial.
const LongestName = train.MaxIDLength - 8

// Named says whether the experiment has a name that its trials can be called by.
func (e Experiment) Named() bool {
	_, err := train.ParseJobID(e.Name)
	return err == nil && len(e.Name) <= LongestName
}

// job reads the job of trials as strictly as a submission is read.
func (r *reader) job(n *yaml.Node) train.Spec {
	if n == nil {
		return train.Spec{}
	}
	var tree any
	if err := n.Decode(&tree); err != nil {
		r.yamlError(err)
		return train.Spec{}
	}
	body, err := json.Marshal(tree)
	if err != nil {
		r.add(n, "job", "", "want an object with texts for keys")
		return train.Spec{}
	}
	spec, reasons := event.DecodeSubmission(body)
	for _, reason := range reasons {
		r.add(find(n, reason.Field), joined("job", reason.Field), reason.Hint, "%s", reason.Message)
	}
	if len(reasons) == 0 && spec.MaxEpochs < 1 {
		r.add(n, "job.max_epochs", "", "want the epochs of a whole training, 1 or more")
	}
	return spec
}

// space reads parameters. A list alone is a choice.
func (r *reader) space(n *yaml.Node) search.Space {
	var space search.Space
	for _, e := range r.entries(n, "space") {
		field := "space." + e.key.Value
		r.parameterName(e.key, space)
		before := len(r.problems)
		p := r.parameter(e.value, field)
		p.Name = e.key.Value
		r.batch(e.value, field, p)
		if err := append(slices.Clone(space), p).Check(); err != nil && len(r.problems) == before {
			r.add(e.value, field, "", "%s", strings.TrimPrefix(err.Error(), "parameter "+p.Name+": "))
			continue // later ones are not checked against it
		}
		if len(r.problems) == before {
			space = append(space, p)
		}
	}
	return space
}

func (r *reader) parameterName(key *yaml.Node, space search.Space) {
	name := key.Value
	switch {
	case !identifier(name):
		r.add(key, "space", "", "parameter %.80q: want letters, digits and '_', not beginning with a digit", name)
	case name == epochsWord || slices.Contains(factorNames(), name):
		r.add(key, "space."+name, "", "has a meaning of its own: choose another name, or give it in system")
	case slices.ContainsFunc(space, func(p search.Parameter) bool { return strings.EqualFold(p.Name, name) }):
		r.add(key, "space."+name, "", "differs from another name in upper and lower case alone")
	}
}

func (r *reader) parameter(n *yaml.Node, field string) search.Parameter {
	if n.Kind == yaml.SequenceNode {
		return search.Parameter{Kind: search.Choice, Values: r.values(n, field)}
	}
	known := []string{"when"}
	for _, k := range search.Kinds() {
		known = append(known, string(k))
	}
	var p search.Parameter
	f := r.object(n, field, known...)
	for _, k := range search.Kinds() {
		v := f[string(k)]
		if v == nil {
			continue
		}
		if p.Kind != "" {
			r.add(v, field, "", "is both %s and %s", p.Kind, k)
		}
		p.Kind = k
		if k == search.Choice {
			p.Values = r.values(v, field+".choice")
			continue
		}
		ends := r.items(v, joined(field, string(k)))
		if len(ends) != 2 {
			r.add(v, joined(field, string(k)), "", "want a range [low, high]")
			continue
		}
		p.Low, p.High = r.number(ends[0], field), r.number(ends[1], field)
	}
	if p.Kind == "" && n.Kind == yaml.MappingNode {
		r.add(n, field, "or a list of values", "want one of choice, uniform, log_uniform, int, log_int")
	}
	for i, e := range r.entries(f["when"], field+".when") {
		if i > 0 {
			r.add(e.key, field+".when", "", "want one parameter")
			continue
		}
		p.When = &search.Condition{Parameter: e.key.Value, In: r.values(e.value, field+".when."+e.key.Value)}
	}
	return p
}

// batch checks values of batch_size, which the job takes as its own.
func (r *reader) batch(n *yaml.Node, field string, p search.Parameter) {
	if p.Name != batchSize || p.Kind == "" {
		return
	}
	whole := func(x float64) bool { return x >= 1 && x <= math.MaxInt32 && x == math.Trunc(x) }
	ok := p.Kind == search.Int || p.Kind == search.LogInt
	if p.Kind == search.Choice {
		ok = !slices.ContainsFunc(p.Values, func(v search.Value) bool {
			x, number := v.Float()
			return !number || !whole(x)
		})
	} else if ok {
		ok = whole(p.Low) && whole(p.High)
	}
	if !ok {
		r.add(n, field, "", "want whole numbers of at least 1")
	}
}

// objective reads "accuracy", "accuracy/time" or {metric: accuracy/time, goal: maximise}.
func (r *reader) objective(n *yaml.Node) Objective {
	if n == nil {
		return Objective{}
	}
	metric, goal := n, (*yaml.Node)(nil)
	if n.Kind != yaml.ScalarNode {
		f := r.object(n, "objective", "metric", "goal")
		metric, goal = f["metric"], f["goal"]
		if metric == nil {
			r.add(n, "objective.metric", "", "is missing")
			return Objective{}
		}
	}
	name, per, divided := strings.Cut(r.text(metric, "objective"), "/")
	o := Objective{Metric: name, Per: Per(per)}
	if name == "" || divided && o.Per != PerTime && o.Per != PerEnergy {
		r.add(metric, "objective", near(per, []string{string(PerTime), string(PerEnergy)}), "want METRIC, METRIC/time or METRIC/energy; found %s", kind(metric))
	}
	usual := "maximise"
	if strings.HasSuffix(name, "loss") || strings.HasSuffix(name, "error") {
		usual = "minimise"
	}
	o.Minimise = oneOf(r, goal, "objective.goal", usual, []string{"maximise", "minimise"}) == "minimise"
	if o.Minimise && divided {
		r.add(n, "objective", "", "what is to be small cannot be divided by time or energy: the longest training would be the best")
	}
	return o
}

func (r *reader) constraint(n *yaml.Node, field string) Constraint {
	f := r.object(n, field, "metric", "min", "max")
	c := Constraint{Metric: r.text(f["metric"], field+".metric")}
	for key, bound := range map[string]**float64{"min": &c.Min, "max": &c.Max} {
		if f[key] != nil {
			x := r.number(f[key], field+"."+key)
			*bound = &x
		}
	}
	if c.Metric == "" || c.Min == nil && c.Max == nil {
		r.add(n, field, "", "want metric, and min or max or both")
	}
	return c
}

func (r *reader) search(n *yaml.Node) search.Config {
	f := r.object(n, "search", "algorithm", "sampler", "trials", "seed", "min_epochs", "reduction", "levels", "median_stopping")
	c := search.Config{
		Algorithm: oneOf(r, f["algorithm"], "search.algorithm", search.ASHA, search.Algorithms()),
		Sampler:   oneOf(r, f["sampler"], "search.sampler", "", []search.Algorithm{search.Random, search.GP}),
		Trials:    r.whole(f["trials"], "search.trials", 1), Seed: uint64(r.whole(f["seed"], "search.seed", 0)),
		MinEpochs: r.whole(f["min_epochs"], "search.min_epochs", 1), Reduction: r.whole(f["reduction"], "search.reduction", 2),
		Levels: r.whole(f["levels"], "search.levels", 1),
	}
	if n != nil && n.Kind == yaml.MappingNode && f["trials"] == nil {
		r.add(n, "search.trials", "", "is missing")
	}
	if m := f["median_stopping"]; m != nil {
		g := r.object(m, "search.median_stopping", "grace_epochs", "trials")
		c.Median = &search.Median{
			GraceEpochs: r.whole(g["grace_epochs"], "search.median_stopping.grace_epochs", 1), Trials: r.whole(g["trials"], "search.median_stopping.trials", 1),
		}
	}
	return c
}

func (r *reader) system(n *yaml.Node) []Factor {
	f := r.object(n, "system", factorNames()...)
	var factors []Factor
	for _, name := range factorNames() {
		field := "system." + name
		factor := Factor{Name: name}
		for i, item := range r.items(f[name], field) {
			x := r.number(item, fmt.Sprintf("%s[%d]", field, i))
			switch {
			case wrongValue(name, x):
				r.add(item, fmt.Sprintf("%s[%d]", field, i), "", "want a number above 0, whole unless it is a power limit; found %s", kind(item))
			case slices.Contains(factor.Values, x):
				r.add(item, fmt.Sprintf("%s[%d]", field, i), "keep one of them", "given twice")
			}
			factor.Values = append(factor.Values, x)
		}
		if f[name] != nil && len(factor.Values) == 0 {
			r.add(f[name], field, "", "want a list of values, the default first")
		}
		if len(factor.Values) > 0 {
			factors = append(factors, factor)
		}
	}
	if all := Combinations(factors); all > MostSettings {
		r.add(n, "system", "", "%g combinations of values: want at most %d", all, MostSettings)
	}
	return factors
}

// costs reads names of parameters; an empty list says that none of them changes what an epoch costs.
func (r *reader) costs(n *yaml.Node, space search.Space) []string {
	if n == nil {
		return nil
	}
	var known []string
	for _, p := range space {
		known = append(known, p.Name)
	}
	names := []string{}
	for i, item := range r.items(n, "costs") {
		names = append(names, oneOf(r, item, fmt.Sprintf("costs[%d]", i), "", known))
	}
	return names
}

// placeholders checks that what stands for a value in the job is a parameter. Names with capital letters are left to the shell.
func (r *reader) placeholders(n *yaml.Node, e Experiment) {
	known := []string{epochsWord}
	for _, p := range e.Space {
		known = append(known, p.Name)
	}
	for _, f := range e.System {
		known = append(known, f.Name)
	}
	for field, text := range e.texts() {
		for name := range placeholders(text) {
			if name != "" && name == strings.ToLower(name) && !slices.Contains(known, name) {
				r.add(find(n, field), "job."+field, near(name, known), "${%s} stands for no parameter", name)
			}
		}
	}
	if field, wrong := e.FrozenDevices(); wrong != "" {
		r.add(find(n, field), "job."+field, "", "%s", wrong)
	}
	if field, wrong := e.FrozenEpochs(); wrong != "" {
		hint := "let the code train max_epochs and ask the job API whether to leave, or search with random, grid or gp"
		r.add(find(n, strings.TrimPrefix(field, "job.")), field, hint, "%s", wrong)
	}
}
