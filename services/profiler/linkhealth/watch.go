// Package linkhealth puts together what both ends of probes counted, and follows from window to window which links lose or delay packets. Which link
// it is that explains what a window met is decided in diagnose.
package linkhealth

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

// Slots of probes that are judged together: 30 s show what loses much, and soon that it has ended; a minute shows what loses little.
const (
	windowSlots = 3
	longSlots   = 6
)

const slotSeconds = int64(train.ProbeSlot / time.Second)

// Watch is what agents were asked to probe and what they counted, as far as it is judged.
type Watch struct {
	lists   map[train.NodeID]train.Pinglist
	reports map[int64]map[train.NodeID]report
	// heard is what nodes have told since they have a list.
	heard map[train.NodeID]halves
	// links are numbered as they come, for as long as the service runs.
	links  []string
	number map[string]int32
	// paces are what is usual for each flow, by its number.
	paces      map[uint32]*pace
	loss, slow diagnose.Health
	// quiet are the probes of the time before the window that is judged, over paths that nobody was blamed for.
	quiet diagnose.Count
	// told are the links that are degraded, as they were told last.
	told map[int32]train.Link
	// last is what the last window showed.
	last []train.LinkWindow
	// judged is the last slot that was.
	judged int64
}

// report is what one agent counted in a slot; a half is nil where nobody told it.
type report struct {
	sent     map[uint32]train.SentProbes
	received map[uint32]train.ReceivedProbes
	// late are flows of which more came than could be counted, and by how many seconds the clock of their sender is behind.
	late map[uint32]float64
	// stalled is set where the agent did not get to run, and tells nothing else.
	stalled bool
}

// halves are what was told of what a node sent, and of what it received: two agents may do that.
type halves struct{ sent, received bool }

func (h halves) and(other halves) halves {
	return halves{h.sent || other.sent, h.received || other.received}
}

// told is what a report has.
func (r report) told() halves { return halves{r.sent != nil, r.received != nil} }

// New begins without any list.
func New() *Watch {
	return &Watch{
		lists: map[train.NodeID]train.Pinglist{}, reports: map[int64]map[train.NodeID]report{}, heard: map[train.NodeID]halves{},
		number: map[string]int32{}, paces: map[uint32]*pace{},
		loss: diagnose.Health{Links: map[int32]diagnose.LinkHealth{}}, slow: diagnose.Health{Links: map[int32]diagnose.LinkHealth{}}, told: map[int32]train.Link{},
	}
}

// numberOf is the number of a link.
func (w *Watch) numberOf(link string) int32 {
	n, known := w.number[link]
	if !known {
		n = int32(len(w.links))
		w.links, w.number[link] = append(w.links, link), n
	}
	return n
}

// Recall takes up a link that was degraded before the service started. What is usual for its flows has to be learned again.
func (w *Watch) Recall(l train.Link) {
	l.Kind = cmp.Or(l.Kind, train.LinkLoses)
	number, health := w.numberOf(l.ID), w.loss
	if l.Kind == train.LinkIsSlow {
		health = w.slow
	}
	health.Links[number] = diagnose.LinkHealth{Degraded: true, Since: l.Since, Loss: l.Loss, DelaySeconds: l.DelaySeconds, Confidence: l.Confidence}
	w.told[number] = l
}

// Use takes up the list of a node; nil where it has none any more.
func (w *Watch) Use(node train.NodeID, list *train.Pinglist) {
	if list == nil {
		delete(w.lists, node)
		delete(w.heard, node)
		return
	}
	w.lists[node] = *list
}

// Idle says that nobody probes anything.
func (w *Watch) Idle() bool { return len(w.lists) == 0 }

// mostAhead is how far the clock of an agent may be ahead; what it counts in slots to come would be kept without bound.
const mostAhead = time.Minute

