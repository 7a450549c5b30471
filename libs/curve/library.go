package curve

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// MaxSignatures bounds the signatures in a SampleLibrary; the one added first goes.
const MaxSignatures = 1000

// SampleLibrary holds the step times of ended jobs by signature; a new job starts from those of its signature. The zero
// value is ready for use.
type SampleLibrary struct {
	bySignature map[string][]StepSample
	order       []string
}

// Add keeps the job's own measurements. The newest measurement of a configuration replaces older ones, since the
// machines may have changed.
func (t *SampleLibrary) Add(signature string, h History) {
	measured := Refit(h).Speed.Measured
	if signature == "" || len(measured) == 0 {
		return
	}
	if t.bySignature == nil {
		t.bySignature = map[string][]StepSample{}
	}
	known, had := t.bySignature[signature]
	if !had {
		if t.order = append(t.order, signature); len(t.order) > MaxSignatures {
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

// Of returns the step times measured by jobs of a signature.
func (t *SampleLibrary) Of(signature string) []StepSample { return t.bySignature[signature] }

// With returns the history with step times of other jobs added for configurations this one has not run on.
func (h History) With(others []StepSample) History {
	ran := slices.Clone(h.Steps)
	for _, e := range h.Epochs {
		ran = append(ran, StepSample{Config: e.Config})
	}
	h.Steps = slices.Concat(h.Steps, without(others, ran))
	return h
}

// without returns the samples on configurations that others do not have.
func without(samples, others []StepSample) []StepSample {
	known := make(map[train.Config]bool, len(others))
	for _, o := range others {
		known[o.Config] = true
	}
	return slices.DeleteFunc(slices.Clone(samples), func(s StepSample) bool { return known[s.Config] })
}
