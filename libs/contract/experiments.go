package contract

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ExperimentState is the state of an experiment.
type ExperimentState string

// The states of an experiment.
const (
	ExperimentRunning  ExperimentState = "running"
	ExperimentFinished ExperimentState = "finished"
	ExperimentStopped  ExperimentState = "stopped"
	ExperimentRejected ExperimentState = "rejected"
)

// ExperimentRecord is the whole state of an experiment. Every decision on it follows from this record.
type ExperimentRecord struct {
	ID         string     `json:"id"`
	Experiment Experiment `json:"experiment"`
	// Hash distinguishes the experiment from another one under the same id.
	Hash        string          `json:"hash"`
	State       ExperimentState `json:"state"`
	Message     string          `json:"message,omitempty"`
	SubmittedAt time.Time       `json:"submitted_at"`
	EndedAt     time.Time       `json:"ended_at,omitzero"`
	Trials      []Trial         `json:"trials,omitempty"`
	// Recurs is set if the same search was done before: then one trial runs, with the best parameters found then.
	Recurs *Recurrence `json:"recurs,omitempty"`
	// Folded holds the sequence of the newest message entered, by stream.
	Folded map[string]uint64 `json:"folded,omitempty"`
	// Published is set when the end of the experiment was published.
	Published bool `json:"told,omitempty"`
}

// Over reports whether nothing more is decided.
func (r *ExperimentRecord) Over() bool { return r.State != ExperimentRunning }

// Result is the objective of a trial after an epoch.
type Result struct {
	Trial, Epoch int
	At           time.Time
	// Seconds and Joules are those of the training so far.
	Seconds, Joules float64
	// Value has the user's sign. Broken says that a constraint does not hold.
	Value  float64
	Broken bool
}

// Results returns the epochs of a trial whose objective and constraints are known.
func (r *ExperimentRecord) Results(t *Trial) []Result {
	var results []Result
	seconds := 0.0
	for _, e := range t.Done {
		seconds += e.Seconds
		value, known := r.Experiment.Objective.Value(e.Metrics, seconds, e.Joules)
		broken := false
		for _, c := range r.Experiment.Constraints {
			x, reported := e.Metrics[c.Metric]
			known = known && reported
			broken = broken || !(c.Slack(x) >= 0)
		}
		if known {
			results = append(results, Result{Trial: t.ID, Epoch: e.Epoch, At: e.At, Seconds: seconds, Joules: e.Joules, Value: value, Broken: broken})
		}
	}
	return results
}

// NonfiniteSteps is the metric by which training code reports in how many steps of an epoch the loss was no number.
// Such an epoch has no mean loss.
const NonfiniteSteps = "nonfinite_steps"

// Metrics returns the names of the metrics that results need.
func (e *Experiment) Metrics() []string {
	names := []string{e.Objective.Metric}
	for _, c := range e.Constraints {
		names = append(names, c.Metric)
	}
	return names
}

// Diverged reports whether the objective of a trial, or what a constraint names, is no number any more.
func (r *ExperimentRecord) Diverged(t *Trial) bool {
	return r.Lost(t) != ""
}

// Lost returns the metric that made the trial diverge; "" if none did. The losses of steps count for the newest epoch
// alone: a step that went wrong says nothing of the epochs after it.
func (r *ExperimentRecord) Lost(t *Trial) string {
	lost := func(name string) bool {
		for i, e := range slices.Backward(t.Done) {
			_, known := e.Metrics[name]
			marked := e.Metrics[train.Nonfinite+name] > 0 || i == len(t.Done)-1 && e.Metrics[NonfiniteSteps] > 0
			if known || marked {
				return !known
			}
		}
		return false
	}
	for _, name := range r.Experiment.Metrics() {
		if lost(name) {
			return name
		}
	}
	return ""
}

// Newest returns the newest result of a trial; nil if it has none or has diverged.
func (r *ExperimentRecord) Newest(t *Trial) *Result {
	results := r.Results(t)
	if len(results) == 0 || r.Diverged(t) {
		return nil
	}
	return &results[len(results)-1]
}

// Explain returns why a trial stopped, and why it has no result if its epochs give none.
func (r *ExperimentRecord) Explain(t *Trial) string {
	words := []string{t.Reason, r.lacks(t)}
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), "; ")
}

// lacks returns what a result of the trial lacks; "" if it lacks nothing, or no epoch has ended.
func (r *ExperimentRecord) lacks(t *Trial) string {
	if lost := r.Lost(t); lost != "" {
		return lost + " is no number"
	}
	if len(t.Done) == 0 || len(r.Results(t)) > 0 {
		return ""
	}
	for _, name := range r.Experiment.Metrics() {
		if !slices.ContainsFunc(t.Done, func(e TrialEpoch) bool { _, reported := e.Metrics[name]; return reported }) {
			return name + " was not reported"
		}
	}
	if per := r.Experiment.Objective.Per; per != PerNothing {
		return fmt.Sprintf("the %s of its epochs is not known", per)
	}
	return "no epoch has all metrics"
}

// Best returns the best newest result of trials that have not failed or diverged and break no constraint, the earliest
// of equals; nil if there is none.
func (r *ExperimentRecord) Best() *Result {
	var best *Result
	for i := range r.Trials {
		t := &r.Trials[i]
		last := r.Newest(t)
		if last == nil || t.State == TrialFailed {
			continue
		}
		if !last.Broken && !math.IsNaN(last.Value) && (best == nil || r.Experiment.Objective.Surpasses(*last, *best)) {
			best = last
		}
	}
	return best
}

