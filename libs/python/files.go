// Package python embeds the Python packages for training code, so that a machine needs only one binary.
package python

import "embed"

// Files holds the import packages kubernetesdlprofile and switchyard.
//
//go:embed kubernetesdlprofile/*.py switchyard/*.py
var Files embed.FS
