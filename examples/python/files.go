// Package python embeds the Python example trainers, which `switchyard demo` runs.
package python

import "embed"

// Files holds the trainers and their shared files.
//
//go:embed *.py
var Files embed.FS
