// Package templates embeds the job templates that `switchyard render` knows by name.
package templates

import "embed"

// Files holds the templates.
//
//go:embed *.yaml
var Files embed.FS
