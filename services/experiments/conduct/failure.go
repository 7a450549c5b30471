package conduct

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// AttemptLost notes that an attempt of a trial's job came to a bad end. Where its processes ended by themselves, the setting is to blame if it was changed since the trial
// began and no epoch has ended under it: the trial cannot run so. Larger steps than the submitted ones (enlarged) may have had no memory of the device under any setting.
func (r *Record) AttemptLost(job train.JobID, attempt int, exit train.Exit, enlarged bool) {
	t := r.trial(job)
	byThemselves := !exit.Lost && !exit.Forced && (exit.Code != 0 || exit.Signal != "")
	noMemory := exit.OutOfDeviceMemory()
	if t == nil || len(t.Done) == 0 || !byThemselves || noMemory && enlarged {
		return
	}
	var suspects []string
	if noMemory && r.Experiment.Job.SharedMemory() > 0 { // a neighbour may have had what it lacked, unless it needs more itself
		suspects = []string{file.MicroBatch, file.Devices}
	}
	if setting, untried := t.untried(attempt, r.launched(t), suspects); untried && !t.failed(setting) {
		t.Failed = append(t.Failed, setting)
	}
}

// untried is the setting that an attempt had at its end, if it is not the trial's first one and no epoch has ended under it. Only the suspects count, or all parameters where
// none are named, and what was refused does not: that the attempt never had. An attempt of which nothing was told had what was wanted when it was started.
func (t *Trial) untried(attempt int, launched pipeline.Setting, suspects []string) (pipeline.Setting, bool) {
	last, waits := train.Applied{Generation: uint64(len(t.Settings))}, false
	for _, a := range t.Applied {
		if a.Attempt == attempt && t.wanted(a) {
			last, waits = a, t.awaitsStart(a)
		}
	}
	setting := t.Settings[last.Generation-1]
	same := func(s pipeline.Setting) bool {
		for name, value := range setting {
			_, refused := last.Refused[name]
			if suspect := len(suspects) == 0 || slices.Contains(suspects, name); suspect && !refused && s[name] != value {
				return false
			}
		}
		return true
	}
	ended := func(e Epoch) bool {
		s, refused, whole := t.settingOf(e, launched)
		return e.Attempt == attempt && e.At.After(last.At) || whole && !refused && same(s)
	}
	return setting, !same(t.Settings[0]) && !waits && !slices.ContainsFunc(t.Done, ended)
}

// failed says whether the trial could not run at a setting.
func (t *Trial) failed(s pipeline.Setting) bool { return slices.ContainsFunc(t.Failed, s.Equal) }
