// Package python carries the Python example trainers, which `switchyard demo` runs.
package python

import "embed"

// Files holds the trainers and what they share.
//
//go:embed *.py
var Files embed.FS
