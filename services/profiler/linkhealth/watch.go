// Package linkhealth puts together what both ends of probes counted, and follows from window to window which links lose packets. Which link it is that explains
// the losses of a window is decided in diagnose.
package linkhealth

import (
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
	shortSlots = 3
	longSlots  = 6
)

const slotSeconds = int64(train.ProbeSlot / time.Second)

// Watch is what agents were asked to probe and what they counted, as far as it is judged.
type Watch struct {
	lists   map[train.NodeID]train.Pinglist
	reports map[int64]map[train.NodeID]report
	// heard are the nodes that have ever reported since they had a list.
	heard map[train.NodeID]bool
	// links are numbered as they come, for as long as the service runs.
	links  []string
	number map[string]int32
	health diagnose.Health
	// quiet are the probes of the time before the window that is judged, over paths that nobody was blamed for.
	quiet diagnose.Count
	// judged is the last slot that was.
	judged int64
}

// report is what one agent counted in a slot; a half is nil where nobody told it.
type report struct {
	sent     map[uint32]int
	received map[uint32]int
	// late are flows of which more came than could be counted, and by how many seconds the clock of their sender is behind.
	late map[uint32]float64
	// stalled is set where the agent did not get to run, and tells nothing else.
	stalled bool
}

// told says whether anything came.
func (r report) told() bool { return r.stalled || r.sent != nil || r.received != nil }

