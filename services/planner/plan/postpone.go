package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ReasonPostponed is that of a job that waits for energy that is cleaner or cheaper.
const ReasonPostponed = "Postponed"

// Rate is what energy costs from a moment until the next rate, in any unit: only ratios count.
type Rate struct {
	From time.Time `json:"from"`
	Cost float64   `json:"cost"`
}

// Rates are ordered by time. Those far ahead are forecasts; the last one ends the forecast, its cost is of no use.
type Rates []Rate

// mean is the mean cost of a time; false where not all of it is foretold.
func (r Rates) mean(from, to time.Time) (float64, bool) {
	if len(r) < 2 || from.Before(r[0].From) || to.After(r[len(r)-1].From) || !from.Before(to) {
		return 0, false
	}
	sum := 0.0
	for i := range r[:len(r)-1] {
		begin, end := later(r[i].From, from), sooner(r[i+1].From, to)
		if begin.Before(end) {
			sum += r[i].Cost * end.Sub(begin).Seconds()
		}
	}
	return sum / to.Sub(from).Seconds(), true
}

// leastSaving is the part of the cost that must be saved for a job to be put off.
const leastSaving = 0.02

// bestStart is when, from now until latest, a run of such a length costs least, the soonest among equals, and what part of the cost at once that saves. It is
// now where nothing better is foretold. The mean cost over a window that slides bends only where the window begins or ends at a rate's beginning.
func (r Rates) bestStart(now, latest time.Time, length time.Duration) (start time.Time, saving float64) {
	atOnce, known := r.mean(now, now.Add(length))
	if !known || !(atOnce > 0) {
		return now, 0
	}
	starts := []time.Time{latest}
	for _, rate := range r {
		starts = append(starts, rate.From, rate.From.Add(-length))
	}
	slices.SortFunc(starts, time.Time.Compare)
	best, least := now, atOnce*(1-leastSaving)
	for _, at := range starts {
		if !at.After(now) || at.After(latest) {
			continue
		}
		if cost, known := r.mean(at, at.Add(length)); known && cost < least {
			best, least = at, cost
		}
	}
	if best.Equal(now) {
		return now, 0
	}
	return best, 1 - least/atOnce
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// postpone takes those jobs out of the state whose energy will cost less later, by when their users would have them start at the latest. A job that has run
// is not put off again.
func (s State) postpone() (State, []train.Waiting) {
	if len(s.Rates) == 0 {
		return s, nil
	}
	var put []train.Waiting
	jobs := s.Jobs
	s.Jobs = make([]Job, 0, len(jobs))
	for _, j := range jobs {
		begun := j.Running != nil || j.Planned != nil || j.RunSeconds > 0
		if begun || j.CancelRequested || j.Spec.Energy == nil || j.Spec.Energy.StartBy == nil {
			s.Jobs = append(s.Jobs, j)
			continue
		}
		start, saving := s.Rates.bestStart(s.Now, *j.Spec.Energy.StartBy, j.length(s.Tuning))
		if !start.After(s.Now) {
			s.Jobs = append(s.Jobs, j)
			continue
		}
		put = append(put, train.Waiting{
			Job: j.ID, StartInSeconds: start.Sub(s.Now).Seconds(),
			Blockers: []train.Reason{{
				Code: ReasonPostponed, Message: fmt.Sprintf("starts at %s: energy then costs %.0f %% less", start.UTC().Format(time.RFC3339), 100*saving),
				Hint: "leave out energy.start_by to start at once",
			}},
		})
	}
	slices.SortFunc(put, func(a, b train.Waiting) int {
		return cmp.Or(cmp.Compare(a.StartInSeconds, b.StartInSeconds), cmp.Compare(a.Job, b.Job))
	})
	return s, put
}

// length is how long the job is taken to run on the least that it asks for.
func (j *Job) length(t Tuning) time.Duration {
	seconds := j.Spec.EstimatedHours * 3600
	if m := j.Model; m != nil && j.Spec.MaxEpochs > 0 && (m.Speed.Known() || m.EpochSeconds > 0) {
		on := train.Config{Workers: max(j.Spec.MinDevices, 1), Nodes: 1, LocalBatch: j.Spec.BatchSize}
		left, _ := m.RemainingSeconds(on, 0, j.Spec.StopRule(), j.Spec.StepsIn)
		seconds = bounded(left.Expected)
	}
	if !(seconds > 0) {
		seconds = t.withDefaults().UnknownSeconds
	}
	const longest = 365 * 24 * 3600
	return time.Duration(math.Min(seconds, longest) * float64(time.Second))
}
