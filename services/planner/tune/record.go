package tune

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Record moves the tuning of one device on: what its agent shall do follows from what was measured so far. A
// planner that finds the record continues the round.
type Record contract.TuningRound

// smallestPart bounds micro-batches to this part of the submitted batch: smaller ones leave most of a device idle.
const smallestPart = 16

// Batches lists the micro-batches to choose from: the submitted one and powers of two, up to most if that is larger.
func Batches(submitted, most int) []int {
	var all []int
	least := max((submitted+smallestPart-1)/smallestPart, 1)
	for b := 1 << bits.Len(uint(least-1)); b < submitted; b *= 2 {
		all = append(all, b)
	}
	all = append(all, submitted)
	for b := 1 << bits.Len(uint(submitted)); b <= most; b *= 2 {
		all = append(all, b)
	}
	return all
}

// The reasons why a round is over.
const (
	CodeTuned      = "Tuned"
	CodeKept       = "NoBetterBatch"
	CodeRolledBack = "RolledBack"
	CodeSilence    = "NoAnswer"
	CodeFixed      = "NothingToTune"
	CodeAlone      = "Alone"
)

// Open begins a round after the jobs on a device have changed, or when it is due again. Jobs that were there before
// start with their best known micro-batch.
func Open(before Record, sharers []contract.Sharer, now time.Time) Record {
	r := Record{
		Tuning:  train.Tuning{Node: before.Node, Device: before.Device, Generation: before.Generation},
		Sharers: sharers, Start: make([]int, len(sharers)), Most: before.Most,
	}
	best := before.wanted()
	if before.Settled.Code == "" {
		best, _ = before.best()
	}
	for i, s := range sharers {
		r.Start[i] = slices.Index(s.Batches, s.BatchSize)
		for k, b := range before.Sharers {
			stays := b.Job == s.Job && b.Attempt == s.Attempt && len(sharers) > 1
			if at := slices.Index(s.Batches, b.Batches[best[k]]); stays && at >= 0 {
				r.Start[i] = at
			}
		}
	}
	if slices.EqualFunc(before.Sharers, sharers, func(x, y contract.Sharer) bool { return x.Job == y.Job && x.Attempt == y.Attempt }) {
		r.Unanswered = before.Unanswered
	}
	choice, more := r.round().Next(nil)
	switch {
	case len(sharers) == 1:
		r.settle(r.Start, CodeAlone, "the job has the device to itself, and the batch that it was submitted with", now)
	case r.round().combinations() == 1:
		r.settle(r.Start, CodeFixed, "no job on the device can change its micro-batch", now)
	case !more:
		r.settle(r.Start, CodeKept, "there are too many combinations of micro-batches to choose from", now)
	default:
		r.want(choice, now)
	}
	return r
}

// Bound notes which attempts ended while a batch larger than submitted was tried: it may have been too large for the
// device, and is not tried again.
func (r *Record) Bound(live func(train.JobID, int) bool) {
	for i, t := range r.Tenants {
		if s := r.Sharers[i]; r.Settled.Code == "" && t.MicroBatch > s.BatchSize && !live(t.Job, t.Attempt) {
			r.bound(t.Job, s.BatchSize)
		}
	}
}

func (r *Record) bound(job train.JobID, most int) {
	r.Most = maps.Clone(r.Most)
	if r.Most == nil {
		r.Most = map[train.JobID]int{}
	}
	r.Most[job] = most
}

// refused notes which jobs answered a step larger than submitted with a smaller one: their code cannot run with it,
// and it is not tried again. A job that does not even run with its submitted batch refuses nothing; the round does
// not wait for it.
func (r *Record) refused(beats []Beat) bool {
	before := r.Sharers
	r.Sharers = slices.Clone(before)
	for _, b := range beats {
		i := slices.IndexFunc(r.Tenants, func(t train.TunedJob) bool { return t.Job == b.Job && t.Attempt == b.Attempt })
		if i < 0 || b.Generation != r.Generation || b.MicroBatch >= r.Tenants[i].MicroBatch {
			continue
		}
		s := &r.Sharers[i]
		fit := len(s.Batches)
		for fit > 0 && s.Batches[fit-1] > b.MicroBatch {
			fit--
		}
		if fit <= max(r.Start[i], slices.Index(s.Batches, s.BatchSize)) {
			continue // it ran with that before
		}
		s.Batches, s.Gains = s.Batches[:fit], s.Gains[:fit]
		r.Measured = slices.DeleteFunc(slices.Clone(r.Measured), func(m contract.TuningMeasurement) bool { return m.Choice[i] >= fit })
		r.bound(b.Job, b.MicroBatch)
	}
	return !slices.EqualFunc(before, r.Sharers, func(x, y contract.Sharer) bool { return len(x.Batches) == len(y.Batches) })
}

// AnswerTimeout is how long the measurement of a combination may take. A job that has not answered by then ends the
// round.
const AnswerTimeout = 3 * time.Minute

// Due reports whether a round that ended without an answer is tried again: after twice the time for an answer, and
// each time after twice as long as before.
func (r *Record) Due(now time.Time) bool {
	const longest = time.Hour
	wait := longest
	if r.Unanswered < bits.Len(uint(longest/AnswerTimeout)) {
		wait = min(AnswerTimeout<<r.Unanswered, longest)
	}
	return r.Settled.Code == CodeSilence && now.Sub(r.Since).Abs() >= wait // the clock may be another planner's
}

