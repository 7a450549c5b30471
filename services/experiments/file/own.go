package file

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Parse reads an experiment in Switchyard's own form, YAML or JSON. The error is strict.Problems: everything that is
// wrong, with lines.
func Parse(text []byte) (Experiment, error) {
	r := newReader()
	root := r.Document(text)
	if root == nil {
		return Experiment{}, r.Err()
	}
	e := r.experiment(root)
	if err := r.Err(); err != nil {
		return Experiment{}, err
	}
	if _, err := e.Searcher(); err != nil {
		r.Add(root, "", "", "%v", err)
	}
	return e, r.Err()
}

func (r *reader) experiment(root *strict.Node) Experiment {
	f := r.Object(root, "", "name", "group", "mode", "job", "space", "objective", "constraints", "search", "budget", "concurrency", "system", "costs")
	e := Experiment{
		Name: r.Scalar(f["name"], "name"), Group: r.Scalar(f["group"], "group"), Mode: strict.OneOf(r.Reader, f["mode"], "mode", PipeTune, Modes()),
		Concurrency: max(r.Whole(f["concurrency"], "concurrency", 1), 1),
	}
	for _, needed := range []string{"name", "job", "space", "objective", "search"} {
		if f[needed] == nil && root.Kind == strict.Object {
			r.Add(root, needed, "", "is missing")
		}
	}
	if f["name"] != nil && !e.Named() {
		r.Add(f["name"], "name", "", "want 1 to %d letters, digits, '-' or '_', beginning with a letter or digit; found %s", LongestName, f["name"])
	}
	e.Job = r.job(f["job"])
	e.Space = r.space(f["space"])
	e.Objective = r.objective(f["objective"])
	for i, n := range r.Items(f["constraints"], "constraints") {
		e.Constraints = append(e.Constraints, r.constraint(n, fmt.Sprintf("constraints[%d]", i)))
	}
	e.Search = r.search(f["search"], 0)
	e.Search.MaxEpochs = e.Job.MaxEpochs
	b := r.Object(f["budget"], "budget", "epochs", "hours")
	e.Budget = contract.Budget{Epochs: r.Whole(b["epochs"], "budget.epochs", 1), Hours: r.Number(b["hours"], "budget.hours")}
	if e.Budget.Hours < 0 {
		r.Add(b["hours"], "budget.hours", "", "want more than 0, found %s", b["hours"])
	}
	e.System = r.system(f["system"])
	e.Costs = r.costs(f["costs"], e.Space)
	if f["job"] != nil {
		r.placeholders(f["job"], e)
	}
	return e
}

// LongestName bounds the name of an experiment, which becomes a part of the ids of its trials.
const LongestName = train.MaxIDLength - 8

// Named reports whether trials can have ids made of the experiment's name.
func (e Experiment) Named() bool {
	_, err := train.ParseJobID(e.Name)
	return err == nil && len(e.Name) <= LongestName
}

// job reads the job of trials as strictly as a submission is read.
func (r *reader) job(n *strict.Node) train.Spec {
	if n == nil {
		return train.Spec{}
	}
	before := r.Count()
	spec := event.BindSpec(r.Reader, n, "job")
	if r.Count() == before && spec.MaxEpochs < 1 {
		r.Add(n, "job.max_epochs", "", "want the epochs of a whole training, 1 or more")
	}
	return spec
}

// space reads parameters. A list alone is a choice.
func (r *reader) space(n *strict.Node) search.Space {
	var space search.Space
	for _, e := range r.Entries(n, "space") {
		field := "space." + e.Key
		r.parameterName(e, space)
		before := r.Count()
		p := r.parameter(&e.Value, field)
		p.Name = e.Key
		r.batch(&e.Value, field, p)
		if err := append(slices.Clone(space), p).Check(); err != nil && r.Count() == before {
			r.Add(&e.Value, field, "", "%s", strings.TrimPrefix(err.Error(), "parameter "+p.Name+": "))
			continue // later ones are not checked against it
		}
		if r.Count() == before {
			space = append(space, p)
		}
	}
	return space
}

func (r *reader) parameterName(key *strict.Entry, space search.Space) {
	name := key.Key
	switch {
	case !train.ParameterName(name):
		r.AddAt(key.Position, strict.CodeValue, "space", "", "parameter %.80q: want letters, digits and '_', not beginning with a digit", name)
	case name == epochsWord || slices.Contains(train.SettingNames(), name):
		r.AddAt(key.Position, strict.CodeValue, "space."+name, "", "has a meaning of its own: choose another name, or give it in system")
	case slices.ContainsFunc(space, func(p contract.Parameter) bool { return strings.EqualFold(p.Name, name) }):
		r.AddAt(key.Position, strict.CodeValue, "space."+name, "", "differs from another name in upper and lower case alone")
	}
}

