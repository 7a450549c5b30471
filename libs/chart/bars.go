package chart

import "html"

// Bars are columns, each a stack of one value of each series.
type Bars struct {
	// Title names the drawing, X what a column stands for, Y the unit of the values.
	Title, X, Y string
	// Names are those of the columns. If there are many, the axis shows some of them.
	Names  []string
	Series []Values
}

// Values are one for each column.
type Values struct {
	Name   string
	Values []float64
}

// namesShown is the number of columns that all have a name on the axis.
const namesShown = 12

// SVG draws the bars. Values below zero or that are no finite numbers count as zero.
func (b Bars) SVG() string {
	names := make([]string, len(b.Series))
	sums := make([]float64, len(b.Names))
	for i, s := range b.Series {
		names[i] = s.Name
		for k := range sums {
			sums[k] += s.at(k)
		}
	}
	f := begin(b.Title, names)
	f.frame(scale{low: 0, high: float64(max(len(b.Names), 1))}, scaleFor(sums, true), b.X, b.Y)
	for k, name := range b.Names {
		f.column(b, k)
		if k%(1+(len(b.Names)-1)/namesShown) == 0 {
			f.columnName(name, k, len(b.Names))
		}
	}
	return f.end()
}

func (v Values) at(k int) float64 {
	if k >= len(v.Values) || !finite(v.Values[k]) || v.Values[k] < 0 {
		return 0
	}
	return v.Values[k]
}

// column draws the stack of one column.
func (f *figure) column(b Bars, k int) {
	const filled = 0.7
	from, to := f.x.at(float64(k)+0.5-filled/2), f.x.at(float64(k)+0.5+filled/2)
	below := 0.0
	for i, s := range b.Series {
		v := s.at(k)
		if v == 0 {
			continue
		}
		y, base := f.y.at(below+v), f.y.at(below)
		f.printf(`<rect x="%.1f" y="%.2f" width="%.1f" height="%.2f" fill="%s"><title>%s</title></rect>`, from, y, to-from, base-y, colour(i),
			html.EscapeString(b.Names[k]+" "+s.Name+": "+number(v)))
		f.WriteByte('\n')
		below += v
	}
}

// columnName writes the name below a column, turned if there are many.
func (f *figure) columnName(name string, k, columns int) {
	const straight = 6
	x, y := f.x.at(float64(k)+0.5), f.y.from+14
	if columns <= straight {
		f.text(x, y, "middle", name)
		return
	}
	f.printf(`<text x="%.1f" y="%.1f" text-anchor="end" transform="rotate(-30 %.1f %.1f)">%s</text>`, x+4, y-2, x+4,
		y-2, html.EscapeString(name))
	f.WriteByte('\n')
}
