package linkhealth

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

// ended reports whether a link that was suspected of a loss now shows none, although it would have with 99 %.
func (w window) ended(s diagnose.Suspect) bool {
	const surely = 4.6 // exp(-4.6) is 1 %
	n := w.over(s.Link)
	return n.Lost == 0 && float64(n.Sent)*s.Loss > surely
}

// doubt is how often a window of a healthy network may name a link. A window ends with each slot, six in a minute,
// and shares most of its slots with the next one.
const doubt = 1e-5

// The loss of a healthy network is taken from the past, within these bounds: the smaller it is, the more each lost
// packet tells.
const (
	leastBackground = 1e-5
	mostBackground  = 1e-4
	// mostHealthy bounds the number of probes it rests on.
	mostHealthy = 1_000_000
)

// background returns the share of packets that a healthy path loses.
func (w *Watch) background() float64 {
	seen := float64(w.healthy.Lost+1) / (float64(w.healthy.Sent) + 1/mostBackground)
	return min(max(seen, leastBackground), mostBackground)
}

// suspects judges the short and the long window that end with a slot.
func (w *Watch) suspects(short, long window) []diagnose.Suspect {
	options := diagnose.Options{Doubt: doubt, Background: w.background(), Known: map[int32]bool{}}
	for link, h := range w.loss {
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

// blamed returns the links that are suspected, or were lately.
func (w *Watch) blamed(suspects []diagnose.Suspect) map[int32]bool {
	all := map[int32]bool{}
	for link := range w.loss {
		all[link] = true
	}
	for _, s := range suspects {
		all[s.Link] = true
	}
	return all
}

// learn adds the slot that leaves the windows to the loss of a healthy network, without the paths over suspected
// links.
func (w *Watch) learn(slot int64) {
	old := w.window(slot, 1)
	for r, row := range old.matrix.Rows {
		if !slices.ContainsFunc(row, func(l int32) bool { _, suspected := w.loss[l]; return suspected }) {
			w.healthy.Add(old.counts[r])
		}
	}
	if w.healthy.Sent > mostHealthy {
		w.healthy.Sent, w.healthy.Lost = w.healthy.Sent/2, w.healthy.Lost/2
	}
}
