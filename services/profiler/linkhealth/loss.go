package linkhealth

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

// ended says whether a link that was suspected of a loss shows none any more, though it would have with 99 %.
func (w window) ended(s diagnose.Suspect) bool {
	const surely = 4.6 // exp(-4.6) is 1 %
	n := w.over(s.Link)
	return n.Lost == 0 && float64(n.Sent)*s.Loss > surely
}

// doubt is how often a window of a healthy network may name a link. One ends with each slot, six in a minute, and shares most of its slots with the next.
const doubt = 1e-5

// A healthy network is taken to lose no more than it did before, within these bounds: the less that is, the fewer lost packets tell.
const (
	leastBackground = 1e-5
	mostBackground  = 1e-4
	// mostQuiet is how many probes that rests on at most.
	mostQuiet = 1_000_000
)

// background is the part of the packets that a healthy path loses.
func (w *Watch) background() float64 {
	seen := float64(w.quiet.Lost+1) / (float64(w.quiet.Sent) + 1/mostBackground)
	return min(max(seen, leastBackground), mostBackground)
}

// suspects judges the short and the long window that end with a slot.
func (w *Watch) suspects(short, long window) []diagnose.Suspect {
	options := diagnose.Options{Doubt: doubt, Background: w.background(), Known: map[int32]bool{}}
	for link, h := range w.loss.Links {
		options.Known[link] = h.Degraded
	}
	all := diagnose.Localise(short.matrix, short.counts, options)
	for _, s := range diagnose.Localise(long.matrix, long.counts, options) {
		known := slices.ContainsFunc(all, func(o diagnose.Suspect) bool { return o.Link == s.Link })
		if !known && !short.ended(s) {
			all = append(all, s)
		}
	}
	return all
}

// blamed are the links that are suspected, or were lately.
func (w *Watch) blamed(suspects []diagnose.Suspect) map[int32]bool {
	all := map[int32]bool{}
	for link := range w.loss.Links {
		all[link] = true
	}
	for _, s := range suspects {
		all[s.Link] = true
	}
	return all
}

// learn takes the slot that leaves the windows for what a healthy network loses, but for the paths over links that were suspected.
func (w *Watch) learn(slot int64) {
	old := w.window(slot, 1)
	for r, row := range old.matrix.Rows {
		if !slices.ContainsFunc(row, func(l int32) bool { _, suspected := w.loss.Links[l]; return suspected }) {
			w.quiet.Sent, w.quiet.Lost = w.quiet.Sent+old.counts[r].Sent, w.quiet.Lost+old.counts[r].Lost
		}
	}
	if w.quiet.Sent > mostQuiet {
		w.quiet.Sent, w.quiet.Lost = w.quiet.Sent/2, w.quiet.Lost/2
	}
}
