package render

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/chart"
)

// Plot draws points, in the order of x, with characters: rows lines of the given number of columns, axis included.
func Plot(w io.Writer, points []chart.Point, columns, rows int) {
	points = slices.DeleteFunc(slices.Clone(points), func(p chart.Point) bool {
		return math.IsNaN(p.X+p.Y) || math.IsInf(p.X, 0) || math.IsInf(p.Y, 0)
	})
	if len(points) == 0 {
		return
	}
	const axis = 10
	columns = max(columns-axis-1, 1)
	low, high := points[0].Y, points[0].Y
	for _, p := range points {
		low, high = min(low, p.Y), max(high, p.Y)
	}
	first, last := points[0].X, points[len(points)-1].X
	cells := make([][]byte, rows)
	for i := range cells {
		cells[i] = []byte(strings.Repeat(" ", columns))
	}
	row := func(y float64) int {
		if high <= low {
			return rows / 2
		}
		return int(math.Round((high - y) / (high - low) * float64(rows-1)))
	}
	next := 0
	for c := range columns {
		x := last
		if columns > 1 {
			x = first + (last-first)*float64(c)/float64(columns-1)
		}
		for next < len(points)-1 && points[next+1].X <= x {
			next++
		}
		cells[row(between(points, next, x))][c] = '*'
	}
	for i, line := range cells {
		label := ""
		if i == 0 || i == rows-1 && high > low {
			label = fmt.Sprintf("%.4g", high-(high-low)*float64(i)/float64(max(rows-1, 1)))
		}
		fmt.Fprintf(w, "%*s |%s\n", axis-1, label, strings.TrimRight(string(line), " "))
	}
}

// between returns the value at x, which follows point i, on the line to the next one.
func between(points []chart.Point, i int, x float64) float64 {
	if i+1 >= len(points) || points[i+1].X <= points[i].X {
		return points[i].Y
	}
	part := (x - points[i].X) / (points[i+1].X - points[i].X)
	return points[i].Y + part*(points[i+1].Y-points[i].Y)
}