// Surpasses reports whether a result is better than another one. An objective divided by the time or energy of the
// training so far falls as a training goes on, so the one that came further is.
func (o Objective) Surpasses(x, than Result) bool {
	if o.Per != PerNothing && x.Epoch != than.Epoch {
		return x.Epoch > than.Epoch
	}
	return o.Better(x.Value, than.Value)
}

// Better reports whether a value of the objective is better than another one.
func (o Objective) Better(x, than float64) bool {
	if o.Minimise {
		return x < than
	}
	return x > than
}

// Recurrence is the result of an earlier experiment of the same group.
type Recurrence struct {
	Of     string           `json:"of"`
	Params map[string]Value `json:"params"`
	// Modelled says that its energy was computed, not measured.
	Modelled bool `json:"modelled,omitempty"`
}

// TrialState is the state of a trial.
type TrialState string

// The states of a trial.
const (
	TrialRunning TrialState = "running" // trains, or waits to, up to its Epochs
	TrialPaused  TrialState = "paused"  // has trained its Epochs and can continue from its checkpoint
	TrialEnded   TrialState = "ended"   // ended by itself before that: its last result counts for all later epochs
	TrialStopped TrialState = "stopped" // was stopped before that: its results count, it never continues
	TrialFailed  TrialState = "failed"  // has no result that counts
)

// Trial is one training with its own values of the parameters.
type Trial struct {
	ID     int              `json:"id"`
	Job    train.JobID      `json:"job"`
	Params map[string]Value `json:"params"`
	// Epochs is the number of epochs in all that it trains for now.
	Epochs int        `json:"epochs"`
	State  TrialState `json:"state"`
	Reason string     `json:"reason,omitempty"`
	// DecidedAt is when it was started, RunAt when its processes first ran, EndedAt when it ended or last paused.
	DecidedAt time.Time `json:"decided_at"`
	RunAt     time.Time `json:"run_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Foreign says that another client had submitted a job under this id. What happens to that job does not concern the
	// trial.
	Foreign bool `json:"foreign,omitempty"`
	// JobState is set when the job has ended.
	JobState train.State `json:"job_state,omitempty"`
	// Settings are the system parameters requested for its job, in order. The last one holds, since SettingAfter
	// epochs. Applied are those in force; their generations count from 1.
	Settings     []SettingValues `json:"settings"`
	SettingAfter int             `json:"setting_after_epochs,omitempty"`
	Applied      []train.Applied `json:"applied,omitempty"`
	// Failed are the settings under which its processes ended by themselves before an epoch was done.
	Failed []SettingValues `json:"failed,omitempty"`
	Done   []TrialEpoch    `json:"done,omitempty"`
	// Profile is what was measured of its processes.
	Profile *TrialProfile `json:"profile,omitempty"`
	// SpentJoules is the energy that the ledger has booked for its job; 0 if unknown.
	SpentJoules float64 `json:"spent_joules,omitempty"`
	// Modelled says that its energy was computed, not measured. Closed says that nothing more will become known of it.
	Modelled bool `json:"modelled,omitempty"`
	Closed   bool `json:"closed,omitempty"`
	// Learnt is the number of Done that the ground truth contains, FailuresLearnt the number of Failed.
	Learnt         int `json:"learnt,omitempty"`
	FailuresLearnt int `json:"failures_learnt,omitempty"`
	// PublishedStart is the number of epochs in the last published start. PublishedEnd is the end published last.
	PublishedStart int    `json:"told_start,omitempty"`
	PublishedEnd   string `json:"told_end,omitempty"`
}

// Ran reports whether processes of the trial's job have run.
func (t *Trial) Ran() bool { return !t.RunAt.IsZero() || len(t.Done) > 0 }

// EpochsDone returns the number of epochs that the trial has trained.
func (t *Trial) EpochsDone() int {
	if len(t.Done) == 0 {
		return 0
	}
	return t.Done[len(t.Done)-1].Epoch
}

// Seconds returns the time that the trial has trained. An epoch that was trained again counts once.
func (t *Trial) Seconds() float64 {
	sum := 0.0
	for _, e := range t.Done {
		sum += e.Seconds
	}
	return sum
}

// Setting returns the setting requested for the trial's job now.
func (t *Trial) Setting() SettingValues { return t.Settings[len(t.Settings)-1] }

// Spent returns the energy of the trial's job so far, also after the trial's last epoch; 0 if unknown.
func (t *Trial) Spent() float64 { return max(t.SpentJoules, t.Joules()) }

// Joules returns the energy the trial had used at the end of its last epoch; 0 if unknown.
func (t *Trial) Joules() float64 {
	if len(t.Done) == 0 {
		return 0
	}
	return t.Done[len(t.Done)-1].Joules
}

// TrialEpoch is an epoch that has ended.
type TrialEpoch struct {
	Epoch   int       `json:"epoch"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	// Devices is the number of devices that trained it; 0 if unknown.
	Devices int `json:"devices,omitempty"`
	// Joules is the energy the job had used in all when the epoch ended; 0 if not known (yet).
	Joules  float64            `json:"joules,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Paused says that the trial paused after the epoch.
	Paused bool `json:"paused,omitempty"`
}

// TrialProfile is what nodes measured of a trial's job while it trained.
type TrialProfile struct {
	// BusyCores is the mean number of busy processors.
	BusyCores float64 `json:"busy_cores"`
	// Signature is kept until the ground truth contains it.
	Signature Signature `json:"signature,omitempty"`
}

// SettingValues holds the value of each system parameter, more than 0.
type SettingValues map[string]float64

// Equal reports whether two settings are the same.
func (s SettingValues) Equal(other SettingValues) bool { return maps.Equal(s, other) }
