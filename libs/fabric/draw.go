package fabric

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// mostDrawn is how many links a picture may have: with more nobody sees one.
const mostDrawn = 20000

// Draw writes a picture (SVG) of the topology, the highest switches on top, each link in the colour of what it loses. Loss is by the name of a link or of one of its
// directions, as a part of the packets; links that it does not name are grey.
func (t *Topology) Draw(w io.Writer, loss map[LinkID]float64) error {
	if len(t.Links) > mostDrawn {
		return fmt.Errorf("draw topology: %d links, %d at most", len(t.Links), mostDrawn)
	}
	x, y, width, height := t.layout()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="10">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", width, height)
	for i, l := range t.Links {
		worst, measured := t.worst(int32(i), loss)
		colour, label, thick := "#bbbbbb", "not measured", 1.0
		if measured {
			colour, thick = colourOf(worst)
			label = fmt.Sprintf("%.3g %% lost", 100*worst)
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"><title>%s - %s: %s</title></line>`+"\n",
			x[l.A], y[l.A], x[l.B], y[l.B], colour, thick, html.EscapeString(t.Vertices[l.A].Name), html.EscapeString(t.Vertices[l.B].Name), label)
	}
	for i, v := range t.Vertices {
		name := html.EscapeString(v.Name)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="#334155"><title>%s</title></circle>`+"\n", x[i], y[i], name)
		if len(t.Vertices) <= 64 {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x[i], y[i]-8, name)
		}
	}
	at := margin
	for _, s := range []struct {
		loss float64
		text string
	}{{0, "below 0.1 % lost"}, {0.001, "0.1 %"}, {0.01, "1 %"}, {0.05, "5 % and more"}} {
		colour, thick := colourOf(s.loss)
		fmt.Fprintf(&b, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="%s" stroke-width="%.1f"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			at, height-12, at+20, height-12, colour, thick, at+25, height-8, s.text)
		at += 130
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const margin = 40.0

// layout spreads each tier over the width.
func (t *Topology) layout() (x, y []float64, width, height float64) {
	count := map[Tier]int{}
	top, most := Tier(0), 0
	for _, v := range t.Vertices {
		count[v.Tier]++
		top, most = max(top, v.Tier), max(most, count[v.Tier])
	}
	width = max(600, math.Min(4000, 90*float64(most))) + 2*margin
	height = 2*margin + 140*float64(top) + 30
	x, y = make([]float64, len(t.Vertices)), make([]float64, len(t.Vertices))
	seen := map[Tier]int{}
	for i, v := range t.Vertices {
		x[i] = margin + (width-2*margin)*(float64(seen[v.Tier])+0.5)/float64(count[v.Tier])
		y[i] = margin + 140*float64(top-v.Tier)
		seen[v.Tier]++
	}
	return x, y, width, height
}

// worst is the loss of a link in its worse direction.
func (t *Topology) worst(link int32, loss map[LinkID]float64) (worst float64, measured bool) {
	for _, id := range []LinkID{t.Links[link].ID, t.DirectedID(2 * link), t.DirectedID(2*link + 1)} {
		if v, ok := loss[id]; ok {
			worst, measured = max(worst, v), true
		}
	}
	return worst, measured
}

func colourOf(loss float64) (colour string, thick float64) {
	switch {
	case loss >= 0.05:
		return "#dc2626", 3
	case loss >= 0.01:
		return "#f97316", 2.5
	case loss >= 0.001:
		return "#eab308", 2
	default:
		return "#16a34a", 1
	}
}
