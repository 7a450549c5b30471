package conduct

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// retune decides on the system parameters of a running trial, once after each epoch. From a setting that has failed it goes back to the cheapest one at once.
func (r *Record) retune(t *Trial, known profile.Store, now time.Time) {
	failed := r.pipelines() && t.State == search.Running && t.failed(t.Setting())
	if !failed && !r.undecided(t) {
		return
	}
	trial, records := r.pipelined(t, known), known.Records()
	if failed {
		t.SettingAfter = len(t.Done)
		t.want(pipeline.Known{}.Next(&trial, pipeline.Learn(records, &trial)))
		return
	}
	_, _, whole := t.settingOf(t.Done[len(t.Done)-1], r.launched(t))
	if whole && r.awaits(t, &trial, records, now) {
		return
	}
	if t.SettingAfter = len(t.Done); whole { // else what was changed last has not shown yet what it does
		t.want(r.rule().Next(&trial, records))
	}
}

// Undecided says whether the system parameters of a trial will be decided on as soon as more is told of its epochs.
func (r *Record) Undecided() bool {
	return slices.ContainsFunc(r.Trials, func(t Trial) bool { return r.undecided(&t) })
}

func (r *Record) undecided(t *Trial) bool {
	return r.pipelines() && t.State == search.Running && len(t.Done) > t.SettingAfter
}

// tellingPatience is how long a decision waits for what nodes measured of an epoch: they tell it within a second or two.
const tellingPatience = 5 * time.Second

// awaits says whether a decision would be taken without what is about to be told: the profile of a workload of which nothing is known, or the joules that an epoch took at a
// setting that was new to its workload.
func (r *Record) awaits(t *Trial, trial *pipeline.Trial, records []pipeline.Record, now time.Time) bool {
	recent := func(e Epoch) bool { return now.Sub(e.At).Abs() <= tellingPatience } // the clock is the node's
	if t.Profile == nil && recent(t.Done[0]) && !trial.Known(records) {
		return true
	}
	e := t.Done[t.SettingAfter]
	return r.unit() == InJoules && t.SettingAfter > 0 && e.Joules == 0 && recent(e) && !trial.Measured(trial.Ended[t.SettingAfter].Setting, records)
}

// want changes the setting, if it is another one.
func (t *Trial) want(s pipeline.Setting) {
	if !s.Equal(t.Setting()) {
		t.Settings = append(t.Settings, s)
	}
}

// pipelines says whether system parameters are tuned inside trials.
func (r *Record) pipelines() bool {
	return r.Experiment.Mode == file.PipeTune && len(r.Experiment.System) > 0
}

// rule decides on system parameters. A recurring job runs with what is known and probes nothing.
func (r *Record) rule() pipeline.Rule {
	if r.Recurs != nil {
		return pipeline.Known{}
	}
	rule := pipeline.StandardRule()
	rule.Again = max(rule.Again, r.again())
	rule.Changes = r.changes()
	return rule
}

// again is how many more trials of a workload are expected: those that are left are spread over the workloads of the space.
func (r *Record) again() float64 {
	return float64(r.Experiment.Search.Trials-len(r.Trials)) / r.workloads()
}

const batchSize = "batch_size"

// pipelined is the trial as the rules of system parameters see it. An epoch in which a change fell counts as one, and says nothing of what a setting costs: what it took
// itself is part of the price of changes.
func (r *Record) pipelined(t *Trial, known profile.Store) pipeline.Trial {
	batch, _ := t.Params[batchSize].Float()
	if batch == 0 {
		batch = float64(r.Experiment.Job.BatchSize)
	}
	trial := pipeline.Trial{Workload: r.workload(t.Params, batch), BatchSize: batch, Unit: r.unit(), Epochs: t.Epochs, Settings: r.settings(t, batch), Failed: t.Failed}
	trial.Kind = known.KindOf(trial.Workload, t.signature(trial.Default()))
	launched := r.launched(t)
	for i, e := range t.Done {
		setting, refused, whole := t.settingOf(e, launched)
		epoch := pipeline.Epoch{Setting: setting, Failed: refused}
		if whole && !refused {
			epoch.Cost = r.cost(t, i)
		}
		if epoch.Cost == 0 {
			trial.Changed += cmp.Or(r.cost(t, i), r.price(e.Seconds))
		}
		if t.Profile != nil && whole && setting.Equal(t.Settings[0]) {
			epoch.BusyCores = t.Profile.BusyCores
		}
		trial.Ended = append(trial.Ended, epoch)
	}
	if r.unit() == InSeconds { // joules are counted to the end of each epoch, whatever lies between
		for _, pause := range t.restarts() {
			trial.Changed += pause
		}
	}
	return trial
}

