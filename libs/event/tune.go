package event

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The facts of an experiment that jobs do not have.
const (
	FactTrialStarted = "trial_started"
	FactTrialEnded   = "trial_ended"
	FactRetuned      = "retuned"
	FactLearnt       = "learnt"
	FactFinished     = "finished"
	FactStopped      = "stopped"
)

// ExperimentSubmitted submits an experiment: publishing it is all that it takes.
type ExperimentSubmitted struct {
	// Experiment is what `switchyard tune run --print-event` makes of an experiment file.
	Experiment json.RawMessage `json:"experiment"`
}

// ExperimentStopRequested asks for the end of an experiment.
type ExperimentStopRequested struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// TrialStarted says that a trial begins, or goes on after a pause.
type TrialStarted struct {
	// Trial is its number, from 0 on.
	Trial int         `json:"trial"`
	Job   train.JobID `json:"job"`
	// Params are the values of its parameters, numbers or texts.
	Params map[string]any `json:"params"`
	// Epochs is how far it trains for now.
	Epochs int `json:"epochs"`
	// Setting are the system parameters that it starts with.
	Setting map[string]float64 `json:"setting,omitempty"`
}

// TrialEnded says how a trial ended, or that it is paused.
type TrialEnded struct {
	// Trial is its number, from 0 on.
	Trial int         `json:"trial"`
	Job   train.JobID `json:"job"`
	// State is paused, ended, stopped or failed; Reason says why in words.
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	EpochsDone int    `json:"epochs_done"`
	// Score is the objective at the last epoch, more being better; left out where there is none.
	Score   *float64 `json:"score,omitempty"`
	Seconds float64  `json:"seconds"`
	// Energy is what the trial has used, 0 where nobody measured.
	EnergyJoules float64 `json:"energy_j,omitempty"`
}

// Retuned says that a running trial was given other system parameters.
type Retuned struct {
	train.Applied
}

// Learnt says what is known of workloads now, after what trials of an experiment have shown.
type Learnt struct {
	// Best are the cheapest settings known of each kind of workload and batch size.
	Best []BestSetting `json:"best"`
}

// BestSetting is the cheapest one known of a kind of workload at a batch size.
type BestSetting struct {
	// Cluster is the kind.
	Cluster string `json:"cluster"`
	// BatchSize is that of the workloads.
	BatchSize float64 `json:"batch_size"`
	// Setting are the system parameters.
	Setting map[string]float64 `json:"setting"`
	// EpochSeconds or EpochJoules are what an epoch takes, on average over the workloads: whichever was to be small.
	EpochSeconds float64 `json:"epoch_seconds,omitempty"`
	EpochJoules  float64 `json:"epoch_j,omitempty"`
	// Workloads is how many were measured with the setting.
	Workloads int `json:"workloads"`
}

// ExperimentEnded says how an experiment ended.
type ExperimentEnded struct {
	Message string `json:"message"`
	// Trials is how many were started.
	Trials int `json:"trials"`
	// Best is the best trial; left out where none has a result.
	Best *int `json:"best,omitempty"`
	// Score is the objective of the best trial, more being better.
	Score *float64 `json:"score,omitempty"`
	// Seconds is from the submission to EndedAt.
	Seconds float64 `json:"seconds"`
	// EndedAt is when the last trial had ended.
	EndedAt time.Time `json:"ended_at"`
}

// TuneSubject is the subject of an experiment's fact in its current version.
func TuneSubject(id, fact string) Subject {
	return Subject{Entity: "tune", ID: id, Fact: fact, Version: 1}
}

// TuneFact makes a fact about an experiment; key is what follows `tune/<id>/`.
func TuneFact(id, fact, key string, body any) Fact {
	return Fact{Subject: TuneSubject(id, fact), Key: fmt.Sprintf("tune/%s/%s", id, key), Body: body}
}

// TuneOnceFact makes a fact of which an experiment has at most one.
func TuneOnceFact(id, fact string, body any) Fact {
	f := TuneFact(id, fact, fact, body)
	f.Once = true
	return f
}

// tuneKinds are the facts of experiments.
func tuneKinds() []Kind {
	tune := func(fact, publisher, key string, once bool, doc string, body func() any) Kind {
		return Kind{"tune", fact, 1, StreamTune, publisher, key, once, doc, body}
	}
	return []Kind{
		tune(FactSubmitted, "anyone", "tune/<id>/submitted", true, "An experiment. Decoded strictly.", func() any { return new(ExperimentSubmitted) }),
		tune(FactRejected, "experiments", "tune/<id>/rejected", true, "The experiment was refused, with every reason.", func() any { return new(Rejected) }),
		tune(FactConflicted, "experiments", "tune/<id>/conflicted/<sequence>", false, "A different experiment under a taken id was ignored.", func() any { return new(Conflicted) }),
		tune(FactTrialStarted, "experiments", "tune/<id>/trial/<n>/started/<epochs>", false, "A trial begins, or goes on after a pause.", func() any { return new(TrialStarted) }),
		tune(FactTrialEnded, "experiments", "tune/<id>/trial/<n>/<state>/<epochs>", false, "A trial ended, or is paused.", func() any { return new(TrialEnded) }),
		tune(FactRetuned, "executor", "tune/<id>/job/<job>/attempt/<n>/setting/<generation>", false, "A running trial has other system parameters.", func() any { return new(Retuned) }),
		tune(FactLearnt, "experiments", "tune/<id>/learnt/<revision>", false, "The cheapest settings known of each kind of workload, after trials that ended.", func() any { return new(Learnt) }),
		tune(FactStopRequested, "anyone", "tune/<id>/stop", false, "The experiment shall end.", func() any { return new(ExperimentStopRequested) }),
		tune(FactFinished, "experiments", "tune/<id>/finished", true, "The experiment has come to its end.", func() any { return new(ExperimentEnded) }),
		tune(FactStopped, "experiments", "tune/<id>/stopped", true, "The experiment was stopped before its end.", func() any { return new(ExperimentEnded) }),
	}
}
