package event

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The facts that only experiments have.
const (
	FactTrialStarted = "trial_started"
	FactTrialEnded   = "trial_ended"
	FactRetuned      = "retuned"
	FactLearnt       = "learnt"
	FactFinished     = "finished"
	FactStopped      = "stopped"
)

// ExperimentSubmitted submits an experiment: publishing it is enough.
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
	// Epochs is the number of epochs it trains for now.
	Epochs int `json:"epochs"`
	// Setting holds the system parameters that it starts with.
	Setting map[string]float64 `json:"setting,omitempty"`
}

// TrialEnded says how a trial ended, or that it is paused.
type TrialEnded struct {
	// Trial is its number, from 0 on.
	Trial int         `json:"trial"`
	Job   train.JobID `json:"job"`
	// State is paused, ended, stopped or failed; Reason explains it in words.
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	EpochsDone int    `json:"epochs_done"`
	// Score is the objective at the last epoch, more being better; left out without a result.
	Score   *float64 `json:"score,omitempty"`
	Seconds float64  `json:"seconds"`
	// Energy is the energy the trial has used, 0 if not measured.
	EnergyJoules float64 `json:"energy_j,omitempty"`
}

// Retuned says that a running trial was given other system parameters.
type Retuned struct {
	train.Applied
}

// Learnt says what is now known of workloads, after results of an experiment's trials.
type Learnt struct {
	// Best are the cheapest known settings for each kind of workload and batch size.
	Best []BestSetting `json:"best"`
}

// BestSetting is the cheapest known setting for a kind of workload at a batch size.
type BestSetting struct {
	// Cluster is the kind of workload.
	Cluster string `json:"cluster"`
	// BatchSize is the batch size of the workloads.
	BatchSize float64 `json:"batch_size"`
	// Setting holds the system parameters.
	Setting map[string]float64 `json:"setting"`
	// EpochSeconds or EpochJoules is the mean cost of an epoch over the workloads: whichever was to be small.
	EpochSeconds float64 `json:"epoch_seconds,omitempty"`
	EpochJoules  float64 `json:"epoch_j,omitempty"`
	// Workloads is the number of workloads measured with the setting.
	Workloads int `json:"workloads"`
}

// ExperimentEnded says how an experiment ended.
type ExperimentEnded struct {
	Message string `json:"message"`
	// Trials is the number of trials started.
	Trials int `json:"trials"`
	// Best is the best trial; left out if none has a result.
	Best *int `json:"best,omitempty"`
	// Score is the objective of the best trial, more being better.
	Score *float64 `json:"score,omitempty"`
	// Seconds is the time from the submission to EndedAt.
	Seconds float64 `json:"seconds"`
	// EndedAt is the time when the last trial had ended.
	EndedAt time.Time `json:"ended_at"`
}

// TuneSubject returns the subject of an experiment's fact in its current version.
func TuneSubject(id, fact string) Subject {
	return Subject{Entity: "tune", ID: id, Fact: fact, Version: 1}
}

// TuneFact returns a fact about an experiment; key is what follows `tune/<id>/`.
func TuneFact(id, fact, key string, body any) Fact {
	return Fact{Subject: TuneSubject(id, fact), Key: fmt.Sprintf("tune/%s/%s", id, key), Body: body}
}

// TuneOnceFact returns a fact that an experiment has at most once.
func TuneOnceFact(id, fact string, body any) Fact {
	f := TuneFact(id, fact, fact, body)
	f.Once = true
	return f
}

// tuneKinds returns the facts of experiments.
func tuneKinds() []Kind {
	const once, repeated = true, false
	tune := func(fact, publisher, key string, atMostOnce bool, doc string, newBody func() any) Kind {
		return Kind{"tune", fact, 1, StreamTune, publisher, key, atMostOnce, doc, newBody}
	}
	return []Kind{
		tune(FactSubmitted, Anyone, "tune/<id>/submitted", once,
			"An experiment. Decoded strictly.", body[ExperimentSubmitted]),
		tune(FactRejected, "experiments", "tune/<id>/rejected", once,
			"The experiment was refused, with every reason.", body[Rejected]),
		tune(FactConflicted, "experiments", "tune/<id>/conflicted/<sequence>", repeated,
			"A different experiment under a taken id was ignored.", body[Conflicted]),
		tune(FactTrialStarted, "experiments", "tune/<id>/trial/<n>/started/<epochs>", repeated,
			"A trial begins, or goes on after a pause.", body[TrialStarted]),
		tune(FactTrialEnded, "experiments", "tune/<id>/trial/<n>/<state>/<epochs>", repeated,
			"A trial ended, or is paused.", body[TrialEnded]),
		tune(FactRetuned, "executor", "tune/<id>/job/<job>/attempt/<n>/setting/<generation>", repeated,
			"A running trial has other system parameters.", body[Retuned]),
		tune(FactLearnt, "experiments", "tune/<id>/learnt/<revision>", repeated,
			"The cheapest known settings for each kind of workload, after trials that ended.", body[Learnt]),
		tune(FactStopRequested, Anyone, "tune/<id>/stop", repeated,
			"A request to end the experiment.", body[ExperimentStopRequested]),
		tune(FactFinished, "experiments", "tune/<id>/finished", once,
			"The experiment is complete.", body[ExperimentEnded]),
		tune(FactStopped, "experiments", "tune/<id>/stopped", once,
			"The experiment was stopped before its end.", body[ExperimentEnded]),
	}
}