// New begins without any list.
func New() *Watch {
	return &Watch{
		lists: map[train.NodeID]train.Pinglist{}, reports: map[int64]map[train.NodeID]report{}, heard: map[train.NodeID]bool{}, number: map[string]int32{},
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

// Recall takes up a link that was degraded before the service started.
func (w *Watch) Recall(l train.Link) {
	if w.health.Links == nil {
		w.health.Links = map[int32]diagnose.LinkHealth{}
	}
	w.health.Links[w.numberOf(l.ID)] = diagnose.LinkHealth{Degraded: true, Since: l.Since, Loss: l.Loss, Confidence: l.Confidence}
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
	if !listed || c.Slot <= w.judged || c.Slot > now.Add(mostAhead).Unix()/slotSeconds {
		return
	}
	if w.reports[c.Slot] == nil {
		w.reports[c.Slot] = map[train.NodeID]report{}
	}
	r := w.reports[c.Slot][node]
	if c.Sent != nil {
		r.sent = map[uint32]int{}
	}
	if c.Received != nil {
		r.received = map[uint32]int{}
	}
	w.heard[node] = true
	if r.stalled = r.stalled || c.Stalled; len(c.Late) > 0 {
		r.late = map[uint32]float64{}
	}
	for _, l := range c.Late {
		r.late[l.Flow] = l.BehindSeconds
	}
	for _, s := range c.Sent {
		r.sent[s.Flow] = s.Sent
	}
	for _, s := range c.Received {
		r.received[s.Flow] = s.Count
	}
	w.reports[c.Slot][node] = r
}

// forget drops the slots before one.
func (w *Watch) forget(slot int64) {
	maps.DeleteFunc(w.reports, func(s int64, _ map[train.NodeID]report) bool { return s < slot })
}

// reportedBy is how long after its end nobody is waited for any more who has not reported a slot.
const reportedBy = 13 * time.Second

// Next judges the next slot if it is over and reported, and gives its number.
func (w *Watch) Next(now time.Time) ([]Turn, int64, bool) {
	over := now.Unix()/slotSeconds - 1
	if w.judged == 0 {
		w.judged = over // of what came before the start, a part may be missing
	}
	slot := w.judged + 1
	end := time.Unix((slot+1)*slotSeconds, 0).UTC()
	if w.Idle() || slot > over || !w.Complete(slot) && now.Sub(end) < reportedBy {
		return nil, slot, false
	}
	w.judged = slot
	return w.Judge(slot, end), slot, true
}

// Complete says whether everybody who has a list has reported both halves of a slot.
func (w *Watch) Complete(slot int64) bool {
	for node := range w.lists {
		if r := w.reports[slot][node]; !r.stalled && (r.sent == nil || r.received == nil) {
			return false
		}
	}
	return true
}

// window is what became of the probes over each known path in some slots.
type window struct {
	matrix *fabric.Matrix
	counts []diagnose.Count
	// slots are those in which a path lost any, one bit for each.
	slots []uint
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
			rows, some.counts, some.slots = append(rows, row), append(some.counts, sum), append(some.slots, slots)
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
		lost := max(sent[id]-received[id], 0)
		sum.Sent, sum.Lost = sum.Sent+sent[id], sum.Lost+lost
		if lost > 0 {
			slots |= 1 << i
		}
	}
	return sum, slots
}

// probed says whether anything can be said of a link. One that no path crosses any more is taken to be well, so that it is forgotten.
func (w window) probed(link int32) bool {
	return len(w.matrix.Over(link)) == 0 || w.sent(link) > 0
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

// lossy counts the slots in which a link lost packets. Windows overlap: what a single slot lost is in several of them.
func (w window) lossy(link int32) int {
	slots := uint(0)
	for _, r := range w.matrix.Over(link) {
		slots |= w.slots[r]
	}
	return bits.OnesCount(slots)
}

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
	// memory is how many probes that rests on at most.
	memory = 1_000_000
)

// background is the part of the packets that a healthy path loses.
func (w *Watch) background() float64 {
	seen := float64(w.quiet.Lost+1) / (float64(w.quiet.Sent) + 1/mostBackground)
	return min(max(seen, leastBackground), mostBackground)
}

// suspects judges the short and the long window that end with a slot.
func (w *Watch) suspects(short, long window) []diagnose.Suspect {
	options := diagnose.Options{Doubt: doubt, Background: w.background()}
	all := diagnose.Localise(short.matrix, short.counts, options)
	for _, s := range diagnose.Localise(long.matrix, long.counts, options) {
		known := slices.ContainsFunc(all, func(o diagnose.Suspect) bool { return o.Link == s.Link })
		if !known && !short.ended(s) {
			all = append(all, s)
		}
	}
	return all
}

// learn takes the slot that leaves the windows for what a healthy network loses, but for the paths over links that were suspected.
func (w *Watch) learn(slot int64) {
	old := w.window(slot, 1)
	for r, row := range old.matrix.Rows {
		if !slices.ContainsFunc(row, func(l int32) bool { _, suspected := w.health.Links[l]; return suspected }) {
			w.quiet.Sent, w.quiet.Lost = w.quiet.Sent+old.counts[r].Sent, w.quiet.Lost+old.counts[r].Lost
		}
	}
	if w.quiet.Sent > memory {
		w.quiet.Sent, w.quiet.Lost = w.quiet.Sent/2, w.quiet.Lost/2
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
	short, some := w.window(slot, shortSlots), w.window(slot, longSlots)
	health, changes := w.health.Fold(diagnose.Window{
		End: end, Suspects: w.suspects(short, some), Probed: short.probed, Slots: some.lossy,
	}, diagnose.Patience{})
	w.health = health
	w.learn(slot - longSlots + 1)
	w.forget(slot - longSlots + 2)
	var turns []Turn
	told := map[int32]bool{}
	tell := func(number int32, h diagnose.LinkHealth, news bool) {
		if told[number] {
			return
		}
		told[number] = true
		turns = append(turns, Turn{train.Link{
			ID: w.links[number], Loss: h.Loss, Confidence: h.Confidence, Degraded: h.Degraded, Since: h.Since, Probes: some.sent(number),
		}, news})
	}
	for _, c := range changes {
		tell(c.Link, c.LinkHealth, true)
	}
	for _, number := range slices.Sorted(maps.Keys(health.Links)) {
		if h := health.Links[number]; h.Degraded {
			tell(number, h, false)
		}
	}
	return turns
}