// Units of cost.
const (
	InSeconds = "s"
	InJoules  = "J"
)

// unit of what epochs cost: joules where energy is the objective and is measured. What is modelled follows from the time and is no measurement.
func (r *Record) unit() string {
	if r.Experiment.Objective.Per != file.PerEnergy || r.modelled() || r.Recurs != nil && r.Recurs.Modelled {
		return InSeconds
	}
	return InJoules
}

func (r *Record) modelled() bool {
	return slices.ContainsFunc(r.Trials, func(t Trial) bool { return t.Modelled })
}

// settings are those that may be chosen for a trial, the default first: not those with a number of devices on which its step cannot be split, or that it was
// refused when it was last to have it.
func (r *Record) settings(t *Trial, batch float64) []pipeline.Setting {
	all, refused := r.space().Settings(), map[float64]bool{}
	for _, a := range t.Applied {
		if t.wanted(a) {
			devices := t.Settings[a.Generation-1][file.Devices]
			_, refused[devices] = a.Refused[file.Devices]
		}
	}
	others := slices.DeleteFunc(all[1:], func(s pipeline.Setting) bool {
		devices, chosen := s[file.Devices]
		return chosen && devices != all[0][file.Devices] && (refused[devices] || !r.Experiment.Splits(batch, devices))
	})
	return all[:1+len(others)]
}

func (r *Record) space() pipeline.Space {
	space := make(pipeline.Space, len(r.Experiment.System))
	for i, f := range r.Experiment.System {
		space[i] = pipeline.Factor{Name: f.Name, Values: f.Values}
		if f.Fixed && r.Experiment.Mode == file.PipeTune {
			space[i].Values = f.Values[:1]
		}
	}
	return space
}

// cost of an epoch; 0 where it is not known: the ledger has to tell what was used up to its end, and up to that of the one before, after which nothing else came. What
// was used up to the end of an attempt's first epoch is that of the program's start, too.
func (r *Record) cost(t *Trial, i int) float64 {
	if r.unit() == InSeconds {
		return t.Done[i].Seconds
	}
	if i == 0 || t.Done[i-1].Joules == 0 || t.Done[i-1].Attempt != t.Done[i].Attempt {
		return 0
	}
	return max(t.Done[i].Joules-t.Done[i-1].Joules, 0)
}

// settling is the part of an epoch at its beginning in which a change may fall: what is decided when an epoch ends is applied a moment after the next began.
const settling = 0.05

// launched is what the processes of a trial have where nothing is set while they run: the defaults, and devices as they were submitted.
func (r *Record) launched(t *Trial) pipeline.Setting {
	launched := r.Experiment.Setting(nil)
	if devices, ok := t.Settings[0][file.Devices]; ok && !r.Experiment.SizesTrials() {
		launched[file.Devices] = devices
	}
	return launched
}

