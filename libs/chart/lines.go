package chart

import (
	"html"
	"strings"
)

// Lines are series of points over two axes.
type Lines struct {
	// Title names the drawing, X and Y are what the axes show, with their units.
	Title, X, Y string
	// FromZero begins the y axis at 0.
	FromZero bool
	// Steps holds each value until the next point; without it, points are joined and marked.
	Steps bool
	// Legend names the series above the frame.
	Legend bool
	Series []Line
}

// Line is one series.
type Line struct {
	Name   string
	Points []Point
}

// Point is one value of a series.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// SVG draws the lines. Points with values that are no finite numbers are left out.
func (l Lines) SVG() string {
	var names []string
	var xs, ys []float64
	for _, s := range l.Series {
		names = append(names, s.Name)
		for _, p := range s.Points {
			if finite(p.X) && finite(p.Y) {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	if !l.Legend {
		names = nil
	}
	f := begin(l.Title, names)
	f.frame(scaleFor(xs, false), scaleFor(ys, l.FromZero), l.X, l.Y)
	for _, v := range f.x.ticks() {
		f.text(f.x.at(v), f.y.from+14, "middle", number(v))
	}
	for i, s := range l.Series {
		f.series(s, colour(i), l.Steps)
	}
	return f.end()
}

// series draws the path of a series and, unless it goes in steps, a dot at each point.
func (f *figure) series(s Line, colour string, steps bool) {
	var path strings.Builder
	var dots strings.Builder
	before := ""
	for _, p := range s.Points {
		if !finite(p.X) || !finite(p.Y) {
			continue
		}
		x, y := fixed(f.x.at(p.X)), fixed(f.y.at(p.Y))
		switch {
		case path.Len() == 0:
			path.WriteString("M" + x + " " + y)
		case steps:
			path.WriteString("L" + x + " " + before + "L" + x + " " + y)
		default:
			path.WriteString("L" + x + " " + y)
		}
		before = y
		if !steps {
			dots.WriteString(`<circle cx="` + x + `" cy="` + y + `" r="2.5"><title>` +
				html.EscapeString(s.Name+" "+number(p.X)+": "+number(p.Y)) + "</title></circle>\n")
		}
	}
	if path.Len() == 0 {
		return
	}
	f.printf(`<g stroke="%s" fill="%s"><path d="%s" fill="none" stroke-width="1.5"/>%s</g>`, colour, colour,
		path.String(), dots.String())
	f.WriteByte('\n')
}
