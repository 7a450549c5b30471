package fabric

import (
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// mostDrawn is the largest number of links in a picture; with more none is visible.
const mostDrawn = 20000

// State is the state of a link, or of one direction of it: the part of the packets that it loses, and its extra delay.
type State struct {
	Loss, DelaySeconds float64
}

// Draw writes a picture (SVG) of the topology, the highest switches on top, each link in the colour of its state: red
// for lost packets, orange for slow, green for well. States are by the name of a link or of one of its directions;
// links without a state are grey.
func (t *Topology) Draw(w io.Writer, states map[LinkID]State) error {
	if len(t.Links) > mostDrawn {
		return fmt.Errorf("draw topology: %d links, %d at most", len(t.Links), mostDrawn)
	}
	x, y, width, height := t.layout()
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="10">`+"\n",
		width, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", width, height)
	for _, bad := range []bool{false, true} { // bad links lie on top
		for i, l := range t.Links {
			worst, known := t.Worst(i, states)
			if bad != (known && worst != State{}) {
				continue
			}
			colour, thick, label := "#bbbbbb", 1.0, "not measured"
			if known {
				colour, thick, label = worst.look()
			}
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"><title>%s - %s: %s</title></line>`+"\n",
				x[l.A], y[l.A], x[l.B], y[l.B], colour, thick, html.EscapeString(t.Vertices[l.A].Name), html.EscapeString(t.Vertices[l.B].Name), label)
		}
	}
	for i, v := range t.Vertices {
		name := html.EscapeString(v.Name)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="#334155"><title>%s</title></circle>`+"\n", x[i], y[i], name)
		if len(t.Vertices) <= 64 {
			fmt.Fprintf(&b,
				`<text x="%.1f" y="%.1f" text-anchor="middle" stroke="#ffffff" stroke-width="3" paint-order="stroke">%s</text>`+"\n",
				x[i], y[i]-8, name)
		}
	}
	at := margin
	legend := func(colour string, thick float64, text string) {
		fmt.Fprintf(&b, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="%s" stroke-width="%.1f"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			at, height-12, at+20, height-12, colour, thick, at+25, height-8, text)
		at += 100
	}
	legend("#bbbbbb", 1, "not measured")
	for _, s := range []struct {
		State
		text string
	}{{State{}, "well"}, {State{DelaySeconds: 1}, "slow"}, {State{Loss: 0.001}, "loses packets"}, {State{Loss: 0.01}, "1 % of them"}, {State{Loss: 0.05}, "5 % and more"}} {
		colour, thick, _ := s.look()
		legend(colour, thick, s.text)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const margin = 40.0

// layout spreads each tier over the width.
func (t *Topology) layout() (x, y []float64, width, height float64) {
	count := map[Tier]int{}
	top, bottom, most := Tier(0), Core, 0
	for _, v := range t.Vertices {
		count[v.Tier]++
		top, bottom, most = max(top, v.Tier), min(bottom, v.Tier), max(most, count[v.Tier])
	}
	width = max(600, math.Min(4000, 90*float64(most))) + 2*margin
	height = 2*margin + 140*float64(max(top-bottom, 0)) + 30
	x, y = make([]float64, len(t.Vertices)), make([]float64, len(t.Vertices))
	seen := map[Tier]int{}
	for i, v := range t.Vertices {
		x[i] = margin + (width-2*margin)*(float64(seen[v.Tier])+0.5)/float64(count[v.Tier])
		y[i] = margin + 140*float64(top-v.Tier)
		seen[v.Tier]++
	}
	return x, y, width, height
}

// Worst returns the state of a link, by its index, in its worse direction.
func (t *Topology) Worst(index int, states map[LinkID]State) (worst State, known bool) {
	link := int32(index)
	for _, id := range []LinkID{t.Links[link].ID, t.DirectedID(2 * link), t.DirectedID(2*link + 1)} {
		if s, ok := states[id]; ok {
			known = true
			if s.Loss > worst.Loss || s.Loss == worst.Loss && s.DelaySeconds > worst.DelaySeconds {
				worst = s
			}
		}
	}
	return worst, known
}

// Foreign returns, in order, the links of states that are not in the network: pictures of it do not show them.
func (t *Topology) Foreign(states map[LinkID]State) []LinkID {
	own := map[LinkID]bool{}
	for i := range t.Links {
		link := int32(i)
		own[t.Links[i].ID], own[t.DirectedID(2*link)], own[t.DirectedID(2*link+1)] = true, true, true
	}
	foreign := slices.DeleteFunc(slices.Collect(maps.Keys(states)), func(id LinkID) bool { return own[id] })
	slices.Sort(foreign)
	return foreign
}

// look returns the drawing of a state and its label.
func (s State) look() (colour string, thick float64, label string) {
	const red, orange, green = "#dc2626", "#f97316", "#16a34a"
	label = fmt.Sprintf("%.3g %% lost", 100*s.Loss)
	switch {
	case s.Loss >= 0.05:
		return red, 4, label
	case s.Loss >= 0.01:
		return red, 3, label
	case s.Loss > 0:
		return red, 2, label
	case s.DelaySeconds > 0:
		return orange, 2.5, fmt.Sprintf("%.3g ms slow", 1e3*s.DelaySeconds)
	}
	return green, 1, label
}
