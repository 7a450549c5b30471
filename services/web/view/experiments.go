package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ExperimentLine is an experiment in a list.
type ExperimentLine struct {
	// ID is its key, Name what its user calls it.
	ID   string `json:"id"`
	Name string `json:"name"`
	// User is who submitted it.
	User string `json:"user,omitempty"`
	// Mode says how system parameters are chosen, Algorithm how the search goes.
	Mode      contract.ExperimentMode  `json:"mode"`
	Algorithm contract.SearchAlgorithm `json:"algorithm"`
	// State is how far it has come, Message why it ended.
	State   contract.ExperimentState `json:"state"`
	Message string                   `json:"message,omitempty"`
	// Objective is what the search is for; with Minimise, less of it is better.
	Objective string `json:"objective"`
	Minimise  bool   `json:"minimise,omitempty"`
	// Trials is the number of trials, Running that of those that train or wait to.
	Trials  int `json:"trials"`
	Running int `json:"running"`
	// Best is the best result so far; left out before the first one.
	Best *float64 `json:"best,omitempty"`
	// Joules is the energy of all trials; Modelled says that a part of it was not measured.
	Joules   float64 `json:"joules"`
	Modelled bool    `json:"modelled,omitempty"`
	// SubmittedAt and EndedAt are its times.
	SubmittedAt time.Time `json:"submitted_at"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

// Experiment is an experiment with its trials.
type Experiment struct {
	ExperimentLine
	// Parameters are the dimensions of the search, in the order of its file.
	Parameters []contract.Parameter `json:"parameters"`
	// MaxEpochs is the length of a whole training.
	MaxEpochs int `json:"max_epochs"`
	// BestTrial is the id of the best trial; nil before the first result.
	BestTrial *int `json:"best_trial,omitempty"`
	// TrialList are the trials in the order of their ids.
	TrialList []ExperimentTrial `json:"trial_list"`
	// Rungs are the numbers of epochs after which trials paused, and the whole training.
	Rungs []Rung `json:"rungs,omitempty"`
	// Course is the best result each time that it improved.
	Course []Improvement `json:"course"`
}

// ExperimentTrial is a trial with its results.
type ExperimentTrial struct {
	// ID counts from 0; Job is the job that trains it.
	ID  int         `json:"id"`
	Job train.JobID `json:"job"`
	// State is how far it has come, Reason why it stopped, or why it has no result any more.
	State  contract.TrialState `json:"state"`
	Reason string              `json:"reason,omitempty"`
	// Params are what it tries, Setting the system parameters that hold.
	Params  map[string]contract.Value `json:"params"`
	Setting contract.SettingValues    `json:"setting,omitempty"`
	// Epochs is how far it may train for now.
	Epochs int `json:"epochs"`
	// Value is its newest result; left out if it has none, or is no number any more. Broken says that it breaks a
	// constraint.
	Value  *float64 `json:"value,omitempty"`
	Broken bool     `json:"broken,omitempty"`
	// Seconds is how long it has trained, Joules its energy so far; 0 if that is unknown.
	Seconds float64 `json:"seconds"`
	Joules  float64 `json:"joules,omitempty"`
	// Results are those of its epochs.
	Results []TrialResult `json:"results"`
}

// TrialResult is the objective after an epoch.
type TrialResult struct {
	// Epoch is the number of epochs done, At when the last of them ended.
	Epoch int       `json:"epoch"`
	At    time.Time `json:"at"`
	// Seconds and Joules are those of the trial so far.
	Seconds float64 `json:"seconds"`
	Joules  float64 `json:"joules,omitempty"`
	// Value is the objective, with its user's sign. Broken says that a constraint does not hold.
	Value  float64 `json:"value"`
	Broken bool    `json:"broken,omitempty"`
}

// Rung is a number of epochs at which trials are compared.
type Rung struct {
	// Epochs is the number, Reached that of the trials that have trained so long, WentOn that of those that train on.
	Epochs  int `json:"epochs"`
	Reached int `json:"reached"`
	WentOn  int `json:"went_on"`
	// Best is the best result there; left out if there is none.
	Best *float64 `json:"best,omitempty"`
}

// Improvement is a result that was better than all before.
type Improvement struct {
	// At is when, Seconds how long after the submission, Joules the energy of all trials until then.
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Joules  float64   `json:"joules"`
	// Trial has the result, Value is what it is.
	Trial int     `json:"trial"`
	Value float64 `json:"value"`
}

// Experiments lists records of experiments, the newest first.
func Experiments(records []contract.ExperimentRecord) []ExperimentLine {
	lines := make([]ExperimentLine, len(records))
	for i := range records {
		lines[i] = NewExperimentLine(&records[i])
	}
	slices.SortFunc(lines, func(x, y ExperimentLine) int {
		return cmp.Or(y.SubmittedAt.Compare(x.SubmittedAt), cmp.Compare(x.ID, y.ID))
	})
	return lines
}

// NewExperimentLine sums up the record of an experiment.
func NewExperimentLine(r *contract.ExperimentRecord) ExperimentLine {
	e := &r.Experiment
	l := ExperimentLine{
		ID: r.ID, Name: e.Name, User: e.Job.User, Mode: e.Mode, Algorithm: e.Search.Algorithm, State: r.State, Message: r.Message,
		Objective: e.Objective.String(), Minimise: e.Objective.Minimise, Trials: len(r.Trials), SubmittedAt: r.SubmittedAt, EndedAt: r.EndedAt,
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		l.Joules += t.Spent()
		l.Modelled = l.Modelled || t.Modelled
		if t.State == contract.TrialRunning {
			l.Running++
		}
	}
	if best := r.Best(); best != nil {
		l.Best = &best.Value
	}
	return l
}

// DescribeExperiment shows the record of an experiment.
func DescribeExperiment(r *contract.ExperimentRecord) Experiment {
	e := Experiment{
		ExperimentLine: NewExperimentLine(r), Parameters: append([]contract.Parameter{}, r.Experiment.Space...), MaxEpochs: r.Experiment.Search.MaxEpochs,
		TrialList: []ExperimentTrial{},
	}
	if best := r.Best(); best != nil {
		e.BestTrial = &best.Trial
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		shown := ExperimentTrial{
			ID: t.ID, Job: t.Job, State: t.State, Reason: r.Explain(t), Params: t.Params, Epochs: t.Epochs, Seconds: t.Seconds(), Joules: t.Spent(), Results: []TrialResult{},
		}
		if len(t.Settings) > 0 {
			shown.Setting = t.Setting()
		}
		for _, o := range r.Results(t) {
			shown.Results = append(shown.Results, TrialResult{Epoch: o.Epoch, At: o.At, Seconds: o.Seconds, Joules: o.Joules, Value: o.Value, Broken: o.Broken})
		}
		if newest := r.Newest(t); newest != nil {
			shown.Value, shown.Broken = &newest.Value, newest.Broken
		}
		e.TrialList = append(e.TrialList, shown)
	}
	e.Rungs, e.Course = e.rungs(r), e.course(r.Experiment.Objective)
	return e
}

// rungs are those of a search that pauses trials.
func (e *Experiment) rungs(r *contract.ExperimentRecord) []Rung {
	at := map[int]bool{}
	for i := range r.Trials {
		for _, d := range r.Trials[i].Done {
			if d.Paused {
				at[d.Epoch] = true
			}
		}
	}
	if len(at) == 0 {
		return nil
	}
	at[e.MaxEpochs] = true
	var rungs []Rung
	for epochs := range at {
		rungs = append(rungs, e.rung(epochs, r))
	}
	slices.SortFunc(rungs, func(x, y Rung) int { return x.Epochs - y.Epochs })
	return rungs
}

func (e *Experiment) rung(epochs int, r *contract.ExperimentRecord) Rung {
	rung := Rung{Epochs: epochs}
	for i := range e.TrialList {
		t := &e.TrialList[i]
		done := r.Trials[i].EpochsDone()
		if done < epochs {
			continue
		}
		rung.Reached++
		if t.Epochs > epochs || done > epochs {
			rung.WentOn++
		}
		for k := range t.Results {
			o := &t.Results[k]
			counts := o.Epoch == epochs && !o.Broken && t.State != contract.TrialFailed
			if counts && (rung.Best == nil || r.Experiment.Objective.Better(o.Value, *rung.Best)) {
				rung.Best = &o.Value
			}
		}
	}
	return rung
}

// course goes through the results of all trials in the order of their times. Trials that failed, and results that break
// a constraint, do not count; their energy does.
func (e *Experiment) course(objective contract.Objective) []Improvement {
	type result struct {
		trial *ExperimentTrial
		at    TrialResult
	}
	var all []result
	for i := range e.TrialList {
		for _, o := range e.TrialList[i].Results {
			all = append(all, result{&e.TrialList[i], o})
		}
	}
	slices.SortStableFunc(all, func(x, y result) int { return x.at.At.Compare(y.at.At) })
	course, best := []Improvement{}, contract.Result{}
	spent, joules := map[int]float64{}, 0.0
	for _, o := range all {
		joules += max(o.at.Joules-spent[o.trial.ID], 0)
		spent[o.trial.ID] = max(spent[o.trial.ID], o.at.Joules)
		if o.at.Broken || o.trial.State == contract.TrialFailed {
			continue
		}
		result := contract.Result{Epoch: o.at.Epoch, Value: o.at.Value}
		if len(course) == 0 || objective.Surpasses(result, best) {
			best = result
			course = append(course, Improvement{At: o.at.At, Seconds: o.at.At.Sub(e.SubmittedAt).Seconds(), Joules: joules, Trial: o.trial.ID, Value: o.at.Value})
		}
	}
	return course
}
