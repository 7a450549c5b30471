package profiler

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// maxTaught bounds how many signatures are remembered; the one that was added to first goes.
const maxTaught = 1000

// teachings are the step times of jobs that have ended, by signature: a new job of a kind starts with the points of the kind. They follow from the facts of
// the past alone, so a restart finds the same.
type teachings struct {
	bySignature map[string][]curve.StepSample
	order       []string
}

// add keeps what a job has measured itself. The newest of several measurements of a configuration counts: the machines may have changed.
func (t *teachings) add(signature string, h curve.History) {
	measured := curve.Refit(h).Speed.Measured
	if signature == "" || len(measured) == 0 {
		return
	}
	known, had := t.bySignature[signature]
	if !had {
		if t.order = append(t.order, signature); len(t.order) > maxTaught {
			delete(t.bySignature, t.order[0])
			t.order = t.order[1:]
		}
	}
	samples := make([]curve.StepSample, len(measured))
	for i, m := range measured {
		samples[i] = curve.StepSample{Config: m.Config, StepSeconds: m.StepSeconds, Weight: 1}
	}
	t.bySignature[signature] = append(samples, without(known, samples)...)
}

func (t *teachings) of(signature string) []curve.StepSample { return t.bySignature[signature] }

// borrowed are the samples of other jobs for configurations that this one has not measured.
func (j *job) borrowed(own []curve.StepSample) []curve.StepSample {
	ran := slices.Clone(own)
	for _, e := range j.history.Epochs {
		ran = append(ran, curve.StepSample{Config: e.Config})
	}
	return without(j.lent, ran)
}

// without are the samples on configurations that others do not have.
func without(samples, others []curve.StepSample) []curve.StepSample {
	known := make(map[train.Config]bool, len(others))
	for _, o := range others {
		known[o.Config] = true
	}
	return slices.DeleteFunc(slices.Clone(samples), func(s curve.StepSample) bool { return known[s.Config] })
}