// Counted adds a report. What was sent and what was received may come apart.
func (w *Watch) Counted(node train.NodeID, c event.ProbesCounted, now time.Time) {
	_, listed := w.lists[node]
	if listed {
		w.heard[node] = w.heard[node].and(halves{c.Sent != nil, c.Received != nil})
	}
	if !listed || c.Slot <= w.judged || c.Slot > now.Add(mostAhead).Unix()/slotSeconds {
		return
	}
	if w.reports[c.Slot] == nil {
		w.reports[c.Slot] = map[train.NodeID]report{}
	}
	r := w.reports[c.Slot][node]
	if c.Sent != nil {
		r.sent = map[uint32]train.SentProbes{}
	}
	if c.Received != nil {
		r.received = map[uint32]train.ReceivedProbes{}
	}
	if r.stalled = r.stalled || c.Stalled; len(c.Late) > 0 {
		r.late = map[uint32]float64{}
	}
	for _, l := range c.Late {
		r.late[l.Flow] = l.BehindSeconds
	}
	for _, s := range c.Sent {
		r.sent[s.Flow] = s
	}
	for _, s := range c.Received {
		r.received[s.Flow] = s
	}
	w.reports[c.Slot][node] = r
}

// forget drops the slots before one.
func (w *Watch) forget(slot int64) {
	maps.DeleteFunc(w.reports, func(s int64, _ map[train.NodeID]report) bool { return s < slot })
}

// reportedBy is how long after its end nobody is waited for any more who has not reported a slot.
const reportedBy = 13 * time.Second

// Next judges the next slot if it is over and reported, and gives its number. What is older than the windows, since nobody asked for a while, is left out. Where
// time goes back by more than a slot it begins anew; by less, it waits.
func (w *Watch) Next(now time.Time) ([]Turn, int64, bool) {
	over := now.Unix()/slotSeconds - 1
	switch {
	case w.judged == 0 || w.Idle():
		w.judged = over // of what came before the first list, a part may be missing
	case w.judged > over+1: // the clock was set back: these slots will come once more
		w.judged = over
		clear(w.reports)
	}
	w.judged = max(w.judged, over-longSlots)
	slot := w.judged + 1
	end := time.Unix((slot+1)*slotSeconds, 0).UTC()
	if slot > over || !w.Complete(slot) && now.Sub(end) < reportedBy {
		return nil, slot, false
	}
	w.judged = slot
	return w.Judge(slot, end), slot, true
}

// Complete says whether everybody who has a list has reported as much of a slot as it ever does.
func (w *Watch) Complete(slot int64) bool {
	for node := range w.lists {
		if r, heard := w.reports[slot][node], w.heard[node]; !r.stalled && (heard == halves{} || r.told() != heard) {
			return false
		}
	}
	return true
}

// window is what became of the probes over each known path in some slots.
type window struct {
	matrix *fabric.Matrix
	// flows are the paths by row, counts what they lost, lags how slow they were.
	flows  []train.Flow
	counts []diagnose.Count
	lags   []diagnose.Lag
	// trips are how long round trips took.
	trips []trip
	// lossySlots are those in which a path lost any, slowSlots those in which it was slow, one bit for each.
	lossySlots, slowSlots []uint
}

// window puts together what both ends counted in the slots up to one. A probe counts only where both ends reported its slot: an agent that is gone is no loss in
// the network.
func (w *Watch) window(last int64, length int) window {
	var some window
	var rows [][]int32
	late := w.late(last, length)
	for _, node := range slices.Sorted(maps.Keys(w.lists)) {
		for _, f := range w.lists[node].Probes {
			row := make([]int32, len(f.Links))
			for i, l := range f.Links {
				row[i] = w.numberOf(l)
			}
			sum, slots := w.count(f, last, length)
			if late[pair{f.From, f.To}] {
				sum, slots = diagnose.Count{}, 0
			}
			rows, some.flows, some.counts, some.lossySlots = append(rows, row), append(some.flows, f), append(some.counts, sum), append(some.lossySlots, slots)
		}
	}
	some.matrix = fabric.NewMatrix(len(w.links), rows)
	return some
}

// pair is who sends probes to whom.
type pair struct{ from, to train.NodeID }

// late are those between whom probes arrived too late to be counted: their clocks differ, and what is missing is no loss. That is told a slot later, so one slot
// of a clock that is set wrong is judged, which makes no link degraded.
func (w *Watch) late(last int64, length int) map[pair]bool {
	pairs := map[pair]bool{}
	for _, list := range w.lists {
		for _, f := range list.Probes {
			for i := range length {
				if _, late := w.reports[last-int64(i)][f.To].late[f.ID()]; late {
					pairs[pair{f.From, f.To}] = true
				}
			}
		}
	}
	return pairs
}

