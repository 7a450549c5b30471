// Package python carries the Python packages for training code, so that one binary is all that a machine needs.
package python

import "embed"

// Files holds the import packages kubernetesdlprofile and switchyard.
//
//go:embed kubernetesdlprofile/*.py switchyard/*.py
var Files embed.FS
