package render

import (
	_ "embed"
	"fmt"
	"html/template"
)

//go:embed page.html
var pageParts string

// ParsePage parses a page. All pages share the template "head".
func ParsePage(name, text string, funcs template.FuncMap) (*template.Template, error) {
	page, err := template.New(name).Funcs(funcs).Parse(pageParts)
	if err == nil {
		page, err = page.New(name + " page").Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	return page, nil
}

// Figure is a drawing with a title, and a caption that says in words what it shows.
type Figure struct {
	Title   string
	Caption string
	SVG     template.HTML
}

// Drawing makes a figure of an SVG of package chart.
func Drawing(title, caption, svg string) Figure {
	return Figure{Title: title, Caption: caption, SVG: template.HTML(svg)} //nolint:gosec // drawn by this program, which escapes the texts
}
