package contract

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ExperimentMode is how system parameters are chosen.
type ExperimentMode string

// The modes.
const (
	ModeV1       ExperimentMode = "v1"       // left at their defaults
	ModeV2       ExperimentMode = "v2"       // searched together with the hyper-parameters
	ModePipeTune ExperimentMode = "pipetune" // tuned inside each trial, between epochs
)

// Experiment is what a user asks for.
type Experiment struct {
	Name string `json:"name"`
	// Group names experiments on jobs that recur. They use each other's results.
	Group string         `json:"group,omitempty"`
	Mode  ExperimentMode `json:"mode"`
	// Job is the job of every trial. ${name} in its command, script path and environment stands for a parameter's
	// value. Its MaxEpochs is a whole training.
	Job       train.Spec  `json:"job"`
	Space     []Parameter `json:"space"`
	Objective Objective   `json:"objective"`
	// Constraints bound what a trial may report.
	Constraints []Constraint `json:"constraints,omitempty"`
	Search      SearchConfig `json:"search"`
	Budget      Budget       `json:"budget,omitzero"`
	// Concurrency is the number of trials that run at a time.
	Concurrency int `json:"concurrency"`
	// System are the system parameters that may be tuned.
	System []Factor `json:"system,omitempty"`
	// Costs are the parameters that change what an epoch costs; nil leaves that to a rule.
	Costs []string `json:"costs,omitzero"`
	// Profiles names the ground truth that its trials learn from and add to; empty is the cluster's own. A comparison
	// has another one, so that it begins empty and leaves the cluster's as it is.
	Profiles string `json:"profiles,omitempty"`
	// Power says on which nodes the trials' work is done, if not where their jobs run, and what measures there.
	Power *PowerMeter `json:"power,omitempty"`
}

// Factor is a system parameter with its values, the default first.
type Factor struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	// Fixed says that it cannot change while a trial runs: only mode v2 tries its values.
	Fixed bool `json:"fixed,omitempty"`
	// AtStart says that only the program applies it, as its command line says, such as the cores of a Spark cluster's
	// executors: another value needs a restart, and is none of the job's own resources.
	AtStart bool `json:"at_start,omitempty"`
}

// Budget bounds an experiment; 0 is no bound. No new trial starts beyond it.
type Budget struct {
	// Epochs is over all trials, Hours since the start.
	Epochs int     `json:"epochs,omitempty"`
	Hours  float64 `json:"hours,omitempty"`
}

// PowerMeter names nodes and the meter that each must have.
type PowerMeter struct {
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

// String is the objective as an experiment's file writes it.
func (o Objective) String() string {
	if o.Per == PerNothing {
		return o.Metric
	}
	return o.Metric + "/" + string(o.Per)
}

// Value is the objective after an epoch with these metrics, with the user's sign; seconds and joules are those of the
// training so far. known is false if the metric was not reported, or what it is divided by was not measured.
func (o Objective) Value(metrics map[string]float64, seconds, joules float64) (value float64, known bool) {
	value, known = metrics[o.Metric]
	by := 1.0
	switch o.Per {
	case PerTime:
		by = seconds
	case PerEnergy:
		by = joules
	case PerNothing:
	}
	return value / by, known && by > 0
}

// Constraint bounds a metric.
type Constraint struct {
	Metric string   `json:"metric"`
	Min    *float64 `json:"min,omitempty"`
	Max    *float64 `json:"max,omitempty"`
}

// Slack is the margin by which a value of the metric is within the bounds; below 0 it is outside.
func (c Constraint) Slack(x float64) float64 {
	slack := math.Inf(1)
	if c.Min != nil {
		slack = x - *c.Min
	}
	if c.Max != nil {
		slack = min(slack, *c.Max-x)
	}
	return slack
}

// ParameterKind says which values a parameter may have.
type ParameterKind string

// The kinds. Both ends of a range belong to it.
const (
	KindChoice     ParameterKind = "choice"      // one of Values
	KindUniform    ParameterKind = "uniform"     // any number from Low to High
	KindLogUniform ParameterKind = "log_uniform" // likewise, each decade as likely as another
	KindInt        ParameterKind = "int"         // a whole number from Low to High
	KindLogInt     ParameterKind = "log_int"     // likewise, each decade as likely as another
)

// Parameter is one dimension of a search space.
type Parameter struct {
	Name   string        `json:"name"`
	Kind   ParameterKind `json:"kind"`
	Values []Value       `json:"values,omitempty"` // of a choice; ordered if all are numbers
	Low    float64       `json:"low,omitempty"`
	High   float64       `json:"high,omitempty"`
	When   *Condition    `json:"when,omitempty"`
}

// Condition restricts a parameter to trials in which an earlier one, a choice, has one of some values.
type Condition struct {
	Parameter string  `json:"parameter"`
	In        []Value `json:"in"`
}

// SearchAlgorithm names a way to search.
type SearchAlgorithm string

// The algorithms.
const (
	SearchRandom    SearchAlgorithm = "random"
	SearchGrid      SearchAlgorithm = "grid"
	SearchGP        SearchAlgorithm = "gp"        // Bayesian optimisation on Gaussian processes
	SearchHyperband SearchAlgorithm = "hyperband" // Li et al., JMLR 2018
	SearchASHA      SearchAlgorithm = "asha"      // Li et al., MLSys 2020
)

// SearchConfig says how to search.
type SearchConfig struct {
	Algorithm SearchAlgorithm `json:"algorithm"`
	// Sampler chooses the points of hyperband and asha: random (default) or gp.
	Sampler SearchAlgorithm `json:"sampler,omitempty"`
	// Trials is the largest number of trials that are started.
	Trials int `json:"trials"`
	// Seed makes two searches differ.
	Seed uint64 `json:"seed"`
	// MaxEpochs is the number of epochs of a whole training, MinEpochs (default 1) the least number that hyperband and
	// asha give each trial.
	MaxEpochs int `json:"max_epochs"`
	MinEpochs int `json:"min_epochs,omitempty"`
	// Reduction is the number of trials of which hyperband and asha promote one (default 3).
	Reduction int `json:"reduction,omitempty"`
	// Levels is the number of values of a range in the grid (default 4).
	Levels int `json:"levels,omitempty"`
	// Median, if set, stops running trials that fall behind the others.
	Median *MedianStopping `json:"median_stopping,omitempty"`
}

// MedianStopping is the rule of Google Vizier (KDD 2017): a running trial stops if its best score so far is below the
// median of the others' average up to the same epoch.
type MedianStopping struct {
	// GraceEpochs is the number of epochs that every trial trains (default 1).
	GraceEpochs int `json:"grace_epochs,omitempty"`
	// Trials is the number of others that must have come as far (default 3).
	Trials int `json:"trials,omitempty"`
}
