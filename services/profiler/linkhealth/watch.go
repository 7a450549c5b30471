// Package linkhealth combines what both ends of probes counted, and tracks from window to window which links lose or
// delay packets. Package diagnose decides which links explain the results of a window.
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

// Slots that are judged together: 30 s reveal a large loss, and soon show its end; a minute reveals a small loss.
const (
	windowSlots = 3
	longSlots   = 6
)

const slotSeconds = int64(train.ProbeSlot / time.Second)

// Watch holds the paths that agents were asked to probe, what they counted, and the judgement so far.
type Watch struct {
	collector
	// links are numbered in order of appearance, for as long as the service runs.
	links  []string
	number map[string]int32
	// baselines are what is usual for each flow, by its number.
	baselines  map[uint32]*baseline
	loss, slow diagnose.Health
	// healthy counts the probes before the judged window, over paths without blamed links.
	healthy diagnose.Count
	// published are the degraded links as last reported to the caller.
	published map[int32]train.Link
	// last is what the last window showed.
	last []train.LinkWindow
	// judged is the last judged slot.
	judged int64
}

// collector holds the paths that agents were asked to probe, and what they counted.
type collector struct {
	lists   map[train.NodeID]train.Pinglist
	reports map[int64]map[train.NodeID]report
	// expected is what nodes have reported since they have a list.
	expected map[train.NodeID]halves
}

// report is what one agent counted in a slot; a half is nil if it was not reported.
type report struct {
	sent     map[uint32]train.SentProbes
	received map[uint32]train.ReceivedProbes
	// late are flows with probes that arrived too late to be counted, and by how many seconds the clock of their
	// sender is behind.
	late map[uint32]float64
	// stalled is set if the agent did not get to run; it then reports nothing else.
	stalled bool
}

// halves says whether the probes that a node sent, and those that it received, were reported: two agents may do that.
type halves struct{ sent, received bool }

func (h halves) and(other halves) halves {
	return halves{h.sent || other.sent, h.received || other.received}
}

func (r report) reported() halves { return halves{r.sent != nil, r.received != nil} }

// New returns a Watch without lists.
func New() *Watch {
	return &Watch{
		collector: collector{
			lists: map[train.NodeID]train.Pinglist{}, reports: map[int64]map[train.NodeID]report{}, expected: map[train.NodeID]halves{},
		},
		number: map[string]int32{}, baselines: map[uint32]*baseline{},
		loss: diagnose.Health{}, slow: diagnose.Health{}, published: map[int32]train.Link{},
	}
}

func (w *Watch) numberOf(link string) int32 {
	n, known := w.number[link]
	if !known {
		n = int32(len(w.links))
		w.links, w.number[link] = append(w.links, link), n
	}
	return n
}

// Recall restores a link that was degraded before the service started. The baselines of its flows have to be learned
// again.
func (w *Watch) Recall(l train.Link) {
	l.Kind = cmp.Or(l.Kind, train.LinkLoses)
	number, health := w.numberOf(l.ID), w.loss
	if l.Kind == train.LinkIsSlow {
		health = w.slow
	}
	health[number] = diagnose.LinkHealth{Degraded: true, Since: l.Since, Loss: l.Loss, DelaySeconds: l.DelaySeconds, Confidence: l.Confidence}
	w.published[number] = l
}

// Use sets the list of a node; nil removes it.
func (c *collector) Use(node train.NodeID, list *train.Pinglist) {
	if list == nil {
		delete(c.lists, node)
		delete(c.expected, node)
		return
	}
	c.lists[node] = *list
}

// Idle reports whether no node probes anything.
func (c *collector) Idle() bool { return len(c.lists) == 0 }

// mostAhead is how far the clock of an agent may be ahead; counts of future slots would be kept without bound.
const mostAhead = time.Minute

