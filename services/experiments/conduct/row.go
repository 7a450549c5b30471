package conduct

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Row is one line of the table of trials.
type Row struct {
	Trial  int                 `json:"trial"`
	Job    train.JobID         `json:"job"`
	Params search.Params       `json:"params"`
	State  contract.TrialState `json:"state"`
	Reason string              `json:"reason,omitempty"`
	Epochs int                 `json:"epochs_done"`
	// Objective is the newest one, in the user's own sign; left out without a result, and once it is no number.
	Objective *float64 `json:"objective,omitempty"`
	Best      bool     `json:"best,omitempty"`
	// QueueSeconds is the time from the decision to the first process, TrainSeconds the sum of its epochs.
	QueueSeconds float64 `json:"queue_seconds"`
	TrainSeconds float64 `json:"train_seconds"`
	EnergyJoules float64 `json:"energy_j,omitempty"`
	// Modelled reports that the energy is not measured.
	Modelled bool `json:"energy_modelled,omitempty"`
	// Setting is its last setting, Changes how often the setting changed while it ran.
	Setting contract.SettingValues `json:"setting,omitempty"`
	Changes int                    `json:"setting_changes"`
}

// Rows returns all trials in the order in which they were started.
func (r *Record) Rows() []Row {
	best, _, _ := r.Best()
	rows := make([]Row, len(r.Trials))
	for i := range r.Trials {
		t, record := &r.Trials[i], (*contract.ExperimentRecord)(r)
		rows[i] = Row{
			Trial: t.ID, Job: t.Job, Params: t.Params, State: t.State, Reason: record.Explain(t), Epochs: t.EpochsDone(), Best: best == t,
			TrainSeconds: t.Seconds(), EnergyJoules: t.Spent(), Modelled: t.Modelled, Setting: t.Setting(), Changes: len(t.Settings) - 1,
		}
		if !t.RunAt.IsZero() {
			rows[i].QueueSeconds = max(t.RunAt.Sub(t.DecidedAt).Seconds(), 0)
		}
		if newest := record.Newest(t); newest != nil {
			rows[i].Objective = &newest.Value
		}
	}
	return rows
}

// Own converts a score into the user's own sign, and back.
func (r *Record) Own(score float64) float64 {
	if r.Experiment.Objective.Minimise {
		return -score
	}
	return score
}

// Words formats parameters or a setting for people, in the order of their names.
func Words[T any](values map[string]T) string {
	words := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		words = append(words, fmt.Sprintf("%s=%s", name, short(values[name])))
	}
	return strings.Join(words, " ")
}

// short formats a value with a useful number of digits.
func short(value any) string {
	x, ok := value.(float64)
	if v, is := value.(contract.Value); is {
		x, ok = v.Float()
	}
	if !ok || x == math.Trunc(x) {
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("%.4g", x)
}

// Progress returns the best result reached by any trial each time that it improved. Trials that failed, and results
// that break a constraint, do not count.
func (r *Record) Progress() []contract.Result {
	var all, better []contract.Result
	for i := range r.Trials {
		if t := &r.Trials[i]; t.State != search.Failed {
			all = append(all, (*contract.ExperimentRecord)(r).Results(t)...)
		}
	}
	slices.SortStableFunc(all, func(x, y contract.Result) int { return x.At.Compare(y.At) })
	for _, one := range all {
		if !one.Broken && (len(better) == 0 || r.Experiment.Objective.Surpasses(one, better[len(better)-1])) {
			better = append(better, one)
		}
	}
	return better
}
