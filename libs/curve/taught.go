package curve

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// MaxTaught bounds how many signatures Teachings remember; the one that was added to first goes.
const MaxTaught = 1000

// Teachings are the step times of jobs that have ended, by signature: a new job of a kind starts with the points of the kind. The zero value is ready.
type Teachings struct {
	bySignature map[string][]StepSample
	order       []string
}

// Add keeps what a job has measured itself. The newest of several measurements of a configuration counts: the machines may have changed.
func (t *Teachings) Add(signature string, h History) {
	measured := Refit(h).Speed.Measured
	if signature == "" || len(measured) == 0 {
		return
	}
	if t.bySignature == nil {
		t.bySignature = map[string][]StepSample{}
	}
	known, had := t.bySignature[signature]
	if !had {
		if t.order = append(t.order, signature); len(t.order) > MaxTaught {
			delete(t.bySignature, t.order[0])
			t.order = t.order[1:]
		}
	}
	samples := make([]StepSample, len(measured))
	for i, m := range measured {
		samples[i] = StepSample{Config: m.Config, StepSeconds: m.StepSeconds, Weight: 1}
	}
	t.bySignature[signature] = append(samples, without(known, samples)...)
}

// Of are the step times that jobs of a signature have measured.
func (t *Teachings) Of(signature string) []StepSample { return t.bySignature[signature] }

// With is the history with step times lent by other jobs, for configurations on which this one has not run.
func (h History) With(lent []StepSample) History {
	ran := slices.Clone(h.Steps)
	for _, e := range h.Epochs {
		ran = append(ran, StepSample{Config: e.Config})
	}
	h.Steps = slices.Concat(h.Steps, without(lent, ran))
	return h
}

// without are the samples on configurations that others do not have.
func without(samples, others []StepSample) []StepSample {
	known := make(map[train.Config]bool, len(others))
	for _, o := range others {
		known[o.Config] = true
	}
	return slices.DeleteFunc(slices.Clone(samples), func(s StepSample) bool { return known[s.Config] })
}
