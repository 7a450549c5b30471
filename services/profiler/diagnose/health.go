package diagnose

import (
	"maps"
	"slices"
	"time"
)

// How much evidence changes the state of a link.
const (
	// badWindows of the last ofWindows make a link degraded, if it lost packets in more than one slot, because windows
	// overlap. A single window does if the link lost packets in badSlots of its slots.
	badWindows, ofWindows, badSlots = 2, 3, 3
	// goodWindows in a row, each with probes over it, make it recovered.
	goodWindows = 4
)

// Health is the state of the links that were suspected lately. Only Fold changes it.
type Health map[int32]LinkHealth

// LinkHealth is the state of one link.
type LinkHealth struct {
	Degraded bool
	// Recent are the last windows, newest first; true if the link was suspected.
	Recent []bool
	// Good is the number of good windows in a row.
	Good int
	// Since is when the link was first suspected of its present problem.
	Since time.Time
	// Loss, DelaySeconds and Confidence are from the last window in which it was suspected.
	Loss         float64
	DelaySeconds float64
	Confidence   float64
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

// Fold returns the state after a window. The old one stays as it is.
func (h Health) Fold(w Window) Health {
	next := Health{}
	for link, l := range h {
		if w.Probed(link) {
			l = l.better()
		}
		next[link] = l
	}
	for _, s := range w.Suspects {
		next[s.Link] = h[s.Link].worse(s, w)
	}
	maps.DeleteFunc(next, func(_ int32, l LinkHealth) bool { return !l.Degraded && !slices.Contains(l.Recent, true) })
	return next
}

func (l LinkHealth) worse(s Suspect, w Window) LinkHealth {
	if !l.Degraded && !slices.Contains(l.Recent, true) {
		l.Since = w.End
	}
	l.Recent = recent(true, l.Recent)
	l.Good, l.Loss, l.DelaySeconds, l.Confidence = 0, s.Loss, s.DelaySeconds, s.Confidence
	slots := w.Slots(s.Link)
	l.Degraded = l.Degraded || count(l.Recent) >= badWindows && slots > 1 || slots >= badSlots
	return l
}

func (l LinkHealth) better() LinkHealth {
	l.Recent = recent(false, l.Recent)
	l.Good++
	l.Degraded = l.Degraded && l.Good < goodWindows
	return l
}

// recent puts a window first and drops old ones.
func recent(suspected bool, before []bool) []bool {
	all := append([]bool{suspected}, before...)
	return all[:min(len(all), ofWindows)]
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
