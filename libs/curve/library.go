package curve

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// MaxSignatures bounds the signatures and families of which something is remembered; the one added first goes.
const MaxSignatures = 1000

// shelf holds values by the name of their owner.
type shelf[T any] struct {
	byName map[string][]T
	order  []string
}

// Of returns the values of a name.
func (s *shelf[T]) Of(name string) []T { return s.byName[name] }

// put replaces the values of a name.
func (s *shelf[T]) put(name string, values []T) {
	if s.byName == nil {
		s.byName = map[string][]T{}
	}
	if _, known := s.byName[name]; !known {
		if s.order = append(s.order, name); len(s.order) > MaxSignatures {
			delete(s.byName, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.byName[name] = values
}

// SampleLibrary holds the step times of ended jobs by signature; a new job starts from those of its signature. The zero
// value is ready for use.
type SampleLibrary struct{ shelf[StepSample] }

// Add keeps the job's own measurements. The newest measurement of a configuration replaces older ones, since the
// machines may have changed.
func (t *SampleLibrary) Add(signature string, h History) {
	measured := Refit(h).Speed.Measured
	if signature == "" || len(measured) == 0 {
		return
	}
	samples := make([]StepSample, len(measured))
	for i, m := range measured {
		samples[i] = StepSample{Config: m.Config, StepSeconds: m.StepSeconds, Weight: 1}
	}
	t.put(signature, append(samples, without(t.Of(signature), samples)...))
}

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
