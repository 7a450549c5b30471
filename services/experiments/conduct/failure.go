package conduct

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// AttemptLost notes that an attempt of a trial's job came to a bad end. Where its processes ended by themselves, the setting is to blame if it was changed since the trial
// began and no epoch has ended under it: the trial cannot run so.
func (r *Record) AttemptLost(job train.JobID, attempt int, exit train.Exit) {
	t := r.trial(job)
	byThemselves := !exit.Lost && !exit.Forced && (exit.Code != 0 || exit.Signal != "")
	if t == nil || len(t.Done) == 0 || !byThemselves {
		return
	}
	if setting, untried := t.untried(attempt, r.launched(t)); untried && !t.failed(setting) {
		t.Failed = append(t.Failed, setting)
	}
}

// untried is the setting that an attempt had at its end, if it is not the trial's first one and no epoch has ended under it. An attempt of which nothing was told had what
// was wanted when it was started.
func (t *Trial) untried(attempt int, launched pipeline.Setting) (pipeline.Setting, bool) {
	generation, since, waits := len(t.Settings), time.Time{}, false
	for _, a := range t.Applied {
		if a.Attempt == attempt && t.wanted(a) {
			generation, since, waits = int(a.Generation), a.At, t.awaitsStart(a)
		}
	}
	setting := t.Settings[generation-1]
	ended := func(e Epoch) bool {
		s, refused, whole := t.settingOf(e, launched)
		return e.Attempt == attempt && e.At.After(since) || whole && !refused && s.Equal(setting)
	}
	return setting, generation > 1 && !waits && !slices.ContainsFunc(t.Done, ended)
}

// failed says whether the trial could not run at a setting.
func (t *Trial) failed(s pipeline.Setting) bool { return slices.ContainsFunc(t.Failed, s.Equal) }
