package plan

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// State is everything a decision rests on. Nodes and jobs may come in any order.
type State struct {
	Now   time.Time    `json:"now"`
	Nodes []train.Node `json:"nodes"`
	// Jobs are those that are admitted and not ended.
	Jobs   []Job  `json:"jobs"`
	Tuning Tuning `json:"tuning"`
}

// Job is what the planner needs to know of a job.
type Job struct {
	ID   train.JobID `json:"id"`
	Spec train.Spec  `json:"spec"`
	// Priority is the effective one; higher goes first.
	Priority        int          `json:"priority"`
	SubmittedAt     time.Time    `json:"submitted_at"`
	EpochsDone      int          `json:"epochs_done"`
	RunSeconds      float64      `json:"run_seconds"`
	CancelRequested bool         `json:"cancel_requested,omitempty"`
	Model           *train.Model `json:"model,omitempty"`
	// Running is the live attempt, if there is one; Planned what the last plan gave, applied or not. The last plan is kept
	// stable while it is being applied.
	Running *Running `json:"running,omitempty"`
	Planned *Holding `json:"planned,omitempty"`
}

// Holding is devices of one node.
type Holding struct {
	Node    train.NodeID     `json:"node"`
	Devices []train.DeviceID `json:"devices"`
}

// Running is a live attempt.
type Running struct {
	Holding
	// StopPending is set when it was asked to leave.
	StopPending bool `json:"stop_pending,omitempty"`
	// Seconds since it started, Epochs that it has finished, both of this attempt alone.
	Seconds float64 `json:"seconds"`
	Epochs  int     `json:"epochs"`
	// Spoke says that the training code has called the job API: only then can it be asked to leave.
	Spoke bool `json:"spoke,omitempty"`
}

// Tuning are the parameters of a decision; zero values stand for the defaults.
type Tuning struct {
	// RestartSeconds is the price of a restart: the measured mean where it is known (default 3).
	RestartSeconds float64 `json:"restart_seconds,omitempty"`
	// Hysteresis is the share of a job's remaining time that a change of its allocation must save beyond the price of the
	// restart (default 0.1).
	Hysteresis float64 `json:"hysteresis,omitempty"`
	// MinRescaleSeconds is the least age of an attempt that is rescaled (default 10); it has then finished an epoch, too.
	MinRescaleSeconds float64 `json:"min_rescale_seconds,omitempty"`
	// YoungFactor scales the gains of jobs with fewer than YoungEpochs observed epochs (defaults 0.95 and 3, as in Optimus).
	YoungFactor float64 `json:"young_factor,omitempty"`
	YoungEpochs int     `json:"young_epochs,omitempty"`
	// UnknownSeconds is the assumed remaining time where neither a model, nor the user, nor other jobs say anything
	// (default 600).
	UnknownSeconds float64 `json:"unknown_seconds,omitempty"`
}

// withDefaults fills in zero values.
func (t Tuning) withDefaults() Tuning {
	fill := func(x *float64, value float64) {
		if !(*x > 0) {
			*x = value
		}
	}
	fill(&t.RestartSeconds, 3)
	fill(&t.Hysteresis, 0.1)
	fill(&t.MinRescaleSeconds, 10)
	fill(&t.YoungFactor, 0.95)
	fill(&t.UnknownSeconds, 600)
	if t.YoungEpochs <= 0 {
		t.YoungEpochs = 3
	}
	return t
}
