package cli

import (
	_ "embed"
	"fmt"
	"html/template"
)

//go:embed page.html
var pageParts string

// parsePage reads a page, which begins with the head that all pages have.
func parsePage(name, text string, funcs template.FuncMap) (*template.Template, error) {
	page, err := template.New(name).Funcs(funcs).Parse(pageParts)
	if err == nil {
		page, err = page.New(name + " page").Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	return page, nil
}