func (r *reader) parameter(n *strict.Node, field string) contract.Parameter {
	if n.Kind == strict.List {
		return contract.Parameter{Kind: search.Choice, Values: r.values(n, field)}
	}
	known := []string{"when"}
	for _, k := range search.Kinds() {
		known = append(known, string(k))
	}
	var p contract.Parameter
	f := r.Object(n, field, known...)
	for _, k := range search.Kinds() {
		v := f[string(k)]
		if v == nil {
			continue
		}
		if p.Kind != "" {
			r.Add(v, field, "", "is both %s and %s", p.Kind, k)
		}
		p.Kind = k
		if k == search.Choice {
			p.Values = r.values(v, field+".choice")
			continue
		}
		ends := r.Items(v, strict.Join(field, string(k)))
		if len(ends) != 2 {
			r.Add(v, strict.Join(field, string(k)), "", "want a range [low, high]")
			continue
		}
		p.Low, p.High = r.Number(ends[0], field), r.Number(ends[1], field)
	}
	if p.Kind == "" && n.Kind == strict.Object {
		r.Add(n, field, "or a list of values", "want one of choice, uniform, log_uniform, int, log_int")
	}
	for i, e := range r.Entries(f["when"], field+".when") {
		if i > 0 {
			r.AddAt(e.Position, strict.CodeValue, field+".when", "", "want one parameter")
			continue
		}
		p.When = &contract.Condition{Parameter: e.Key, In: r.values(&e.Value, field+".when."+e.Key)}
	}
	return p
}

// batch checks values of batch_size, which becomes the batch size of the job.
func (r *reader) batch(n *strict.Node, field string, p contract.Parameter) {
	if p.Name != batchSize || p.Kind == "" {
		return
	}
	whole := func(x float64) bool { return x >= 1 && x <= math.MaxInt32 && x == math.Trunc(x) }
	ok := p.Kind == search.Int || p.Kind == search.LogInt
	if p.Kind == search.Choice {
		ok = !slices.ContainsFunc(p.Values, func(v contract.Value) bool {
			x, number := v.Float()
			return !number || !whole(x)
		})
	} else if ok {
		ok = whole(p.Low) && whole(p.High)
	}
	if !ok {
		r.Add(n, field, "", "want whole numbers of at least 1")
	}
}

// objective reads "accuracy", "accuracy/time" or {metric: accuracy/time, goal: maximise}.
func (r *reader) objective(n *strict.Node) contract.Objective {
	if n == nil {
		return contract.Objective{}
	}
	metric, goal := n, (*strict.Node)(nil)
	if !n.Scalar() {
		f := r.Object(n, "objective", "metric", "goal")
		metric, goal = f["metric"], f["goal"]
		if metric == nil {
			r.Add(n, "objective.metric", "", "is missing")
			return contract.Objective{}
		}
	}
	name, per, divided := strings.Cut(r.Scalar(metric, "objective"), "/")
	o := contract.Objective{Metric: name, Per: contract.Per(per)}
	if name == "" || divided && o.Per != contract.PerTime && o.Per != contract.PerEnergy {
		r.Add(metric, "objective", strict.Near(per, []string{string(contract.PerTime), string(contract.PerEnergy)}), "want METRIC, METRIC/time or METRIC/energy; found %s", metric)
	}
	usual := "maximise"
	if train.LowerIsBetter(name) {
		usual = "minimise"
	}
	o.Minimise = strict.OneOf(r.Reader, goal, "objective.goal", usual, []string{"maximise", "minimise"}) == "minimise"
	if o.Minimise && divided {
		r.Add(n, "objective", "", "what is to be small cannot be divided by time or energy: the longest training would be the best")
	}
	return o
}

func (r *reader) constraint(n *strict.Node, field string) contract.Constraint {
	f := r.Object(n, field, "metric", "min", "max")
	c := contract.Constraint{Metric: r.Scalar(f["metric"], field+".metric")}
	bound := func(key string) *float64 {
		if f[key] == nil {
			return nil
		}
		x := r.Number(f[key], field+"."+key)
		return &x
	}
	c.Min, c.Max = bound("min"), bound("max")
	if c.Metric == "" || c.Min == nil && c.Max == nil {
		r.Add(n, field, "", "want metric, and min or max or both")
	}
	return c
}

