// Package python embeds the Python packages for training code and clients, so that a machine needs only one binary.
package python

import "embed"

// Files holds the import packages kubernetesdlprofile and switchyard.
//
//go:embed kubernetesdlprofile/*.py kubernetesdlprofile/py.typed
//go:embed switchyard/*.py switchyard/py.typed switchyard/client/*.py
var Files embed.FS
