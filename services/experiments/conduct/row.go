package conduct

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Row is a trial as people compare it.
type Row struct {
	Trial  int           `json:"trial"`
	Job    train.JobID   `json:"job"`
	Params search.Params `json:"params"`
	State  search.State  `json:"state"`
	Reason string        `json:"reason,omitempty"`
	Epochs int           `json:"epochs_done"`
	// Objective is that of the last epoch, in the user's own sign; left out where there is none.
	Objective *float64 `json:"objective,omitempty"`
	Best      bool     `json:"best,omitempty"`
	// QueueSeconds is from the decision to the first process, TrainSeconds the sum of its epochs.
	QueueSeconds float64 `json:"queue_seconds"`
	TrainSeconds float64 `json:"train_seconds"`
	EnergyJoules float64 `json:"energy_j,omitempty"`
	// Modelled says that the energy is no measurement.
	Modelled bool `json:"energy_modelled,omitempty"`
	// Setting is what it ran with at the end, Changes how often that was changed while it ran.
	Setting pipeline.Setting `json:"setting,omitempty"`
	Changes int              `json:"setting_changes"`
}

// Rows are all trials in the order in which they were started.
func (r *Record) Rows() []Row {
	best, _, _ := r.Best()
	rows := make([]Row, len(r.Trials))
	for i := range r.Trials {
		t := &r.Trials[i]
		rows[i] = Row{
			Trial: t.ID, Job: t.Job, Params: t.Params, State: t.State, Reason: t.Reason, Epochs: t.EpochsDone(), Best: best == t,
			TrainSeconds: t.Seconds(), EnergyJoules: t.Joules(), Modelled: t.Modelled, Setting: t.Setting(), Changes: len(t.Settings) - 1,
		}
		if !t.RunAt.IsZero() {
			rows[i].QueueSeconds = max(t.RunAt.Sub(t.DecidedAt).Seconds(), 0)
		}
		if results, _ := r.Results(t); len(results) > 0 {
			score := r.Own(results[len(results)-1].Score)
			rows[i].Objective = &score
		}
	}
	return rows
}

// Own gives a score in the user's own sign.
func (r *Record) Own(score float64) float64 {
	if r.Experiment.Objective.Minimise {
		return -score
	}
	return score
}

// Words are parameters or a setting as a person reads them, in the order of their names.
func Words[T any](values map[string]T) string {
	words := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		words = append(words, fmt.Sprintf("%s=%s", name, short(values[name])))
	}
	return strings.Join(words, " ")
}

// short is a value with as many digits as people compare.
func short(value any) string {
	x, ok := value.(float64)
	if v, is := value.(search.Value); is {
		x, ok = v.Float()
	}
	if !ok || x == math.Trunc(x) {
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("%.4g", x)
}

// Progress is the best score that any trial had reached, at each time at which it became better. What breaks a constraint does not count, nor what failed.
func (r *Record) Progress() []Moment {
	var all []Moment
	for i, t := range r.History() {
		for _, d := range r.Trials[i].Done {
			if score, there := t.At(d.Epoch); there && t.State != search.Failed && !math.IsInf(score, -1) {
				all = append(all, Moment{d.At, score})
			}
		}
	}
	slices.SortFunc(all, func(x, y Moment) int { return x.At.Compare(y.At) })
	var better []Moment
	for _, m := range all {
		if len(better) == 0 || m.Score > better[len(better)-1].Score {
			better = append(better, m)
		}
	}
	return better
}

// Moment is a score and when it was reached.
type Moment struct {
	At    time.Time
	Score float64
}
