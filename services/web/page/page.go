// Package page holds the page that people open in a browser, as `make page` built it of the sources in src.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"maps"
	"slices"
)

//go:embed dist
var files embed.FS

// Start is the file that a browser opens first.
const Start = "index.html"

// types are the files of the page, and their media types.
func types() map[string]string {
	return map[string]string{Start: "text/html; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "page.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
}

// Names returns the files of the page.
func Names() []string { return slices.Sorted(maps.Keys(types())) }

// File is a file of the page.
type File struct {
	Type string
	// Tag changes with the content.
	Tag  string
	Data []byte
}

// Get returns one of Names.
func Get(name string) File {
	data, err := files.ReadFile("dist/" + name)
	if err != nil {
		panic("the page was built without " + name) // which the tests would show
	}
	sum := sha256.Sum256(data)
	return File{Type: types()[name], Tag: `"` + hex.EncodeToString(sum[:8]) + `"`, Data: data}
}
