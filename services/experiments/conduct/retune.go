package conduct

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// retune decides on the system parameters of a running trial, once after each epoch. From a failed setting it returns
// to the cheapest one at once.
func (r *Record) retune(t *contract.Trial, known profile.Store, now time.Time) {
	failed := r.pipelines() && t.State == search.Running && failedWith(t, t.Setting())
	if !failed && !r.undecided(t) {
		return
	}
	trial, records := r.pipelined(t, known), known.Records()
	if failed {
		t.SettingAfter = len(t.Done)
		wantSetting(t, pipeline.Known{}.Next(&trial, pipeline.Learn(records, &trial)))
		return
	}
	_, _, whole := settingOf(t, t.Done[len(t.Done)-1], r.launched(t))
	if whole && r.awaits(t, &trial, records, now) {
		return
	}
	if t.SettingAfter = len(t.Done); whole { // else the effect of the last change is not visible yet
		wantSetting(t, r.rule().Next(&trial, records))
	}
}

// Undecided reports whether the system parameters of a trial will be decided as soon as more about its epochs arrives.
func (r *Record) Undecided() bool {
	return slices.ContainsFunc(r.Trials, func(t contract.Trial) bool { return r.undecided(&t) })
}

func (r *Record) undecided(t *contract.Trial) bool {
	return r.pipelines() && t.State == search.Running && len(t.Done) > t.SettingAfter
}

// measurementPatience is how long a decision waits for the nodes' measurements of an epoch: they arrive within a second
// or two.
const measurementPatience = 5 * time.Second

// awaits reports whether an expected measurement should be waited for: the profile of an unknown workload, or the
// joules of an epoch at a setting that was new to its workload.
func (r *Record) awaits(t *contract.Trial, trial *pipeline.Trial, records []contract.WorkloadCosts, now time.Time) bool {
	recent := func(e contract.TrialEpoch) bool { return now.Sub(e.At).Abs() <= measurementPatience } // by the node's clock
	if t.Profile == nil && recent(t.Done[0]) && !trial.Known(records) {
		return true
	}
	e := t.Done[t.SettingAfter]
	return r.unit() == InJoules && t.SettingAfter > 0 && e.Joules == 0 && recent(e) &&
		!trial.Measured(trial.Ended[t.SettingAfter].Setting, records)
}

// wantSetting changes the setting if it differs.
func wantSetting(t *contract.Trial, s contract.SettingValues) {
	if !s.Equal(t.Setting()) {
		t.Settings = append(t.Settings, s)
	}
}

// pipelines reports whether system parameters are tuned inside trials.
func (r *Record) pipelines() bool {
	return r.Experiment.Mode == file.PipeTune && len(r.Experiment.System) > 0
}

// rule returns the rule for system parameters. A recurring job uses the known setting and probes nothing.
func (r *Record) rule() pipeline.Rule {
	if r.Recurs != nil {
		return pipeline.Known{}
	}
	rule := pipeline.StandardRule()
	rule.Again = max(rule.Again, r.again())
	rule.Changes = r.changes()
	return rule
}

// again returns the number of further trials expected of a workload: the remaining trials are spread over the workloads
// of the space.
func (r *Record) again() float64 {
	return float64(r.Experiment.Search.Trials-len(r.Trials)) / r.workloads()
}

const batchSize = "batch_size"