// settingOf is under which setting an epoch ran; whole is false where there was none for all of it. refused says that the processes did not have all of it: the
// back end could not set a value, and it is not the one that they had before: what was applied to them last, or what they were launched with. On how many devices
// it ran the epoch itself tells: where others were refused it counts for these.
func (t *Trial) settingOf(e Epoch, launched pipeline.Setting) (setting pipeline.Setting, refused, whole bool) {
	begun := e.At.Add(-time.Duration((1 - settling) * e.Seconds * float64(time.Second)))
	var last *train.Applied
	had := pipeline.Setting{}
	maps.Copy(had, launched)
	for i := range t.Applied {
		a := &t.Applied[i]
		switch {
		case a.Attempt != e.Attempt || a.At.After(e.At) || !t.wanted(*a):
		case a.At.After(begun):
			return t.Settings[0], false, false
		default:
			last = a
			maps.Copy(had, a.Values)
		}
	}
	if last == nil || len(t.pending(*last)) > 0 {
		return t.Settings[0], false, false
	}
	setting = t.Settings[last.Generation-1]
	for name := range last.Refused {
		if name == file.Devices && e.Devices > 0 {
			setting = maps.Clone(setting)
			setting[name] = float64(e.Devices)
			continue
		}
		refused = refused || setting[name] != had[name]
	}
	if n, chosen := setting[file.Devices]; chosen && e.Devices > 0 && n != float64(e.Devices) {
		return t.Settings[0], false, false
	}
	return setting, refused, true
}

// wanted says whether what was applied is one of the trial's settings.
func (t *Trial) wanted(a train.Applied) bool {
	return a.Generation > 0 && a.Generation <= uint64(len(t.Settings))
}

// pending are the parameters of its setting that an attempt has yet to get.
func (t *Trial) pending(a train.Applied) []string {
	if !t.wanted(a) {
		return nil
	}
	return a.Pending(t.Settings[a.Generation-1])
}

// FirstSetting is from when to when the trial has trained with the setting that it began with.
func (t *Trial) FirstSetting() (from, to time.Time) {
	for _, e := range t.Done {
		if from.IsZero() {
			from = e.At.Add(-time.Duration(e.Seconds * float64(time.Second)))
		}
		to = e.At
	}
	for _, a := range t.Applied {
		if a.Generation > 1 && a.At.Before(to) {
			to = a.At
		}
	}
	return from, to
}

// Learn adds what the trials that have ended or paused showed since it was learnt last, each epoch once: the ground truth notes what it has heard, since it may have
// been kept and this record not. At which settings trials cannot run is learnt at once.
func (r *Record) Learn(known profile.Store) profile.Store {
	for i := range r.Trials {
		t := &r.Trials[i]
		ended, failed := t.State != search.Running && t.Learnt < len(t.Done), t.FailuresLearnt < len(t.Failed)
		if !ended && !failed || len(r.Experiment.System) == 0 {
			continue
		}
		trial := r.pipelined(t, known)
		if t.FailuresLearnt = len(t.Failed); !ended {
			trial.Ended = nil
			known = known.Learn(&trial, nil)
			continue
		}
		trial.Ended = trial.Ended[t.learnt(known):]
		t.Learnt = len(t.Done)
		signature := t.signature(trial.Default())
		if t.Profile != nil {
			t.Profile.Signature = nil // from now on the ground truth has it alone
		}
		if len(trial.Ended) == 0 && !failed {
			continue
		}
		last := t.Done[len(t.Done)-1]
		known = known.Learn(&trial, signature).Hears(profile.Heard{Training: string(t.Job), Attempt: last.Attempt, Epoch: last.Epoch})
	}
	return known
}

// signature is that of the trial's profile, nil where there is none or it was taken at another setting than the default: rates are compared at the defaults of workloads.
func (t *Trial) signature(base pipeline.Setting) profile.Signature {
	if t.Profile == nil || !t.Settings[0].Equal(base) {
		return nil
	}
	return t.Profile.Signature
}

// learnt is how many of Done the ground truth has.
func (t *Trial) learnt(known profile.Store) int {
	heard, noted := known.HeardOf(string(t.Job))
	i := slices.IndexFunc(t.Done, func(e Epoch) bool { return e.Attempt == heard.Attempt && e.Epoch == heard.Epoch })
	if !noted || i < 0 {
		return t.Learnt
	}
	return max(t.Learnt, i+1)
}
