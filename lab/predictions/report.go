// Package predictions plays measured trainings through the fits of the live profiler, epoch by epoch, and reports how
// far the predictions were off over the life of the job.
package predictions

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

// Report holds every prediction beside the truth.
type Report struct {
	epochs, seconds, wallClock, elsewhere []outcome
	// lent is elsewhere, once the other half of the family has run.
	lent   []outcome
	speeds []speedOutcome
}

// Study plays all measured trainings below a folder through the fits of the live profiler.
func Study(root fs.FS) (*Report, error) {
	m, err := load(root)
	if err != nil {
		return nil, err
	}
	return m.study(), nil
}

func (m *measurements) study() *Report {
	r := &Report{}
	for i := range m.trainings {
		t := &m.trainings[i]
		if t.losses != nil {
			r.epochs = append(r.epochs, t.epochsToConverge()...)
		}
		if t.steps == nil {
			r.wallClock = append(r.wallClock, t.secondsLeft(false, nil)...)
		} else {
			r.seconds = append(r.seconds, t.secondsLeft(false, nil)...)
		}
		r.elsewhere = append(r.elsewhere, t.secondsLeft(true, nil)...)
		if t.family != "" {
			r.lent = append(r.lent, t.secondsLeft(true, m.lessons(t))...)
		}
	}
	for i, p := range m.paces {
		r.speeds = append(r.speeds, p.speeds(uint64(i))...)
	}
	return r
}

// lessons are the step times of the other half of a training's family, each on the configuration that it ran on.
func (m *measurements) lessons(t *training) []curve.StepSample {
	var taught []curve.StepSample
	for i := range m.trainings {
		if o := &m.trainings[i]; o.family == t.family && o.heldOut != t.heldOut {
			taught = append(taught, curve.StepSample{Config: o.config, StepSeconds: o.stepSeconds, Weight: 1})
		}
	}
	return taught
}

// quality sums up the predictions of one kind.
type quality struct {
	count int
	// median and p90 are of the error as a part of what is left, ofWhole is the median as a part of the whole; inside
	// is the share of intervals that hold the truth, declared and last are the median errors of the simple answers.
	median, p90, ofWhole, inside, declared, last float64
}

func measure(all []outcome, want func(outcome) bool) quality {
	var off, whole, declared, last []float64
	q := quality{}
	for _, o := range all {
		if !o.known || !want(o) {
			continue
		}
		off = append(off, relative(o.predicted.Expected, o.truth, o.truth))
		whole = append(whole, relative(o.predicted.Expected, o.truth, o.whole))
		declared = append(declared, relative(o.declared, o.truth, o.truth))
		last = append(last, relative(o.last, o.truth, o.truth))
		if o.predicted.Low <= o.truth*(1+1e-9) && o.truth <= o.predicted.High*(1+1e-9) {
			q.inside++
		}
	}
	if q.count = len(off); q.count == 0 {
		return q
	}
	q.inside /= float64(q.count)
	q.median, q.p90, q.ofWhole = percentile(off, 0.5), percentile(off, 0.9), percentile(whole, 0.5)
	q.declared, q.last = percentile(declared, 0.5), percentile(last, 0.5)
	return q
}

func relative(predicted, truth, of float64) float64 { return math.Abs(predicted-truth) / of }

// percentile sorts values.
func percentile(values []float64, share float64) float64 {
	slices.Sort(values)
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

// half selects a half of the measurements.
func half(heldOut bool) func(outcome) bool {
	return func(o outcome) bool { return o.heldOut == heldOut }
}

func (r *Report) Tables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Epochs until the loss has fallen by less than %g %% of the first loss in each of %d epochs (`Model.EpochsLeft`):\n\n",
		100*stopDecrease, stopPatience)
	life(&b, r.epochs, "declared epochs", "last epoch")
	b.WriteString("Time to the declared end on the configuration that runs (`Model.RemainingSeconds`), Pollux's trainings:\n\n")
	life(&b, r.seconds, "declared steps", "last epoch")
	b.WriteString("The same on wall-clock times of epochs (PipeTune, CPUs, 5 or 10 epochs; relative to the first epoch), and on twice as many " +
		"devices, where the job never ran, with half the batch on each (relative to half the declared steps, half the last epoch):\n\n")
	heading(&b, "first epoch, declared", "last epoch")
	halves(&b, "wall clock, ", r.wallClock)
	halves(&b, "twice the devices, ", r.elsewhere)
	halves(&b, "twice the devices, its family has run, ", r.lent)
	b.WriteString("\n")
	r.coverage(&b)
	overruns(&b, slices.Concat(r.seconds, r.wallClock))
	r.speedTable(&b)
	return b.String()
}

