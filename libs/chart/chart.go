// Package chart draws small charts as SVG, to stand in an HTML page: stacked bars and lines over two axes. A drawing
// has no size of its own, no script and no style sheet, takes the page's text colour, and shows each value as a
// tooltip. It is the same, byte for byte, for the same input.
package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The drawing in units of its view box, and the frame in which values are drawn.
const (
	width, height            = 640, 264
	left, right, top, bottom = 58, 12, 10, 46
	fontSize                 = 11
	// legendLine is the height of a line of the legend, which stands above the frame.
	legendLine = 16
)

// colours can be told apart by people who are colour-blind (Okabe and Ito, 2008).
func colour(i int) string {
	colours := [...]string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"}
	return colours[i%len(colours)]
}

// figure is a drawing under way.
type figure struct {
	strings.Builder
	// top is where the frame begins, below the legend.
	top float64
	x   scale
	y   scale
}

// begin opens the drawing and draws the legend. label is what the drawing is for readers that do not see it.
func begin(label string, legend []string) *figure {
	f := &figure{}
	rows := legendRows(legend)
	f.top = top + float64(rows)*legendLine
	f.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" role="img" aria-label="%s" font-family="sans-serif" font-size="%d" fill="currentColor">`,
		width, height+f.top-top, html.EscapeString(label), fontSize)
	f.WriteByte('\n')
	at, row := float64(left), 0
	for i, name := range legend {
		if w := legendWidth(name); at > left && at+w > width-right {
			at, row = left, row+1
		}
		y := float64(top + row*legendLine)
		f.printf(`<rect x="%.1f" y="%.1f" width="10" height="10" fill="%s"/>`, at, y, colour(i))
		f.text(at+14, y+9, "start", name)
		at += legendWidth(name)
	}
	return f
}

func legendWidth(name string) float64 { return 14 + 0.6*fontSize*float64(len([]rune(name))) + 14 }

func legendRows(names []string) int {
	if len(names) == 0 {
		return 0
	}
	rows, at := 1, float64(left)
	for _, name := range names {
		if w := legendWidth(name); at > left && at+w > width-right {
			rows, at = rows+1, left
		}
		at += legendWidth(name)
	}
	return rows
}

func (f *figure) printf(format string, args ...any) { fmt.Fprintf(f, format, args...) }

// text writes a line of text; anchor is start, middle or end.
func (f *figure) text(x, y float64, anchor, s string) {
	f.printf(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
	f.WriteByte('\n')
}

// line draws a line; strength is its opacity.
func (f *figure) line(x1, y1, x2, y2, strength float64) {
	f.printf(`<path d="M%.1f %.1fL%.1f %.1f" stroke="currentColor" stroke-opacity="%.2g" fill="none"/>`, x1, y1, x2, y2, strength)
	f.WriteByte('\n')
}

// frame sets the scales, and draws both axes with their labels and the grid of the y axis.
func (f *figure) frame(x, y scale, xLabel, yLabel string) {
	x.from, x.to = left, width-right
	low := f.top + height - top - bottom
	y.from, y.to = low, f.top
	f.x, f.y = x, y
	for _, v := range y.ticks() {
		f.line(left, y.at(v), width-right, y.at(v), 0.15)
		f.text(left-5, y.at(v)+4, "end", number(v))
	}
	f.line(left, low, width-right, low, 1)
	f.line(left, low, left, f.top, 1)
	if xLabel != "" {
		f.text((left+width-right)/2, low+bottom-8, "middle", xLabel)
	}
	if yLabel != "" {
		middle := (low + f.top) / 2
		f.printf(`<text x="14" y="%.1f" text-anchor="middle" transform="rotate(-90 14 %.1f)">%s</text>`, middle, middle,
			html.EscapeString(yLabel))
		f.WriteByte('\n')
	}
}

// end closes the drawing.
func (f *figure) end() string {
	f.WriteString("</svg>")
	return f.String()
}

// scale maps values between low and high to positions between from and to.
type scale struct{ low, high, from, to float64 }

// scaleFor spans values and, with zero, 0. A span of nothing becomes a span of 1. Values that are no finite numbers are
// left out.
func scaleFor(values []float64, zero bool) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range values {
		if !finite(v) {
			continue
		}
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	if s.low > s.high {
		s.low, s.high = 0, 1
	}
	if zero {
		s.low, s.high = min(s.low, 0), max(s.high, 0)
	}
	if s.high == s.low {
		s.low, s.high = s.low-0.5, s.high+0.5
		if zero {
			s.low, s.high = 0, 1
		}
	}
	step := s.step()
	s.low, s.high = math.Floor(s.low/step)*step, math.Ceil(s.high/step)*step
	return s
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// at returns the position of a value.
func (s scale) at(v float64) float64 { return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from) }

// step is the distance of ticks: 1, 2 or 5 times a power of ten, so that there are about five.
func (s scale) step() float64 {
	const wanted = 5
	raw := (s.high - s.low) / wanted
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, times := range []float64{1, 2, 5} {
		if raw <= times*power*1.0001 {
			return times * power
		}
	}
	return 10 * power
}

// ticks are the values that the axis names.
func (s scale) ticks() []float64 {
	step := s.step()
	var all []float64
	for i := math.Ceil(s.low/step - 1e-9); i*step <= s.high+1e-9*step; i++ {
		all = append(all, i*step)
	}
	return all
}

// number prints a value without the noise of its last bits.
func number(v float64) string {
	if math.Abs(v) < 1e-12 {
		v = 0
	}
	return fmt.Sprintf("%.6g", v)
}

// fixed prints a position.
func fixed(v float64) string { return fmt.Sprintf("%.2f", v) }