// pipelined returns the trial as the rules of system parameters see it. An epoch during which a change took place
// counts as an epoch, but not for any setting: its own time is part of the price of changes.
func (r *Record) pipelined(t *contract.Trial, known profile.Store) pipeline.Trial {
	batch, _ := t.Params[batchSize].Float()
	if batch == 0 {
		batch = float64(r.Experiment.Job.BatchSize)
	}
	trial := pipeline.Trial{Workload: r.workload(t.Params, batch), Name: r.title(t.Params), BatchSize: batch, Unit: r.unit(), Epochs: t.Epochs, Settings: r.settings(t, batch), Failed: t.Failed}
	trial.Kind = known.KindOf(trial.Workload, signatureOf(t, trial.Default()))
	launched := r.launched(t)
	for i, e := range t.Done {
		setting, refused, whole := settingOf(t, e, launched)
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
	if r.unit() == InSeconds { // joules are counted up to the end of each epoch, including what lies between
		for _, pause := range restartSeconds(t) {
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

// unit returns the unit of costs: joules if energy is the objective and is measured. Modelled energy follows from the
// time and is not a measurement.
func (r *Record) unit() string {
	if r.Experiment.Objective.Per != contract.PerEnergy || r.modelled() || r.Recurs != nil && r.Recurs.Modelled {
		return InSeconds
	}
	return InJoules
}

func (r *Record) modelled() bool {
	return slices.ContainsFunc(r.Trials, func(t contract.Trial) bool { return t.Modelled })
}

// settings returns the settings that may be chosen for a trial, the default first. It leaves out numbers of devices
// over which its step cannot be split, or that were refused to it last time.
func (r *Record) settings(t *contract.Trial, batch float64) []contract.SettingValues {
	all, refused := r.space().Settings(), map[float64]bool{}
	for _, a := range t.Applied {
		if isWanted(t, a) {
			devices := t.Settings[a.Generation-1][file.Devices]
			_, refused[devices] = a.Refused[file.Devices]
		}
	}
	others := slices.DeleteFunc(all[1:], func(s contract.SettingValues) bool {
		devices, chosen := s[file.Devices]
		return chosen && devices != all[0][file.Devices] && (refused[devices] || !r.experiment().Splits(batch, devices))
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

// cost returns the cost of an epoch; 0 if unknown. In joules it needs the energy at its end and at the end of the one
// before, in the same attempt: the energy up to an attempt's first epoch includes the program's start.
func (r *Record) cost(t *contract.Trial, i int) float64 {
	if r.unit() == InSeconds {
		return t.Done[i].Seconds
	}
	if i == 0 || t.Done[i-1].Joules == 0 || t.Done[i-1].Attempt != t.Done[i].Attempt {
		return 0
	}
	return max(t.Done[i].Joules-t.Done[i-1].Joules, 0)
}

// settling is the fraction of an epoch, at its beginning, during which a change may take effect: a decision at the end
// of an epoch is applied shortly after the next one began.
const settling = 0.05

// launched returns the setting of the trial's processes if nothing is set while they run: the defaults, and the
// submitted devices.
func (r *Record) launched(t *contract.Trial) contract.SettingValues {
	launched := r.experiment().Setting(nil)
	if devices, ok := t.Settings[0][file.Devices]; ok && !r.experiment().SizesTrials() {
		launched[file.Devices] = devices
	}
	return launched
}

// settingOf returns the setting an epoch ran under. whole is false if the setting changed during the epoch or is
// unknown. refused reports that the processes did not have all of it: the back end could not set a value that differs
// from the one they had before (the last one applied, or the one at launch). The epoch itself reports its number of
// devices: if other numbers were refused, it counts for its own.
func settingOf(t *contract.Trial, e contract.TrialEpoch, launched contract.SettingValues) (setting contract.SettingValues, refused, whole bool) {
	begun := e.At.Add(-time.Duration((1 - settling) * e.Seconds * float64(time.Second)))
	var last *train.Applied
	had := contract.SettingValues{}
	maps.Copy(had, launched)
	for i := range t.Applied {
		a := &t.Applied[i]
		switch {
		case a.Attempt != e.Attempt || a.At.After(e.At) || !isWanted(t, *a):
		case a.At.After(begun):
			return t.Settings[0], false, false
		default:
			last = a
			maps.Copy(had, a.Values)
		}
	}
	if last == nil || len(pendingNames(t, *last)) > 0 {
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

// isWanted reports whether what was applied is one of the trial's settings.
func isWanted(t *contract.Trial, a train.Applied) bool {
	return a.Generation > 0 && a.Generation <= uint64(len(t.Settings))
}

// pendingNames returns the parameters of its setting that an attempt has yet to get.
func pendingNames(t *contract.Trial, a train.Applied) []string {
	if !isWanted(t, a) {
		return nil
	}
	return a.Pending(t.Settings[a.Generation-1])
}

// FirstSetting returns the period in which the trial trained with its first setting.
func FirstSetting(t *contract.Trial) (from, to time.Time) {
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

// Learn adds the results of the trials that ended or paused since the last call, each epoch once: the ground truth
// stores its own positions, since it may have been stored when this record was not. It learns at once at which settings
// trials cannot run.
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
		trial.Ended = trial.Ended[learntEpochs(t, known):]
		t.Learnt = len(t.Done)
		signature := signatureOf(t, trial.Default())
		if t.Profile != nil {
			t.Profile.Signature = nil // from now on only the ground truth has it
		}
		if len(trial.Ended) == 0 && !failed {
			continue
		}
		last := t.Done[len(t.Done)-1]
		known = known.Learn(&trial, signature).WithPosition(contract.LearntUpTo{Training: string(t.Job), Attempt: last.Attempt, Epoch: last.Epoch})
	}
	return known
}

// signatureOf returns the signature of the trial's profile, or nil if there is none or it was not measured at the
// default setting: rates are compared at the defaults of workloads.
func signatureOf(t *contract.Trial, base contract.SettingValues) contract.Signature {
	if t.Profile == nil || !t.Settings[0].Equal(base) {
		return nil
	}
	return t.Profile.Signature
}

// learntEpochs returns the number of epochs of Done that the ground truth has.
func learntEpochs(t *contract.Trial, known profile.Store) int {
	heard, noted := known.PositionOf(string(t.Job))
	i := slices.IndexFunc(t.Done, func(e contract.TrialEpoch) bool { return e.Attempt == heard.Attempt && e.Epoch == heard.Epoch })
	if !noted || i < 0 {
		return t.Learnt
	}
	return max(t.Learnt, i+1)
}
