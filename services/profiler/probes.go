package profiler

import (
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

// windowSlots is how many slots of probes are judged together: 30 s.
const windowSlots = 3

// probes are what agents were asked to probe and what they counted, as far as it is judged.
type probes struct {
	lists   map[train.NodeID]train.Pinglist
	reports map[int64]map[train.NodeID]report
	// links are numbered as they come, for as long as the service runs.
	links  []string
	number map[string]int32
	health diagnose.Health
}

// report is what one agent counted in a slot.
type report struct {
	sent     map[uint32]int
	received map[uint32]int
}

func newProbes() *probes {
	return &probes{lists: map[train.NodeID]train.Pinglist{}, reports: map[int64]map[train.NodeID]report{}, number: map[string]int32{}}
}

// numberOf is the number of a link.
func (p *probes) numberOf(link string) int32 {
	n, known := p.number[link]
	if !known {
		n = int32(len(p.links))
		p.links, p.number[link] = append(p.links, link), n
	}
	return n
}

// recall takes up a link that was degraded before the service started.
func (p *probes) recall(l train.Link) {
	if p.health.Links == nil {
		p.health.Links = map[int32]diagnose.LinkHealth{}
	}
	p.health.Links[p.numberOf(l.ID)] = diagnose.LinkHealth{Degraded: true, Since: l.Since, Loss: l.Loss, Confidence: l.Confidence}
}

// counted adds a report, and forgets those of slots that are judged no more.
func (p *probes) counted(node train.NodeID, c event.ProbesCounted) {
	r := report{map[uint32]int{}, map[uint32]int{}}
	for _, s := range c.Sent {
		r.sent[s.Flow] = s.Sent
	}
	for _, s := range c.Received {
		r.received[s.Flow] = s.Count
	}
	if p.reports[c.Slot] == nil {
		p.reports[c.Slot] = map[train.NodeID]report{}
	}
	p.reports[c.Slot][node] = r
}

// forget drops the slots before one.
func (p *probes) forget(slot int64) {
	maps.DeleteFunc(p.reports, func(s int64, _ map[train.NodeID]report) bool { return s < slot })
}

// complete says whether everybody who has a list has reported a slot.
func (p *probes) complete(slot int64) bool {
	for node := range p.lists {
		if _, told := p.reports[slot][node]; !told {
			return false
		}
	}
	return true
}

// window is what became of the probes over each known path in some slots.
type window struct {
	matrix *fabric.Matrix
	counts []diagnose.Count
}

// window puts together what both ends counted in the slots up to one. A probe counts only where both ends reported its slot: an agent that is gone is no loss in
// the network.
func (p *probes) window(last int64) window {
	var w window
	var rows [][]int32
	for _, node := range slices.Sorted(maps.Keys(p.lists)) {
		for _, f := range p.lists[node].Probes {
			row := make([]int32, len(f.Links))
			for i, l := range f.Links {
				row[i] = p.numberOf(l)
			}
			rows, w.counts = append(rows, row), append(w.counts, p.count(f, last))
		}
	}
	w.matrix = fabric.NewMatrix(len(p.links), rows)
	return w
}

// count adds up one flow.
func (p *probes) count(f train.Flow, last int64) diagnose.Count {
	var c diagnose.Count
	id := f.ID()
	for slot := last - windowSlots + 1; slot <= last; slot++ {
		from, sent := p.reports[slot][f.From]
		to, received := p.reports[slot][f.To]
		if sent && received {
			n := from.sent[id]
			c.Sent, c.Lost = c.Sent+n, c.Lost+max(n-to.received[id], 0)
		}
	}
	return c
}

// probed says whether anything can be said of a link. One that no path crosses any more is taken to be well, so that it is forgotten.
func (w window) probed(link int32) bool {
	return len(w.matrix.Over(link)) == 0 || w.sent(link) > 0
}

// sent is how many probes were sent over a link.
func (w window) sent(link int32) int {
	sum := 0
	for _, r := range w.matrix.Over(link) {
		sum += w.counts[r].Sent
	}
	return sum
}

// doubt is how often a window of a healthy network may name a link; there are six windows in a minute.
const doubt = 1e-5

// turn is a link that is degraded, or that has recovered by the last window.
type turn struct {
	link train.Link
	// news is set when the last window made it so.
	news bool
}

// judge judges the window that ends with a slot.
func (p *probes) judge(slot int64, end time.Time) []turn {
	w := p.window(slot)
	health, changes := p.health.Fold(diagnose.Window{
		End: end, Suspects: diagnose.Localise(w.matrix, w.counts, diagnose.Options{Doubt: doubt}), Probed: w.probed,
	}, diagnose.Patience{})
	p.health = health
	p.forget(slot - windowSlots + 2)
	var turns []turn
	told := map[int32]bool{}
	tell := func(number int32, h diagnose.LinkHealth, news bool) {
		if told[number] {
			return
		}
		told[number] = true
		turns = append(turns, turn{train.Link{
			ID: p.links[number], Loss: h.Loss, Confidence: h.Confidence, Degraded: h.Degraded, Since: h.Since, Probes: w.sent(number),
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
