package settings

import (
	_ "embed"
	"strings"
)

//go:embed reference.txt
var reference string

// Reference is docs/configuration.md.
func Reference() string {
	_, set := New()
	return strings.Replace(reference, "{{settings}}", set.Markdown(), 1)
}
