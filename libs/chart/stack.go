package chart

import (
	"fmt"
	"html"
	"strings"
)

// Stack draws several charts below each other, as one drawing.
func Stack(title string, charts ...Lines) string {
	var inside strings.Builder
	below := 0
	for _, c := range charts {
		tall := height
		if c.Legend {
			names := make([]string, len(c.Series))
			for i, s := range c.Series {
				names[i] = s.Name
			}
			tall += legendRows(names) * legendLine
		}
		inside.WriteString(strings.Replace(c.SVG(), "<svg ", fmt.Sprintf(`<svg y="%d" width="%d" height="%d" `, below, width, tall), 1))
		below += tall
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n%s</svg>\n", width, below, html.EscapeString(title), inside.String())
}
