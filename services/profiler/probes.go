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
}

// report is what one agent counted in a slot.
type report struct {
	sent     map[uint32]int
	received map[uint32]int
}

func newProbes() *probes {
	return &probes{lists: map[train.NodeID]train.Pinglist{}, reports: map[int64]map[train.NodeID]report{}}
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

// window is what became of the probes over each known path in the slots up to one.
type window struct {
	links  []string
	matrix *fabric.Matrix
	counts []diagnose.Count
}

// window puts together what both ends counted. A probe counts only where both ends reported its slot: an agent that is gone is no loss in the network.
func (p *probes) window(last int64) window {
	var w window
	index := map[string]int32{}
	var rows [][]int32
	for _, node := range slices.Sorted(maps.Keys(p.lists)) {
		for _, f := range p.lists[node].Probes {
			row := make([]int32, len(f.Links))
			for i, l := range f.Links {
				if _, known := index[l]; !known {
					index[l] = int32(len(w.links))
					w.links = append(w.links, l)
				}
				row[i] = index[l]
			}
			rows, w.counts = append(rows, row), append(w.counts, p.count(f, last))
		}
	}
	w.matrix = fabric.NewMatrix(len(w.links), rows)
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

// probed is how many probes crossed a link.
func (w window) probed(link int32) int {
	sum := 0
	for _, r := range w.matrix.Over(link) {
		sum += w.counts[r].Sent
	}
	return sum
}

// judge names the links that lose packets in a window.
func (w window) judge() map[string]diagnose.Suspect {
	named := map[string]diagnose.Suspect{}
	for _, s := range diagnose.Localise(w.matrix, w.counts, diagnose.Options{Doubt: doubt}) {
		named[w.links[s.Link]] = s
	}
	return named
}

// doubt is how often a window of a healthy network may name a link; there are six windows in a minute.
const doubt = 1e-5

const (
	// namedBefore is in how many windows in a row a link must be named before it counts as degraded: no job is moved for a single one.
	namedBefore = 2
	// clearBefore is how many windows in a row must not name it before it counts as recovered.
	clearBefore = 6
)

// standing is what is known of a link from window to window.
type standing struct {
	link         train.Link
	named, clear int
}

// change is a link that has come to lose packets or does so no more, or still does.
type change struct {
	link  train.Link
	turns bool
}

// follow takes a window into account, and gives the links that are degraded and those that no longer are.
func follow(known map[string]*standing, w window, end time.Time) []change {
	named := w.judge()
	covered := map[string]int32{}
	for i, id := range w.links {
		covered[id] = int32(i)
	}
	for id := range named {
		if known[id] == nil {
			known[id] = &standing{link: train.Link{ID: id}}
		}
	}
	var changes []change
	for _, id := range slices.Sorted(maps.Keys(known)) {
		s := known[id]
		suspect, bad := named[id]
		at, exists := covered[id]
		switch {
		case bad:
			s.named, s.clear = s.named+1, 0
			s.link.Loss, s.link.Probes, s.link.Confidence = suspect.Loss, suspect.Sent, suspect.Confidence
		case exists && w.probed(at) == 0:
			continue // nothing is known of it now
		default:
			s.named, s.clear = 0, s.clear+1
		}
		turns := !s.link.Degraded && s.named >= namedBefore || s.link.Degraded && s.clear >= clearBefore
		if turns {
			s.link.Degraded, s.link.Since = !s.link.Degraded, end
		}
		if turns || s.link.Degraded {
			changes = append(changes, change{s.link, turns})
		}
		if !s.link.Degraded && s.named == 0 {
			delete(known, id)
		}
	}
	return changes
}