// count adds up one flow, and notes in which slots it lost any.
func (w *Watch) count(f train.Flow, last int64, length int) (sum diagnose.Count, slots uint) {
	id := f.ID()
	for i := range length {
		sent, received := w.reports[last-int64(i)][f.From].sent, w.reports[last-int64(i)][f.To].received
		if sent == nil || received == nil {
			continue
		}
		lost := max(sent[id].Sent-received[id].Count, 0)
		sum.Sent, sum.Lost = sum.Sent+sent[id].Sent, sum.Lost+lost
		if lost > 0 {
			slots |= 1 << i
		}
	}
	return sum, slots
}

// probed says whether anything can be said of the losses of a link. One that no path crosses any more is taken to be well, so that it is forgotten.
func (w window) probed(link int32) bool {
	return len(w.matrix.Over(link)) == 0 || w.sent(link) > 0
}

// timed says whether anything can be said of how slow a link is.
func (w window) timed(link int32) bool {
	over := w.matrix.Over(link)
	return len(over) == 0 || slices.ContainsFunc(over, func(r int32) bool { return w.lags[r].Slots > 0 })
}

// sent is how many probes were sent over a link.
func (w window) sent(link int32) int { return w.over(link).Sent }

// over adds up the paths over a link.
func (w window) over(link int32) (sum diagnose.Count) {
	for _, r := range w.matrix.Over(link) {
		sum.Sent, sum.Lost = sum.Sent+w.counts[r].Sent, sum.Lost+w.counts[r].Lost
	}
	return sum
}

// several counts, of slots by path, those of the paths over a link. Windows overlap: what happened in a single slot is in several of them. Paths over other links that
// are blamed do not count, unless there are no others.
func (w window) several(slots []uint, blamed map[int32]bool) func(link int32) int {
	return func(link int32) int {
		all, alone, owned := uint(0), uint(0), false
		for _, r := range w.matrix.Over(link) {
			all |= slots[r]
			if !slices.ContainsFunc(w.matrix.Rows[r], func(other int32) bool { return other != link && blamed[other] }) {
				alone, owned = alone|slots[r], true
			}
		}
		if owned {
			all = alone
		}
		return bits.OnesCount(all)
	}
}

// Turn is a link that is degraded, or that has recovered by the last window.
type Turn struct {
	Link train.Link
	// News is set when the last window made it so.
	News bool
}

// Judge judges the window that ends with a slot.
func (w *Watch) Judge(slot int64, end time.Time) []Turn {
	some, long := w.window(slot, windowSlots), w.window(slot, longSlots)
	some.lags, some.slowSlots = w.slowness(some.flows, slot)
	some.trips = w.roundTrips(some.flows, slot)
	suspects := w.suspects(some, long)
	w.loss, _ = w.loss.Fold(diagnose.Window{
		End: end, Suspects: suspects, Probed: some.probed, Slots: long.several(long.lossySlots, w.blamed(suspects)),
	}, diagnose.Patience{})
	w.slow, _ = w.slow.Fold(diagnose.Window{
		End: end, Suspects: diagnose.LocaliseSlow(some.matrix, some.lags, diagnose.Options{Doubt: doubt}), Probed: some.timed, Slots: some.several(some.slowSlots, nil),
	}, diagnose.Patience{})
	w.learn(slot - longSlots + 1)
	w.forget(slot - longSlots + 2)
	var turns []Turn
	for number, id := range w.links {
		number := int32(number)
		before, was := w.told[number]
		now, degraded := w.trouble(number)
		switch {
		case degraded:
			now.ID, now.Alike, now.Probes = id, w.alike(some, number), some.sent(number)
			w.told[number] = now
			turns = append(turns, Turn{now, !was || now.Kind != before.Kind})
		case was:
			before.Degraded, before.Probes = false, some.sent(number)
			delete(w.told, number)
			turns = append(turns, Turn{before, true})
		}
	}
	w.last = w.describe(some)
	return turns
}

// trouble is what is wrong with a link; false where nothing is.
func (w *Watch) trouble(number int32) (train.Link, bool) {
	of := func(kind train.LinkTrouble, h diagnose.LinkHealth) train.Link {
		return train.Link{Kind: kind, Loss: h.Loss, DelaySeconds: h.DelaySeconds, Confidence: h.Confidence, Degraded: true, Since: h.Since}
	}
	if h := w.loss.Links[number]; h.Degraded {
		return of(train.LinkLoses, h), true
	}
	h := w.slow.Links[number]
	return of(train.LinkIsSlow, h), h.Degraded
}
