package curve

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// twinError is the possible relative error of a step time of a job with the same command, kinError that of one with
	// other values of its flags, and scaledError that of the latter after it was scaled to steps of the job itself.
	twinError   = 0.05
	kinError    = 0.4
	scaledError = 0.1
)

// Lend returns step times for configurations that a job has not run on, from twins (jobs with the same command) and
// kin (with other values of its flags, which may cost time). Times of kin are scaled to those of the job and its twins,
// if there are any, and jobs that disagree make a time less certain.
func Lend(h History, own, twins, kin []StepSample) []StepSample {
	lent := merge(without(twins, own), twinError)
	known := slices.Concat(own, lent)
	others := merge(without(kin, known), kinError)
	if len(others) == 0 || len(known) == 0 {
		return append(lent, others...)
	}
	// The form of all their samples, on the configurations that are known, too.
	shape := refitSpeed(History{Kind: h.Kind, On: h.On, Steps: merge(kin, kinError)})
	var missed []float64
	for _, s := range known {
		if inRange(s.StepSeconds) {
			missed = append(missed, math.Log(s.StepSeconds/shape.StepSeconds(s.Config)))
		}
	}
	if len(missed) == 0 {
		return append(lent, others...)
	}
	scale := math.Exp(median(missed))
	for _, o := range others {
		o.StepSeconds, o.Error = o.StepSeconds*scale, min(o.Error, scaledError)
		lent = append(lent, o)
	}
	return lent
}

// merge returns the geometric mean of the samples of each configuration. Its error is the spread of the samples, and an
// n-th of that of a single one.
func merge(samples []StepSample, single float64) []StepSample {
	logs := map[train.Config][]float64{}
	var merged []StepSample
	for _, s := range samples {
		if !inRange(s.StepSeconds) || !plausible(s.Config) {
			continue
		}
		if len(logs[s.Config]) == 0 {
			merged = append(merged, StepSample{Config: s.Config, StepSeconds: s.StepSeconds, Weight: 1, Error: single})
		}
		logs[s.Config] = append(logs[s.Config], math.Log(s.StepSeconds))
	}
	for i := range merged {
		m := &merged[i]
		if each := logs[m.Config]; len(each) > 1 {
			mean, deviation := Moments(each)
			m.StepSeconds, m.Error = math.Exp(mean), min(math.Expm1(deviation)+single/float64(len(each)), 1)
		}
	}
	return merged
}

// Moments returns the mean and the standard deviation of values; a single one does not deviate.
func Moments(values []float64) (mean, deviation float64) {
	if mean = stat.Mean(values, nil); len(values) > 1 {
		deviation = stat.StdDev(values, nil)
	}
	return mean, deviation
}

// Ran returns the step times of the history itself.
func (h History) Ran() []StepSample { return slices.Concat(h.Steps, stepsOfEpochs(h)) }

// With returns the history with step times of other jobs added for configurations this one has not run on.
func (h History) With(others []StepSample) History {
	h.Steps = slices.Concat(h.Steps, without(others, h.Ran()))
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
