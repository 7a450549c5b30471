// Package conduct is the mind of one experiment: what was told of its trials is entered in a record, and from the record alone follows what to do next. It
// runs nothing and reads no clock, so an experiment goes on from its record wherever it was interrupted.
package conduct

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// State is where an experiment stands.
type State string

// The states.
const (
	Running  State = "running"
	Finished State = "finished"
	Stopped  State = "stopped"
	Rejected State = "rejected"
)

// Record is all that is known of an experiment.
type Record struct {
	ID         string          `json:"id"`
	Experiment file.Experiment `json:"experiment"`
	// Hash tells the experiment from others under the same id.
	Hash        string    `json:"hash"`
	State       State     `json:"state"`
	Message     string    `json:"message,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
	Trials      []Trial   `json:"trials,omitempty"`
	// Recurs is set where the search was done before: one trial runs, with what was best then.
	Recurs *Recurrence `json:"recurs,omitempty"`
	// Folded are the sequences of the newest messages that were entered, by stream.
	Folded map[string]uint64 `json:"folded,omitempty"`
	// Told is set when the end of the experiment was told.
	Told bool `json:"told,omitempty"`
}

// Recurrence is what an earlier experiment of the same group came to.
type Recurrence struct {
	Of     string        `json:"of"`
	Params search.Params `json:"params"`
	// Modelled says that its energy was no measurement.
	Modelled bool `json:"modelled,omitempty"`
}

// Trial is one training with its own values of the parameters.
type Trial struct {
	ID     int           `json:"id"`
	Job    train.JobID   `json:"job"`
	Params search.Params `json:"params"`
	// Epochs is how far it is to train for now.
	Epochs int          `json:"epochs"`
	State  search.State `json:"state"`
	Reason string       `json:"reason,omitempty"`
	// DecidedAt is when it was started, RunAt when its processes first ran, EndedAt when it ended or was last paused.
	DecidedAt time.Time `json:"decided_at"`
	RunAt     time.Time `json:"run_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Foreign says that somebody else had submitted a job under this id: nothing that becomes of it is the trial's.
	Foreign bool `json:"foreign,omitempty"`
	// JobState is set when the job has ended.
	JobState train.State `json:"job_state,omitempty"`
	// Settings are the system parameters that were wanted of its job, one after the other: the last one stands, since so many epochs. Applied is what it was
	// given; its generations count from 1.
	Settings     []pipeline.Setting `json:"settings"`
	SettingAfter int                `json:"setting_after_epochs,omitempty"`
	Applied      []train.Applied    `json:"applied,omitempty"`
	// Failed are those of them under which its processes ended by themselves before an epoch had.
	Failed []pipeline.Setting `json:"failed,omitempty"`
	Done   []Epoch            `json:"done,omitempty"`
	// Profile is what was measured of its processes.
	Profile *Profile `json:"profile,omitempty"`
	// Modelled says that its energy is arithmetic and no measurement, Closed that no more will be known of it.
	Modelled bool `json:"modelled,omitempty"`
	Closed   bool `json:"closed,omitempty"`
	// Learnt is how many of Done the ground truth has, FailuresLearnt how many of Failed.
	Learnt         int `json:"learnt,omitempty"`
	FailuresLearnt int `json:"failures_learnt,omitempty"`
	// ToldStart is up to how many epochs it was told to start, ToldEnd which end was told last.
	ToldStart int    `json:"told_start,omitempty"`
	ToldEnd   string `json:"told_end,omitempty"`
}

// Epoch is one that has ended.
type Epoch struct {
	Epoch   int       `json:"epoch"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	// Devices is on how many it was trained; 0 where nobody told.
	Devices int `json:"devices,omitempty"`
	// Joules is what the job had used in all when it ended; 0 where that is not known (yet).
	Joules  float64            `json:"joules,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Paused says that the trial paused when it had ended.
	Paused bool `json:"paused,omitempty"`
}

