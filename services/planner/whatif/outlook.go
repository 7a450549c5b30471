package whatif

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// NewOutlook compares the newest plan with the next one about a job.
func NewOutlook(last, next train.Plan, job train.JobID) rpc.Outlook {
	o := rpc.Outlook{Predicted: next.Predicted(job)}
	if a, found := next.Find(job); found {
		o.Allocation = &a
	}
	for i, w := range next.Waiting {
		if w.Job != job {
			continue
		}
		o.Waiting, o.Holders = &next.Waiting[i], w.Holders
		for _, earlier := range next.Waiting[:i] {
			o.Before = append(o.Before, earlier.Job)
		}
	}
	for _, a := range next.Allocations {
		before, held := last.Find(a.Job)
		switch {
		case a.Job == job:
		case !held:
			o.Starts = append(o.Starts, a.Job)
		case !slices.EqualFunc(before.Places(), a.Places(), train.Part.Same):
			o.Moved = append(o.Moved, rpc.Move{Job: a.Job, Places: a.Places(), Reason: a.Reason})
		}
	}
	for _, w := range next.Waiting {
		if _, held := last.Find(w.Job); held && w.Job != job && len(w.Blockers) > 0 {
			o.Moved = append(o.Moved, rpc.Move{Job: w.Job, Reason: w.Blockers[0]})
		}
	}
	return o
}

// Bounds of the shifts of an answer.
const (
	// leastShift is the least difference, in seconds, that a person cares about.
	leastShift = 1
	mostShifts = 50
)

// Shifts returns the jobs but one that end at another time by a plan than by the one that is decided otherwise, those
// that lose most first, and how many are left out.
func Shifts(otherwise, by train.Plan, job train.JobID) (shifts []rpc.Shift, more int) {
	after := by.Predictions()
	for id, before := range otherwise.Predictions() {
		if id == job || before.Finish == nil {
			continue
		}
		then := after[id].Finish
		if then == nil {
			shifts = append(shifts, rpc.Shift{Job: id})
			continue
		}
		if late := then.Expected.Sub(before.Finish.Expected).Seconds(); math.Abs(late) >= leastShift {
			shifts = append(shifts, rpc.Shift{Job: id, Finish: then, Seconds: late})
		}
	}
	lost := func(s rpc.Shift) float64 {
		if s.Finish == nil {
			return math.Inf(1)
		}
		return s.Seconds
	}
	slices.SortFunc(shifts, func(x, y rpc.Shift) int { return cmp.Or(cmp.Compare(lost(y), lost(x)), cmp.Compare(x.Job, y.Job)) })
	more = max(len(shifts)-mostShifts, 0)
	return shifts[:len(shifts)-more], more
}