// coverage says how many of the intervals that users are shown hold the truth: eight of ten should.
func (r *Report) coverage(b *strings.Builder) {
	var words []string
	for _, c := range []struct {
		what string
		all  []outcome
	}{
		{"epochs", r.epochs}, {"time", r.seconds}, {"wall clock", r.wallClock}, {"twice the devices", r.elsewhere}, {"with its family", r.lent},
	} {
		held, other := measure(c.all, half(true)), measure(c.all, half(false))
		words = append(words, fmt.Sprintf("%s %.0f %% (%.0f %%)", c.what, 100*held.inside, 100*other.inside))
	}
	fmt.Fprintf(b, "Coverage of the intervals that users are shown, which should be 80 %%, held out (other half): %s.\n\n", strings.Join(words, ", "))
}

// overruns says how many jobs get a corrected estimate (curve.CorrectEstimate): of those that declared the truth, and
// of those that take half as long again.
func overruns(b *strings.Builder, all []outcome) {
	jobs, honest, late := 0.0, 0.0, 0.0
	for _, o := range all {
		if !o.heldOut || !o.known {
			continue
		}
		jobs++
		if curve.CorrectEstimate(o.whole, o.whole-o.truth, o.predicted, 1).Overrun {
			honest++
		}
		if curve.CorrectEstimate(o.whole/1.5, o.whole-o.truth, o.predicted, 1).Overrun {
			late++
		}
	}
	fmt.Fprintf(b, "Reported as overruns (`curve.CorrectEstimate`, held out): %.1f %% of the predictions for jobs that declared the truth, "+
		"%.1f %% of those for jobs that take 1.5 times as long as declared.\n\n", 100*honest/jobs, 100*late/jobs)
}

// life is a table over the life of a job: every other tenth of the held-out half, all of it, and the other half.
func life(b *strings.Builder, all []outcome, declared, last string) {
	heading(b, declared, last)
	for tenth := 1; tenth <= tenths; tenth += 2 {
		row(b, fmt.Sprintf("%d %%", 10*tenth), measure(all, func(o outcome) bool { return o.heldOut && o.tenth == tenth }))
	}
	halves(b, "", all)
	b.WriteString("\n")
}

func heading(b *strings.Builder, declared, last string) {
	fmt.Fprintf(b, "| life | jobs | error | p90 | of the whole | within | %s | %s |\n|---|---|---|---|---|---|---|---|\n", declared, last)
}

func halves(b *strings.Builder, what string, all []outcome) {
	row(b, what+"held out", measure(all, half(true)))
	row(b, what+"other half", measure(all, half(false)))
}

func row(b *strings.Builder, name string, q quality) {
	if q.count > 0 {
		fmt.Fprintf(b, "| %s | %d | %.0f %% | %.0f %% | %.1f %% | %.0f %% | %.0f %% | %.0f %% |\n", name, q.count,
			100*q.median, 100*q.p90, 100*q.ofWhole, 100*q.inside, 100*q.declared, 100*q.last)
	}
}

// speedQuality sums up predictions of step times.
type speedQuality struct {
	count                        int
	median, p90, inside, nearest float64
}

func (r *Report) speedOf(observed int, heldOut bool) speedQuality {
	var off, nearest []float64
	q := speedQuality{}
	for _, s := range r.speeds {
		if s.observed != observed || s.heldOut != heldOut {
			continue
		}
		off, nearest = append(off, s.off), append(nearest, s.nearest)
		if s.inside {
			q.inside++
		}
	}
	if q.count = len(off); q.count == 0 {
		return q
	}
	q.inside /= float64(q.count)
	q.median, q.p90, q.nearest = percentile(off, 0.5), percentile(off, 0.9), percentile(nearest, 0.5)
	return q
}

func (r *Report) speedTable(b *strings.Builder) {
	b.WriteString("Step time on every measured configuration that has not run, after one device and then random other ones (`curve.FitStepTime`):\n\n" +
		"| ran | devices | predictions | error | p90 | within | nearest that ran |\n|---|---|---|---|---|---|---|\n")
	for _, heldOut := range []bool{false, true} {
		devices := "T4"
		if heldOut {
			devices = "four other types"
		}
		for _, n := range observedConfigurations() {
			if q := r.speedOf(n, heldOut); q.count > 0 {
				fmt.Fprintf(b, "| %d | %s | %d | %.1f %% | %.0f %% | %.0f %% | %.1f %% |\n", n, devices, q.count,
					100*q.median, 100*q.p90, 100*q.inside, 100*q.nearest)
			}
		}
	}
	b.WriteString("\n")
}