// Counted adds a report. The sent and the received half may arrive separately.
func (w *Watch) Counted(node train.NodeID, c event.ProbesCounted, now time.Time) {
	_, listed := w.lists[node]
	if listed {
		w.expected[node] = w.expected[node].and(halves{c.Sent != nil, c.Received != nil})
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
func (c *collector) forget(slot int64) {
	maps.DeleteFunc(c.reports, func(s int64, _ map[train.NodeID]report) bool { return s < slot })
}

// reportedBy is how long after its end a slot waits for missing reports.
const reportedBy = 13 * time.Second

// Next judges the next slot if it is over and reported, and returns its number. Slots older than the windows, which
// pile up if nobody called for a while, are skipped. If time goes back by more than a slot, Next begins again; if by
// less, it waits.
func (w *Watch) Next(now time.Time) ([]Transition, int64, bool) {
	over := now.Unix()/slotSeconds - 1
	switch {
	case w.judged == 0 || w.Idle():
		w.judged = over // a part of what came before the first list may be missing
	case w.judged > over+1: // the clock was set back: these slots come once more
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

// Complete reports whether every node with a list has reported all it ever reports of a slot.
func (c *collector) Complete(slot int64) bool {
	for node := range c.lists {
		if r, expected := c.reports[slot][node], c.expected[node]; !r.stalled && (expected == halves{} || r.reported() != expected) {
			return false
		}
	}
	return true
}

// window is the result of the probes over each known path in some slots.
type window struct {
	matrix *fabric.Matrix
	// flows are the paths by row, counts their losses, lags how slow they were.
	flows  []train.Flow
	counts []diagnose.Count
	lags   []diagnose.Lag
	// trips are the round trip times.
	trips []trip
	// lossySlots are the slots in which a path lost packets, slowSlots those in which it was slow, one bit each.
	lossySlots, slowSlots []uint
}

// window combines what both ends counted in the slots up to last. A probe counts only if both ends reported its slot:
// a missing agent is no loss of the network.
func (w *Watch) window(last int64, length int) window {
	var short window
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
			rows, short.flows, short.counts, short.lossySlots = append(rows, row), append(short.flows, f), append(short.counts, sum), append(short.lossySlots, slots)
		}
	}
	short.matrix = fabric.NewMatrix(len(w.links), rows)
	return short
}

// pair is a sender and a receiver of probes.
type pair struct{ from, to train.NodeID }

// late returns the pairs whose probes arrived too late to be counted: their clocks differ, and what is missing is no
// loss. This is reported a slot later, so one slot of a clock that is set wrong is judged, which degrades no link.
func (c *collector) late(last int64, length int) map[pair]bool {
	pairs := map[pair]bool{}
	for _, list := range c.lists {
		for _, f := range list.Probes {
			for i := range length {
				if _, late := c.reports[last-int64(i)][f.To].late[f.ID()]; late {
					pairs[pair{f.From, f.To}] = true
				}
			}
		}
	}
	return pairs
}

// count adds up one flow, and returns in which slots it lost packets.
func (c *collector) count(f train.Flow, last int64, length int) (sum diagnose.Count, slots uint) {
	id := f.ID()
	for i := range length {
		sent, received := c.reports[last-int64(i)][f.From].sent, c.reports[last-int64(i)][f.To].received
		if sent == nil || received == nil {
			continue
		}
		lost := max(sent[id].Sent-received[id].Count, 0)
		sum.Add(diagnose.Count{Sent: sent[id].Sent, Lost: lost})
		if lost > 0 {
			slots |= 1 << i
		}
	}
	return sum, slots
}

// probed reports whether the losses of a link can be judged. A link that no path crosses any more counts as healthy,
// so that it is forgotten.
func (w window) probed(link int32) bool {
	return len(w.matrix.Over(link)) == 0 || w.sent(link) > 0
}

// timed reports whether the delay of a link can be judged.
func (w window) timed(link int32) bool {
	over := w.matrix.Over(link)
	return len(over) == 0 || slices.ContainsFunc(over, func(r int32) bool { return w.lags[r].Slots > 0 })
}

func (w window) sent(link int32) int { return w.over(link).Sent }

// over adds up the paths over a link.
func (w window) over(link int32) (sum diagnose.Count) {
	for _, r := range w.matrix.Over(link) {
		sum.Add(w.counts[r])
	}
	return sum
}

// several counts the slots of the paths over a link. Windows overlap, so a single slot is in several of them. Paths
// over other blamed links do not count, unless there are no others.
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

// Transition is a link that is degraded, or that has recovered in the last window.
type Transition struct {
	Link train.Link
	// Changed is set if the last window made it so.
	Changed bool
}

// Judge judges the window that ends with a slot.
func (w *Watch) Judge(slot int64, end time.Time) []Transition {
	short, long := w.window(slot, windowSlots), w.window(slot, longSlots)
	short.lags, short.slowSlots = w.slowness(short.flows, slot)
	short.trips = w.roundTrips(short.flows, slot)
	suspects := w.suspects(short, long)
	w.loss = w.loss.Fold(diagnose.Window{
		End: end, Suspects: suspects, Probed: short.probed, Slots: long.several(long.lossySlots, w.blamed(suspects)),
	})
	w.slow = w.slow.Fold(diagnose.Window{
		End: end, Suspects: diagnose.LocaliseSlow(short.matrix, short.lags, diagnose.Options{Doubt: doubt}), Probed: short.timed, Slots: short.several(short.slowSlots, nil),
	})
	w.learn(slot - longSlots + 1)
	w.forget(slot - longSlots + 2)
	var transitions []Transition
	for number, id := range w.links {
		number := int32(number)
		before, was := w.published[number]
		now, degraded := w.trouble(number)
		switch {
		case degraded:
			now.ID, now.Alike, now.Probes = id, w.alike(short, number), short.sent(number)
			w.published[number] = now
			transitions = append(transitions, Transition{now, !was || now.Kind != before.Kind})
		case was:
			before.Degraded, before.Probes = false, short.sent(number)
			delete(w.published, number)
			transitions = append(transitions, Transition{before, true})
		}
	}
	w.last = w.describe(short)
	return transitions
}

// trouble returns what is wrong with a link; false if nothing is.
func (w *Watch) trouble(number int32) (train.Link, bool) {
	of := func(kind train.LinkTrouble, h diagnose.LinkHealth) train.Link {
		return train.Link{Kind: kind, Loss: h.Loss, DelaySeconds: h.DelaySeconds, Confidence: h.Confidence, Degraded: true, Since: h.Since}
	}
	if h := w.loss[number]; h.Degraded {
		return of(train.LinkLoses, h), true
	}
	h := w.slow[number]
	return of(train.LinkIsSlow, h), h.Degraded
}