// search reads how to search; trials is their number if n has none, 0 if it must say so.
func (r *reader) search(n *strict.Node, trials int) contract.SearchConfig {
	f := r.Object(n, "search", "algorithm", "sampler", "trials", "seed", "min_epochs", "reduction", "levels", "median_stopping")
	c := contract.SearchConfig{
		Algorithm: strict.OneOf(r.Reader, f["algorithm"], "search.algorithm", search.ASHA, search.Algorithms()),
		Sampler:   strict.OneOf(r.Reader, f["sampler"], "search.sampler", "", []contract.SearchAlgorithm{search.Random, search.GP}),
		Trials:    cmp.Or(r.Whole(f["trials"], "search.trials", 1), trials), Seed: uint64(r.Whole(f["seed"], "search.seed", 0)),
		MinEpochs: r.Whole(f["min_epochs"], "search.min_epochs", 1), Reduction: r.Whole(f["reduction"], "search.reduction", 2),
		Levels: r.Whole(f["levels"], "search.levels", 1),
	}
	if n != nil && n.Kind == strict.Object && f["trials"] == nil && trials == 0 {
		r.Add(n, "search.trials", "", "is missing")
	}
	if m := f["median_stopping"]; m != nil {
		g := r.Object(m, "search.median_stopping", "grace_epochs", "trials")
		c.Median = &contract.MedianStopping{
			GraceEpochs: r.Whole(g["grace_epochs"], "search.median_stopping.grace_epochs", 1), Trials: r.Whole(g["trials"], "search.median_stopping.trials", 1),
		}
	}
	return c
}

func (r *reader) system(n *strict.Node) []contract.Factor {
	f := r.Object(n, "system", train.SettingNames()...)
	var factors []contract.Factor
	for _, name := range train.SettingNames() {
		field := "system." + name
		factor := contract.Factor{Name: name}
		for i, item := range r.Items(f[name], field) {
			x := r.Number(item, fmt.Sprintf("%s[%d]", field, i))
			switch {
			case wrongValue(name, x):
				r.Add(item, fmt.Sprintf("%s[%d]", field, i), "", "want a number above 0, whole unless it is a power limit; found %s", item)
			case slices.Contains(factor.Values, x):
				r.Add(item, fmt.Sprintf("%s[%d]", field, i), "keep one of them", "given twice")
			}
			factor.Values = append(factor.Values, x)
		}
		if f[name] != nil && len(factor.Values) == 0 {
			r.Add(f[name], field, "", "want a list of values, the default first")
		}
		if len(factor.Values) > 0 {
			factors = append(factors, factor)
		}
	}
	if all := Combinations(factors); all > MostSettings {
		r.Add(n, "system", "", "%g combinations of values: want at most %d", all, MostSettings)
	}
	return factors
}

// costs reads names of parameters. An empty list says that no parameter changes the cost of an epoch.
func (r *reader) costs(n *strict.Node, space search.Space) []string {
	if n == nil {
		return nil
	}
	var known []string
	for _, p := range space {
		known = append(known, p.Name)
	}
	names := []string{}
	for i, item := range r.Items(n, "costs") {
		names = append(names, strict.OneOf(r.Reader, item, fmt.Sprintf("costs[%d]", i), "", known))
	}
	return names
}

// placeholders checks that each ${name} in the job is a parameter. Names with capital letters are left to the shell.
func (r *reader) placeholders(n *strict.Node, e Experiment) {
	known := []string{epochsWord}
	for _, p := range e.Space {
		known = append(known, p.Name)
	}
	for _, f := range e.System {
		known = append(known, f.Name)
	}
	for field, text := range e.texts() {
		for name := range train.Placeholders(text) {
			if name != "" && name == strings.ToLower(name) && !slices.Contains(known, name) {
				r.Add(n.Find(field), "job."+field, strict.Near(name, known), "${%s} stands for no parameter", name)
			}
		}
	}
	if field, wrong := e.FrozenDevices(); wrong != "" {
		r.Add(n.Find(field), "job."+field, "", "%s", wrong)
	}
	if field, wrong := e.FrozenEpochs(); wrong != "" {
		hint := "let the code train max_epochs and ask the job API whether to leave, or search with random, grid or gp"
		r.Add(n.Find(strings.TrimPrefix(field, "job.")), field, hint, "%s", wrong)
	}
}
