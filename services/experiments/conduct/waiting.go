package conduct

import (
	"cmp"
	"slices"
	"time"
)

// QueueSeconds returns how long the experiment waited: some trial waited for its first process, and none trained or
// started. Concurrent waits count once, and not at all while one trial trains.
func (r *Record) QueueSeconds() float64 {
	type edge struct {
		at               time.Time
		waiting, running int
	}
	var edges []edge
	from := func(begin, end time.Time, waiting, running int) {
		if end.After(begin) {
			edges = append(edges, edge{begin, waiting, running}, edge{end, -waiting, -running})
		}
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		begun := t.RunAt
		if begun.IsZero() {
			begun = cmp.Or(t.EndedAt, r.EndedAt)
		}
		from(t.DecidedAt, begun, 1, 0)
		for k, e := range t.Done {
			since := e.At.Add(-time.Duration(e.Seconds * float64(time.Second)))
			if k == 0 && begun.Before(since) {
				since = begun // it started
			}
			from(since, e.At, 0, 1)
		}
	}
	slices.SortStableFunc(edges, func(x, y edge) int { return x.at.Compare(y.at) })
	seconds, waiting, running := 0.0, 0, 0
	for i, e := range edges {
		if waiting > 0 && running == 0 {
			seconds += e.at.Sub(edges[i-1].at).Seconds()
		}
		waiting, running = waiting+e.waiting, running+e.running
	}
	return seconds
}
