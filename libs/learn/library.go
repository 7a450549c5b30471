package learn

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// maxLessons and maxRuns bound what is kept of a family; the oldest goes.
	maxLessons = 64
	maxRuns    = 32
	// news is the ratio of step times from which on a later one is worth new models of others.
	news = 1.1
)

// Library is what jobs teach the others of their family: step times while they run, and how long they ran in all. The
// zero value is ready for use.
type Library struct {
	lessons curve.Shelf[lesson]
	runs    curve.Shelf[whole]
}

// lesson is a step time of a job on a model of device.
type lesson struct {
	curve.StepSample
	signature, device string
}

// whole is a run from its first start to its success.
type whole struct {
	signature, device string
	config            train.Config
	// epochSeconds is the time of running for each epoch that was declared, starts included; stepSeconds is the newest
	// step time, 0 if none was reported.
	epochSeconds, stepSeconds float64
}

// Family is what the jobs of a family are found by; empty for a job whose spec names no program.
func (j *Job) Family() string { return j.Spec.FamilyKey() }

// Learn takes in the step time on the configuration that a job runs on. It returns true if that changes what others of
// the family are lent.
func (l *Library) Learn(j *Job) bool {
	sample, known := j.newest()
	family := j.Family()
	if !known || family == "" {
		return false
	}
	lessons := slices.Clone(l.lessons.Of(family))
	learned := lesson{sample, j.Spec.Signature(), j.device}
	at := slices.IndexFunc(lessons, func(o lesson) bool {
		return o.Config == sample.Config && o.signature == learned.signature && o.device == learned.device
	})
	if at >= 0 {
		before := lessons[at].StepSeconds
		lessons[at] = learned
		l.lessons.Put(family, lessons)
		return math.Max(before/sample.StepSeconds, sample.StepSeconds/before) > news
	}
	lessons = append(lessons, learned)
	l.lessons.Put(family, lessons[max(len(lessons)-maxLessons, 0):])
	return true
}

// Succeeded takes in the whole run of a job that has succeeded. It returns true if that teaches its family anything.
func (l *Library) Succeeded(j *Job) bool {
	family, epochs := j.Family(), j.Spec.Epochs()
	if family == "" || epochs <= 0 || !(j.ranSeconds > 0) {
		return false
	}
	run := whole{j.Spec.Signature(), j.device, j.config(j.attempt, j.devices, j.latest), j.ranSeconds / epochs, 0}
	if sample, known := j.newest(); known {
		run.config, run.stepSeconds = sample.Config, sample.StepSeconds
	}
	runs := append(slices.Clone(l.runs.Of(family)), run)
	l.runs.Put(family, runs[max(len(runs)-maxRuns, 0):])
	return true
}

// Lend gives a job what its family has taught, on devices of its model if any ran on those. It returns true if there is
// anything.
func (l *Library) Lend(j *Job) bool {
	family, signature := j.Family(), j.Spec.Signature()
	if family == "" {
		return false
	}
	own := slices.Concat(j.History.Ran(), j.live)
	var twins, kin []curve.StepSample
	lessons := here(l.lessons.Of(family), j.device, func(x lesson) string { return x.device })
	for _, x := range lessons {
		if kin = append(kin, x.StepSample); x.signature == signature {
			twins = append(twins, x.StepSample)
		}
	}
	j.Borrowed = curve.Lend(j.History, own, twins, kin)
	j.Kin = j.kin(here(l.runs.Of(family), j.device, func(x whole) string { return x.device }), signature)
	return j.lent()
}

func (j *Job) lent() bool { return len(j.Borrowed) > 0 || j.Kin != nil }

// Begins says whether a job that has not run has a model all the same: by its family, or by the memory of its program.
func (j *Job) Begins() bool { return j.lent() || len(j.Peaks) > 0 }

// here returns what was learned on a model of device, or everything if nothing was.
func here[T any](all []T, device string, of func(T) string) []T {
	on := slices.DeleteFunc(slices.Clone(all), func(x T) bool { return of(x) != device })
	if device == "" || len(on) == 0 {
		return all
	}
	return on
}

// kin sums up whole runs: those with the same command if there are any, else all. With few runs the interval is wider.
func (j *Job) kin(runs []whole, signature string) *train.Kin {
	const (
		// tenth is the distance of the 10th and 90th percentile from the mean, in standard deviations.
		tenth = 1.28
		// fewTwins and fewKin are the deviations that a single run leaves open.
		fewTwins, fewKin = 0.2, 0.8
	)
	few := fewKin
	if twins := slices.DeleteFunc(slices.Clone(runs), func(x whole) bool { return x.signature != signature }); len(twins) > 0 {
		runs, few = twins, fewTwins
	}
	if len(runs) == 0 {
		return nil
	}
	logs, steps := make([]float64, len(runs)), []float64(nil)
	for i, x := range runs {
		if logs[i] = math.Log(x.epochSeconds); x.stepSeconds > 0 {
			steps = append(steps, math.Log(x.stepSeconds))
		}
	}
	mean, deviation := curve.Moments(logs)
	deviation = math.Hypot(deviation, few/float64(len(logs)))
	step := 0.0
	if len(steps) == len(logs) {
		typical, _ := curve.Moments(steps)
		step = math.Exp(typical)
	}
	return &train.Kin{
		Jobs: len(runs), Config: runs[len(runs)-1].config, StepSeconds: step,
		EpochSeconds: train.Span{Expected: math.Exp(mean), Low: math.Exp(mean - tenth*deviation), High: math.Exp(mean + tenth*deviation)},
	}
}

// newest returns the step time on the configuration of the running attempt: of the heartbeats since the last epoch,
// else of the last epoch.
func (j *Job) newest() (curve.StepSample, bool) {
	if len(j.live) > 0 {
		return j.live[len(j.live)-1], true
	}
	if len(j.History.Epochs) == 0 {
		return curve.StepSample{}, false
	}
	on := j.History.Epochs[len(j.History.Epochs)-1].Config
	ran := j.History.Ran()
	at := slices.IndexFunc(ran, func(s curve.StepSample) bool { return s.Config == on })
	if at < 0 || !(ran[at].StepSeconds > 0) {
		return curve.StepSample{}, false
	}
	return ran[at], true
}