// Profile is what nodes measured of a job while it trained.
type Profile struct {
	// BusyCores is how many processors were busy on average.
	BusyCores float64 `json:"busy_cores"`
	// Signature is there until it is learnt.
	Signature profile.Signature `json:"signature,omitempty"`
}

// JobID names the job of a trial.
func JobID(experiment string, trial int) train.JobID {
	return train.JobID(fmt.Sprintf("%s-t%d", experiment, trial))
}

// SplitJobID is the inverse of JobID; ok is false for the id of another job.
func SplitJobID(job string) (experiment string, trial int, ok bool) {
	i := strings.LastIndex(job, "-t")
	if i <= 0 {
		return "", 0, false
	}
	trial, err := strconv.Atoi(job[i+2:])
	return job[:i], trial, err == nil && trial >= 0 && string(JobID(job[:i], trial)) == job
}

// New opens the record of an experiment.
func New(id string, e file.Experiment, hash string, at time.Time) Record {
	return Record{ID: id, Experiment: e, Hash: hash, State: Running, SubmittedAt: at}
}

// trial finds the trial of a job.
func (r *Record) trial(job train.JobID) *Trial {
	i := slices.IndexFunc(r.Trials, func(t Trial) bool { return t.Job == job && !t.Foreign })
	if i < 0 {
		return nil
	}
	return &r.Trials[i]
}

// Over says whether nothing more is decided.
func (r *Record) Over() bool { return r.State != Running }

// Settled says whether the experiment is over, all its jobs have ended, and no more will be known of their energy.
func (r *Record) Settled() bool {
	open := func(t Trial) bool { return t.JobState == "" && !t.Foreign || !t.Closed && len(t.Done) > 0 }
	return r.Over() && !slices.ContainsFunc(r.Trials, open)
}

// EpochsDone is how many epochs the trial has behind it.
func (t *Trial) EpochsDone() int {
	if len(t.Done) == 0 {
		return 0
	}
	return t.Done[len(t.Done)-1].Epoch
}

// Seconds is how long the trial has trained, epochs that had to be trained again counted once.
func (t *Trial) Seconds() float64 {
	sum := 0.0
	for _, e := range t.Done {
		sum += e.Seconds
	}
	return sum
}

// Setting is what is wanted of the trial's job now.
func (t *Trial) Setting() pipeline.Setting { return t.Settings[len(t.Settings)-1] }

// Joules is what the trial has used; 0 where that is not known.
func (t *Trial) Joules() float64 {
	if len(t.Done) == 0 {
		return 0
	}
	return t.Done[len(t.Done)-1].Joules
}

// Results are the trial's epochs as searches compare them, and why one that should have a result has none.
func (r *Record) Results(t *Trial) ([]search.Result, error) {
	var results []search.Result
	var missing error
	seconds := 0.0
	for _, e := range t.Done {
		seconds += e.Seconds
		result, err := r.Experiment.Result(file.Report{Epoch: e.Epoch, Metrics: e.Metrics, Seconds: seconds, Joules: e.Joules})
		if err != nil {
			missing = err
			continue
		}
		results = append(results, result)
	}
	return results, missing
}

// History is the trials as a search sees them.
func (r *Record) History() []search.Trial {
	history := make([]search.Trial, len(r.Trials))
	for i := range r.Trials {
		t := &r.Trials[i]
		results, _ := r.Results(t)
		history[i] = search.Trial{ID: t.ID, Params: t.Params, Epochs: t.Epochs, State: t.State, Results: results}
	}
	return history
}

// Best is the best trial; false where none has a result. What is divided by the time or energy of the training so far falls as a training goes on: only trials
// that came as far as any compare.
func (r *Record) Best() (*Trial, float64, bool) {
	trials := r.History()
	if r.Experiment.Objective.Per != file.PerNothing {
		trials = search.Furthest(trials)
	}
	best, ok := search.Best(trials)
	if !ok {
		return nil, 0, false
	}
	score, _ := best.At(best.Results[len(best.Results)-1].Epoch)
	return &r.Trials[best.ID], score, true
}
