package conduct

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

// AttemptLost records the failure of an attempt of a trial's job. If its processes ended by themselves, the setting is
// to blame if it was changed since the trial began and no epoch has ended under it: the trial cannot run with it. Steps
// larger than submitted (enlarged) may have run out of device memory under any setting.
func (r *Record) AttemptLost(job train.JobID, attempt int, exit train.Exit, enlarged bool) {
	t := r.trial(job)
	byThemselves := !exit.Lost && !exit.Forced && (exit.Code != 0 || exit.Signal != "")
	noMemory := exit.OutOfDeviceMemory()
	if t == nil || len(t.Done) == 0 || !byThemselves || noMemory && enlarged {
		return
	}
	var suspects []string
	// A co-runner may have used the missing memory, unless the setting itself needs more.
	if noMemory && r.Experiment.Job.SharedMemory() > 0 {
		suspects = []string{file.MicroBatch, file.Devices}
	}
	if setting, untried := untriedSetting(t, attempt, r.launched(t), suspects); untried && !failedWith(t, setting) {
		t.Failed = append(t.Failed, setting)
	}
}

// untriedSetting returns the setting of an attempt at its end; untried is true if it is not the trial's first one and
// no epoch has ended under it. Only the suspects count, or all parameters if none are named. Refused values do not
// count: the attempt never had them. An attempt without a report had the setting wanted at its start.
func untriedSetting(t *contract.Trial, attempt int, launched contract.SettingValues, suspects []string) (contract.SettingValues, bool) {
	last, waits := train.Applied{Generation: uint64(len(t.Settings))}, false
	for _, a := range t.Applied {
		if a.Attempt == attempt && isWanted(t, a) {
			last, waits = a, awaitsStart(t, a)
		}
	}
	setting := t.Settings[last.Generation-1]
	same := func(s contract.SettingValues) bool {
		for name, value := range setting {
			_, refused := last.Refused[name]
			if suspect := len(suspects) == 0 || slices.Contains(suspects, name); suspect && !refused && s[name] != value {
				return false
			}
		}
		return true
	}
	ended := func(e contract.TrialEpoch) bool {
		s, refused, whole := settingOf(t, e, launched)
		return e.Attempt == attempt && e.At.After(last.At) || whole && !refused && same(s)
	}
	return setting, !same(t.Settings[0]) && !waits && !slices.ContainsFunc(t.Done, ended)
}

// failedWith reports whether the trial could not run at a setting.
func failedWith(t *contract.Trial, s contract.SettingValues) bool {
	return slices.ContainsFunc(t.Failed, s.Equal)
}