// Move takes the heartbeats so far, in order. changed reports whether the record changed.
func (r *Record) Move(beats []Beat, now time.Time) (changed bool) {
	if r.Settled.Code != "" {
		return false
	}
	if r.refused(beats) {
		r.Confirming, r.Tried = false, len(r.Measured)
		r.advance(now)
		return true
	}
	seconds, missing := r.measure(beats)
	switch m := (contract.TuningMeasurement{Choice: r.wanted(), StepSeconds: seconds}); {
	case missing == "" && r.Confirming:
		r.conclude(m, now)
	case missing == "":
		r.Measured = append(r.Measured, m)
		r.Tried = len(r.Measured)
		r.advance(now)
	case now.Sub(r.Since).Abs() >= AnswerTimeout: // the clock may be another planner's
		best, _ := r.best()
		r.settle(best, CodeSilence, fmt.Sprintf("%s could not be measured within %v; the best of %d trials is kept", missing, AnswerTimeout, r.Tried), now)
	default:
		return false
	}
	return true
}

// advance turns to the next combination, or after the last one to the best.
func (r *Record) advance(now time.Time) {
	if choice, more := r.round().Next(r.trials()); more {
		r.want(choice, now)
		return
	}
	best, gain := r.best()
	if gain == 0 {
		r.settle(best, CodeKept, fmt.Sprintf("none of %d trials was noticeably better than the batches before", r.Tried), now)
		return
	}
	r.Confirming = true
	r.want(best, now)
}

// conclude keeps the best combination if its second measurement is better, too. Otherwise it returns to the first
// one.
func (r *Record) conclude(again contract.TuningMeasurement, now time.Time) {
	gain := r.progress(again)/r.progress(r.Measured[0]) - 1
	if gain <= 0 {
		r.settle(r.Start, CodeRolledBack, fmt.Sprintf("the best of %d trials was not better when it was measured again", r.Tried), now)
		return
	}
	r.settle(again.Choice, CodeTuned, fmt.Sprintf("the best of %d trials makes %.0f %% more progress than the batches before", r.Tried, 100*gain), now)
}

func (r *Record) settle(choice []int, code, message string, now time.Time) {
	if !slices.Equal(choice, r.wanted()) || r.Tenants == nil {
		r.want(choice, now)
	}
	r.Settled, r.Confirming = train.Reason{Code: code, Message: message}, false
	if code != CodeSilence {
		r.Unanswered = 0
	} else {
		r.Unanswered++
	}
}

// want requests a combination from the agent.
func (r *Record) want(choice []int, now time.Time) {
	r.Generation++
	r.Since, r.Tenants = now, make([]train.TunedJob, len(r.Sharers))
	for i, s := range r.Sharers {
		r.Tenants[i] = train.TunedJob{Job: s.Job, Attempt: s.Attempt}
		if !s.Fixed {
			micro := s.Batches[choice[i]]
			r.Tenants[i].MicroBatch, r.Tenants[i].Accumulation = micro, max((s.BatchSize+micro-1)/micro, 1)
			r.Tenants[i].Enlarged = micro > s.BatchSize
		}
	}
}

// wanted is the inverse of want.
func (r *Record) wanted() []int {
	choice := slices.Clone(r.Start)
	for i, t := range r.Tenants {
		if !r.Sharers[i].Fixed {
			choice[i] = slices.Index(r.Sharers[i].Batches, t.MicroBatch)
		}
	}
	return choice
}

// noticeable is the part by which a combination must be better than the first one: measurements differ by themselves.
const noticeable = 0.03

// best returns the best combination tried, and the part by which it is better than the first one. It returns the
// first one if no other is noticeably better.
func (r *Record) best() (choice []int, gain float64) {
	trials := r.trials()
	for _, t := range trials {
		if more := t.Progress/trials[0].Progress - 1; more > max(gain, noticeable) {
			choice, gain = t.Choice, more
		}
	}
	if choice == nil {
		choice = r.Start
	}
	return slices.Clone(choice), gain
}

// round returns what is tuned. The speed of a job alone with a smaller micro-batch is not measured: each pass is
// assumed to cost an eighth of the submitted batch besides its samples.
func (r *Record) round() Round {
	heaviest := 0.0
	for _, s := range r.Sharers {
		heaviest = max(heaviest, s.Weight)
	}
	round := Round{Start: r.Start}
	for _, s := range r.Sharers {
		t := Tenant{Batches: s.Batches}
		for i, b := range s.Batches {
			pass := float64(s.BatchSize) / 8
			t.Alone = append(t.Alone, s.Weight/heaviest*s.Gains[i]*float64(b)/(float64(b)+pass)*float64(s.BatchSize)/float64(max(b, s.BatchSize)))
		}
		round.Tenants = append(round.Tenants, t)
	}
	return round
}

// trials returns the measurements as the round weighs them.
func (r *Record) trials() []Trial {
	trials := make([]Trial, len(r.Measured))
	for k, m := range r.Measured {
		trials[k] = Trial{m.Choice, r.progress(m)}
	}
	return trials
}

// progress adds up the progress of the jobs, each as a part of its progress alone. A job that was never measured
// alone is assumed to make the usual progress beside others with the first combination.
func (r *Record) progress(m contract.TuningMeasurement) float64 {
	round, sum := r.round(), 0.0
	for i, s := range r.Sharers {
		alone, at, rate := round.Tenants[i].Alone, r.Start[i], usual/float64(len(r.Sharers))
		switch {
		case s.Silent:
		case s.AloneSeconds > 0:
			at, rate = slices.Index(s.Batches, s.BatchSize), s.AloneSeconds/m.StepSeconds[i]*s.Gains[m.Choice[i]]
		default:
			rate *= r.Measured[0].StepSeconds[i] / m.StepSeconds[i] * s.Gains[m.Choice[i]] / s.Gains[at]
		}
		sum += alone[at] * rate
	}
	return sum
}
