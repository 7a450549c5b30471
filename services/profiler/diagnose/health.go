package diagnose

import (
	"slices"
	"time"
)

// Patience is how much evidence changes the state of a link. The zero value means the defaults.
type Patience struct {
	// Bad windows of the last Of make a link degraded: 2 of 3, if it lost packets in more than one slot, because
	// windows overlap. A single window does if the link lost packets in Lasts of its slots: 3.
	Bad, Of, Lasts int
	// Good windows in a row, each with probes over it, make it recovered: 4.
	Good int
}

func (p Patience) withDefaults() Patience {
	if p == (Patience{}) {
		return Patience{Bad: 2, Of: 3, Lasts: 3, Good: 4}
	}
	return p
}

// Health is the state of the links that were suspected lately. Only Fold changes it, and it can be stored as JSON.
type Health struct {
	Links map[int32]LinkHealth `json:"links"`
}

// LinkHealth is the state of one link.
type LinkHealth struct {
	Degraded bool `json:"degraded"`
	// Recent are the last windows, newest first; true if the link was suspected.
	Recent []bool `json:"recent"`
	// Good is the number of good windows in a row.
	Good int `json:"good"`
	// Since is when the link was first suspected of its present problem.
	Since time.Time `json:"since"`
	// Loss, DelaySeconds and Confidence are from the last window in which it was suspected.
	Loss         float64 `json:"loss"`
	DelaySeconds float64 `json:"delay_seconds"`
	Confidence   float64 `json:"confidence"`
}

// Change is a link that has become degraded or has recovered.
type Change struct {
	Link int32
	LinkHealth
}

// Window is the result of one window.
type Window struct {
	End      time.Time
	Suspects []Suspect
	// Probed reports whether any probe was sent over a link: silence is no recovery.
	Probed func(link int32) bool
	// Slots returns in how many slots of the window a link lost packets, or was slow.
	Slots func(link int32) int
}

// Fold adds a window. It returns the new state, leaving the old one untouched, and the changes in order of links.
func (h Health) Fold(w Window, p Patience) (Health, []Change) {
	p = p.withDefaults()
	next := Health{Links: map[int32]LinkHealth{}}
	suspects := map[int32]Suspect{}
	for _, s := range w.Suspects {
		suspects[s.Link] = s
	}
	var changes []Change
	step := func(link int32, old LinkHealth) {
		new := old
		s, suspected := suspects[link]
		switch {
		case suspected:
			new = old.worse(s, w, p)
		case w.Probed(link):
			new = old.better(p)
		}
		if new.Degraded != old.Degraded {
			changes = append(changes, Change{link, new})
		}
		if new.Degraded || slices.Contains(new.Recent, true) {
			next.Links[link] = new
		}
	}
	for link, old := range h.Links {
		step(link, old)
	}
	for link := range suspects {
		if _, known := h.Links[link]; !known {
			step(link, LinkHealth{})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return int(a.Link - b.Link) })
	return next, changes
}

func (l LinkHealth) worse(s Suspect, w Window, p Patience) LinkHealth {
	if !l.Degraded && !slices.Contains(l.Recent, true) {
		l.Since = w.End
	}
	l.Recent = recent(true, l.Recent, p.Of)
	l.Good, l.Loss, l.DelaySeconds, l.Confidence = 0, s.Loss, s.DelaySeconds, s.Confidence
	slots := w.Slots(s.Link)
	l.Degraded = l.Degraded || count(l.Recent) >= p.Bad && slots > 1 || slots >= p.Lasts
	return l
}

func (l LinkHealth) better(p Patience) LinkHealth {
	l.Recent = recent(false, l.Recent, p.Of)
	l.Good++
	l.Degraded = l.Degraded && l.Good < p.Good
	return l
}

// recent puts a window first and drops old ones.
func recent(suspected bool, before []bool, most int) []bool {
	all := append([]bool{suspected}, before...)
	return all[:min(len(all), most)]
}

func count(windows []bool) int {
	n := 0
	for _, suspected := range windows {
		if suspected {
			n++
		}
	}
	return n
}
